package machinesapi_test

import (
	"encoding/base64"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/machine"
	"github.com/aurea-dev/aurea/internal/machinesapi"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// asked is what the client of source 004 sends.
const asked = `{"name":"session-abc","region":"sjc","config":{"image":"registry.fly.io/mobvibe-sandbox:latest",
	"guest":{"cpu_kind":"shared","cpus":1,"memory_mb":512},"env":{"SESSION_ID":"abc"},"auto_destroy":true}}`

type execAnswer struct {
	Stdout, Stderr string
	ExitCode       int  `json:"exit_code"`
	ExitSignal     int  `json:"exit_signal"`
	TimedOut       bool `json:"timed_out"`
}

// TestClientStory is what that client does with a machine.
func TestClientStory(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	m := s.create(asked)
	if !machine.IsID(m.ID) || m.Name != "session-abc" || m.Region != "sjc" || m.State != machine.Started || m.PrivateIP != machine.PrivateIP(m.ID) || len(m.InstanceID) != 26 {
		t.Fatalf("made %+v", m)
	}
	if diff := cmp.Diff(machinesapi.ImageRef{Registry: "registry.fly.io", Repository: "mobvibe-sandbox", Tag: "latest", Labels: map[string]string{}}, m.ImageRef); diff != "" {
		t.Error(diff)
	}
	order := s.worker.orders[0]
	if order.Spec.Env["SESSION_ID"] != "abc" || order.Spec.Env["FLY_MACHINE_ID"] != m.ID || order.Spec.Image != "registry.fly.io/mobvibe-sandbox:latest" {
		t.Errorf("ordered %+v", order)
	}
	if want := (sandbox.Limits{MilliCPU: 1000, Memory: 512 << 20}); order.Spec.Limits != want {
		t.Errorf("limits %+v", order.Spec.Limits)
	}
	for _, body := range []string{
		`{"command":["echo","Hello","from","sandbox"],"timeout":300}`,
		`{"cmd":["echo","Hello","from","sandbox"]}`,
		`{"cmd":"echo 'Hello' from sandbox"}`,
		`{"command":["cat"],"stdin":"Hello from sandbox\n","timeout":"10s"}`,
	} {
		var e execAnswer
		s.admin("POST", machines+"/"+m.ID+"/exec", body).into(200, &e)
		if strings.TrimSpace(e.Stdout) != "Hello from sandbox" || e.ExitCode != 0 || e.Stderr != "" {
			t.Errorf("%s: %+v", body, e)
		}
	}
	var e execAnswer
	s.admin("POST", machines+"/"+m.ID+"/exec", `{"command":["exit","7"]}`).into(200, &e)
	if e.ExitCode != 7 {
		t.Errorf("a script that fails: %+v", e)
	}
	var list []machinesapi.Machine
	s.admin("GET", machines, "").into(200, &list)
	if len(list) != 1 || list[0].ID != m.ID {
		t.Errorf("lists %+v", list)
	}
	s.admin("DELETE", machines+"/"+m.ID, "").into(200, nil) // it runs, and no force is sent
	s.admin("GET", machines+"/"+m.ID, "").refused(404)
	s.admin("DELETE", machines+"/"+m.ID, "").refused(404)
	s.admin("GET", machines+"/"+m.ID+"/wait?state=destroyed", "").into(200, nil)
	if s.open() != 0 {
		t.Errorf("%d sandboxes are left", s.open())
	}
	s.create(asked) // the name is free again
}

func TestLifeOfAMachine(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	m := s.create(`{"config":{"image":"x","metadata":{"a":"1"}}}`)
	at := machines + "/" + m.ID
	if m.Name != "machine-"+m.ID || m.Region != "local" {
		t.Errorf("made %+v", m)
	}
	steps := []struct {
		verb, state string
		boxes       int
	}{
		{"stop", "stopped", 0},
		{"stop", "stopped", 0},
		{"start", "started", 1},
		{"start", "started", 1},
		{"suspend", "suspended", 1},
		{"suspend", "suspended", 1},
		{"start", "started", 1},
		{"suspend", "suspended", 1},
		{"stop", "stopped", 0},
		{"restart", "started", 1},
		{"restart", "started", 1},
	}
	for i, step := range steps {
		s.admin("POST", at+"/"+step.verb, "").into(200, nil)
		if got := s.state(m.ID); got != step.state || s.open() != step.boxes {
			t.Fatalf("step %d, %s: it is %s with %d sandboxes, want %s with %d", i, step.verb, got, s.open(), step.state, step.boxes)
		}
		s.admin("GET", at+"/wait?timeout=1&state="+step.state, "").into(200, nil)
	}
	if s.worker.snapped == 0 {
		t.Error("no checkpoint was tried before it was frozen")
	}
	var now machinesapi.Machine
	s.admin("GET", at, "").into(200, &now)
	if now.PrivateIP != m.PrivateIP || now.InstanceID != m.InstanceID || len(now.Events) == 0 {
		t.Errorf("after all: %+v", now)
	}
	s.admin("POST", at+"/suspend", "").into(200, nil)
	if e := s.admin("POST", at+"/exec", `{"command":["echo"]}`).refused(412); !strings.Contains(e, "suspended") {
		t.Error(e)
	}
	if e := s.admin("GET", at+"/wait?timeout=0.01", "").refused(408); !strings.Contains(e, "currently suspended") {
		t.Error(e)
	}
	s.admin("DELETE", at+"?force=true", "").into(200, nil)
	if s.open() != 0 || s.state(m.ID) != "none" {
		t.Error("something is left")
	}
}

func TestUpdate(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	m := s.create(`{"config":{"image":"x"}}`)
	at := machines + "/" + m.ID
	var now machinesapi.Machine
	s.admin("POST", at, `{"config":{"image":"y","guest":{"cpus":2,"memory_mb":1024}}}`).into(200, &now)
	if now.InstanceID == m.InstanceID || now.State != machine.Started || now.PrivateIP != m.PrivateIP || s.open() != 1 || s.worker.made() != 2 {
		t.Fatalf("updated %+v, %d sandboxes", now, s.open())
	}
	if o := s.worker.orders[1]; o.Spec.Image != "y" || o.Spec.Limits.MilliCPU != 2000 || o.Spec.Limits.Memory != 1<<30 {
		t.Errorf("ordered %+v", o)
	}
	s.admin("POST", at, `{"config":{"image":"z"},"current_version":"`+m.InstanceID+`"}`).refused(409)
	s.admin("POST", at, `{"config":{"image":"z"},"skip_launch":true}`).into(200, &now)
	if now.State != machine.Stopped || s.open() != 0 {
		t.Errorf("without a launch: %+v", now)
	}
	s.admin("POST", at+"/start", "").into(200, nil)
	if o := s.worker.orders[2]; o.Spec.Image != "z" {
		t.Errorf("ordered %+v", o)
	}
	s.admin("POST", at, `{"config":{"image":"z"},"name":"another"}`).refused(400)
}

// TestExecWaitsForTheStart runs a command in a machine that is still being made.
func TestExecWaitsForTheStart(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.worker.hold = make(chan struct{})
	var m machinesapi.Machine
	s.admin("POST", machines, `{"name":"slow","config":{"image":"x"},"skip_launch":true}`).into(200, &m)
	if m.State != machine.Created || s.worker.made() != 0 {
		t.Fatalf("made %+v", m)
	}
	s.admin("POST", machines+"/"+m.ID+"/exec", `{"command":["echo","x"]}`).refused(412) // nobody starts it
	var group sync.WaitGroup
	group.Go(func() { s.admin("POST", machines+"/"+m.ID+"/start", "").into(200, nil) })
	s.admin("GET", machines+"/"+m.ID+"/wait?state=starting", "").into(200, nil)
	group.Go(func() {
		var e execAnswer
		s.admin("POST", machines+"/"+m.ID+"/exec", `{"command":["echo","early"]}`).into(200, &e)
		if e.Stdout != "early\n" {
			t.Errorf("%+v", e)
		}
	})
	close(s.worker.hold)
	group.Wait()
}

// TestDestroyWhileItIsMade destroys a machine whose sandbox is being made:
// nothing is left of either.
func TestDestroyWhileItIsMade(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.worker.hold = make(chan struct{})
	var group sync.WaitGroup
	group.Go(func() {
		if a := s.admin("POST", machines, `{"name":"early","config":{"image":"x"}}`); a.status < 400 {
			t.Errorf("made all the same: %s", a.body)
		}
	})
	var list []machinesapi.Machine
	for len(list) == 0 || list[0].State != machine.Starting {
		if a := s.admin("GET", machines, ""); a.status == 200 {
			a.into(200, &list)
		}
	}
	s.admin("DELETE", machines+"/"+list[0].ID, "").into(200, nil)
	close(s.worker.hold)
	group.Wait()
	if s.open() != 0 || s.state(list[0].ID) != "none" {
		t.Errorf("%d sandboxes are left of a machine that is %s", s.open(), s.state(list[0].ID))
	}
}

func TestMachineThatCannotBeMade(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.worker.refuse = fault.New(fault.NotFound, "there is no image \"x\" here").WithCode("image_not_found")
	if e := s.admin("POST", machines, `{"name":"n","config":{"image":"x"}}`).refused(404); !strings.Contains(e, "no image") {
		t.Error(e)
	}
	var list []machinesapi.Machine
	s.admin("GET", machines, "").into(200, &list)
	s.worker.refuse = fault.New(fault.Exhausted, "full")
	s.admin("POST", machines, `{"name":"n","config":{"image":"x"}}`).refused(503)
	if len(list) != 0 || s.open() != 0 {
		t.Errorf("left %+v", list)
	}
	s.worker.refuse = nil
	m := s.create(`{"name":"n","config":{"image":"x"}}`)
	s.admin("POST", machines, `{"name":"n","config":{"image":"x"}}`).refused(409)
	s.admin("POST", machines+"/"+m.ID+"/stop", "").into(200, nil)
	s.worker.refuse = fault.New(fault.Unavailable, "away")
	s.admin("POST", machines+"/"+m.ID+"/start", "").refused(503)
	if got := s.state(m.ID); got != "stopped" { // it ran once: its record is worth something
		t.Errorf("it is %s", got)
	}
}

// TestProcesses runs a machine that has a process of its own.
func TestProcesses(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	var group sync.WaitGroup
	for _, c := range []struct{ config, verb, body, state string }{
		{`"init":{"cmd":["echo","done"]}`, "", "", "stopped"},
		{`"init":{"exec":["exit","3"]},"restart":{"policy":"no"}`, "", "", "stopped"},
		{`"init":{"entrypoint":["exit"],"cmd":["3"]},"auto_destroy":true`, "", "", "destroyed"},
		{`"processes":[{"cmd":["wait"]},{"cmd":["echo","done"]}]`, "", "", "stopped"},
		{`"init":{"cmd":["wait"]}`, "signal", `{"signal":"SIGKILL"}`, "started"}, // and is started again
		{`"init":{"cmd":["wait"]},"restart":{"policy":"no"}`, "signal", `{"signal":"SIGKILL"}`, "stopped"},
		{`"init":{"cmd":["wait"]}`, "stop", `{"signal":"SIGKILL"}`, "stopped"},
		{`"auto_destroy":true`, "stop", ``, "destroyed"},
		{`"auto_destroy":true`, "signal", `{"signal":15}`, "destroyed"},
		{`"auto_destroy":true`, "signal", `{"signal":"SIGUSR1"}`, "started"},
	} {
		group.Go(func() {
			m := s.create(`{"config":{"image":"x",` + c.config + `}}`)
			at := machines + "/" + m.ID
			if c.verb != "" {
				s.admin("POST", at+"/"+c.verb, c.body).into(200, nil)
			}
			s.admin("GET", at+"/wait?state="+c.state, "").into(200, nil)
			s.admin("DELETE", at, "")
		})
	}
	group.Wait()
	if s.open() != 0 {
		t.Errorf("%d sandboxes are left", s.open())
	}
}

func TestRestartsAreCounted(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	m := s.create(`{"config":{"image":"x","init":{"cmd":["exit","3"]},"restart":{"policy":"on-failure","max_retries":2}}}`)
	s.admin("GET", machines+"/"+m.ID+"/wait?state=stopped", "").into(200, nil)
	var events []machinesapi.Event
	s.admin("GET", machines+"/"+m.ID+"/events", "").into(200, &events)
	var exits []bool
	for _, e := range slices.Backward(events) {
		if e.Type == "exit" {
			exits = append(exits, e.Request.Exit.Restarting)
			if e.Request.Exit.Code != 3 {
				t.Errorf("exit %+v", e.Request.Exit)
			}
		}
	}
	if !slices.Equal(exits, []bool{true, true, false}) {
		t.Errorf("exits: restarting %v", exits)
	}
}

// TestSandboxThatEndsStopsItsMachine ends the sandbox behind the machine's back.
func TestSandboxThatEndsStopsItsMachine(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	for config, want := range map[string]string{`{"image":"x"}`: "stopped", `{"image":"x","auto_destroy":true}`: "none"} {
		m := s.create(`{"config":` + config + `}`)
		if _, err := s.keeper.EndSandbox(local(t), m.Sandbox, "somebody ended it"); err != nil {
			t.Fatal(err)
		}
		if got := s.state(m.ID); got != want {
			t.Errorf("%s: it is %s, want %s", config, got, want)
		}
	}
}

func TestFiles(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	text := base64.StdEncoding.EncodeToString([]byte("the content"))
	s.create(`{"config":{"image":"x","files":[{"guest_path":"/workspace/a/b.txt","raw_value":"` + text + `","mode":384}]}}`)
	if len(s.worker.tars) != 1 || !strings.HasPrefix(s.worker.tars[0], "/ workspace/a/b.txt") || !strings.Contains(s.worker.tars[0], "the content") {
		t.Errorf("put %q", s.worker.tars)
	}
}

func TestMetadataCordonAndLease(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	m := s.create(`{"config":{"image":"x","metadata":{"a":"1"}}}`)
	at := machines + "/" + m.ID
	s.admin("POST", at+"/metadata/b", `{"value":"2"}`).into(204, nil)
	s.admin("DELETE", at+"/metadata/a", "").into(204, nil)
	s.admin("POST", at+"/metadata/bad%20key", `{"value":"2"}`).refused(400)
	var data map[string]string
	s.admin("GET", at+"/metadata", "").into(200, &data)
	if !cmp.Equal(data, map[string]string{"b": "2"}) {
		t.Errorf("metadata %v", data)
	}
	for query, want := range map[string]int{"": 1, "?metadata.b=2": 1, "?metadata.b=3": 0, "?region=local": 1, "?region=sjc": 0, "?state=stopped": 0} {
		var list []machinesapi.Machine
		s.admin("GET", machines+query, "").into(200, &list)
		if len(list) != want {
			t.Errorf("%q lists %d", query, len(list))
		}
	}
	s.admin("POST", at+"/cordon", "").into(200, &struct{}{})
	var now machinesapi.Machine
	s.admin("GET", at, "").into(200, &now)
	if !now.Cordoned {
		t.Error("not cordoned")
	}
	s.admin("POST", at+"/uncordon", "").into(200, nil)

	s.admin("GET", at+"/lease", "").refused(404)
	var l struct {
		Status, Nonce, Owner string
		Data                 struct {
			Nonce     string
			ExpiresAt int64 `json:"expires_at"`
		}
	}
	s.admin("POST", at+"/lease", `{"ttl":60,"description":"mine"}`).into(200, &l)
	nonce := l.Nonce
	if nonce == "" || l.Data.Nonce != nonce || l.Status != "success" || l.Owner != "a" || l.Data.ExpiresAt == 0 {
		t.Fatalf("lease %+v", l)
	}
	for _, call := range []struct{ method, path, body string }{
		{"POST", "/stop", ""},
		{"POST", "/start", ""},
		{"POST", "/suspend", ""},
		{"POST", "/restart", ""},
		{"POST", "/cordon", ""},
		{"POST", "/signal", `{"signal":"SIGUSR1"}`},
		{"POST", "/lease", ""},
		{"DELETE", "/lease", ""},
		{"POST", "", `{"config":{"image":"x"}}`},
		{"DELETE", "", ""},
	} {
		if e := s.admin(call.method, at+call.path, call.body).refused(409); !strings.Contains(e, "lease") {
			t.Errorf("%s %s: %s", call.method, call.path, e)
		}
	}
	s.admin("POST", at+"/metadata/k", `{"value":"v"}`).into(204, nil)
	s.admin("DELETE", at+"/metadata/k", "").into(204, nil)
	var again struct{ Nonce string }
	s.admin("GET", at+"/lease", "").into(200, &again)
	if again.Nonce != "" {
		t.Error("who reads a lease is told its nonce")
	}
	s.admin("POST", at+"/lease", `{"ttl":120}`, "fly-machine-lease-nonce", nonce).into(200, &again)
	if again.Nonce != nonce {
		t.Errorf("held on with %q", again.Nonce)
	}
	s.admin("POST", at+"/stop", "", "fly-machine-lease-nonce", nonce).into(200, nil)
	s.admin("DELETE", at+"/lease", "", "fly-machine-lease-nonce", nonce).into(200, nil)
	s.admin("POST", at+"/start", "").into(200, nil)
	s.admin("POST", at+"/lease", `{"ttl":99999}`).refused(400)
}

func TestBadRequests(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	m := s.create(`{"config":{"image":"x"}}`)
	at := machines + "/" + m.ID
	for _, c := range []struct {
		method, path, body string
		status             int
	}{
		{"POST", machines, ``, 400},
		{"POST", machines, `{`, 400},
		{"POST", machines, `[]`, 400},
		{"POST", machines, `{}`, 400},
		{"POST", machines, `{"config":{}}`, 400},
		{"POST", machines, `{"name":"a b","config":{"image":"x"}}`, 400},
		{"POST", machines, `{"name":7,"config":{"image":"x"}}`, 400},
		{"POST", machines, `{"region":"../x","config":{"image":"x"}}`, 400},
		{"POST", machines, `{"config":{"image":"x","env":{"A=B":"c"}}}`, 400},
		{"POST", machines, `{"config":{"image":"x","env":{"A":"` + strings.Repeat("x", 200<<10) + `"}}}`, 400},
		{"POST", machines, `{"config":{"image":"` + strings.Repeat("x", 2<<20) + `"}}`, 413},
		{"POST", machines, strings.Repeat("x", 9<<20), 413},
		{"POST", "/apps/a%20b/machines", `{"config":{"image":"x"}}`, 400},
		{"POST", at + "/exec", `{}`, 400},
		{"POST", at + "/exec", `{"command":[]}`, 400},
		{"POST", at + "/exec", `{"command":[""]}`, 400},
		{"POST", at + "/exec", `{"command":"echo"}`, 400},
		{"POST", at + "/exec", `{"cmd":{}}`, 400},
		{"POST", at + "/exec", `{"cmd":"'"}`, 400},
		{"POST", at + "/exec", `{"command":["a\u0000b"]}`, 400},
		{"POST", at + "/exec", `{"command":["a"],"timeout":-1}`, 400},
		{"POST", at + "/exec", `{"command":["a"],"timeout":99999}`, 400},
		{"POST", at + "/signal", `{}`, 400},
		{"POST", at + "/signal", `{"signal":"SIGNOPE"}`, 400},
		{"POST", at + "/stop", `{"timeout":"soon"}`, 400},
		{"POST", at + "/metadata/k", `{}`, 400},
		{"GET", at + "/wait?state=nowhere", ``, 400},
		{"GET", at + "/wait?timeout=soon", ``, 400},
		{"GET", "/nothing", ``, 404},
		{"PATCH", machines, ``, 404},
	} {
		a := s.admin(c.method, c.path, c.body)
		if a.status != c.status {
			t.Errorf("%s %.40s %.60s: %d %s, want %d", c.method, c.path, c.body, a.status, a.body, c.status)
		}
	}
	if s.open() != 1 || s.state(m.ID) != "started" {
		t.Error("something was made or changed")
	}
}

// TestNewLifeGoesOn stops the machinist while a machine is on its way: the next
// one brings it there, and no sandbox is left over.
func TestNewLifeGoesOn(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.worker.hold = make(chan struct{})
	var group sync.WaitGroup
	group.Go(func() { s.admin("POST", machines, `{"name":"n","config":{"image":"x"}}`) })
	var list []machinesapi.Machine
	for len(list) == 0 || list[0].State != machine.Starting || s.worker.made() == 0 {
		if a := s.admin("GET", machines, ""); a.status == 200 {
			a.into(200, &list)
		}
	}
	s.smith.Stop()
	group.Wait()
	s.worker.mu.Lock()
	s.worker.hold = nil
	s.worker.mu.Unlock()
	s.live()
	s.admin("GET", machines+"/"+list[0].ID+"/wait?state=started", "").into(200, nil)
	if s.open() != 1 {
		t.Errorf("%d sandboxes for one machine", s.open())
	}
}

// TestFileThatMayNotBeWritten names the file of the configuration, and leaves no
// machine.
func TestFileThatMayNotBeWritten(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.worker.shut = "etc/motd2"
	e := s.admin("POST", machines, `{"config":{"image":"x","files":[{"guest_path":"/workspace/a","raw_value":"YQ=="},{"guest_path":"/etc/motd2","raw_value":"YQ=="}]}}`).refused(400)
	if !strings.Contains(e, "config.files[1].guest_path: /etc/motd2") || s.open() != 0 {
		t.Errorf("%s; %d sandboxes", e, s.open())
	}
}
