package machine_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/machine"
)

func TestIdentity(t *testing.T) {
	t.Parallel()
	a, b := machine.NewID(), machine.NewID()
	if !machine.IsID(a) || a == b || machine.IsID("../etc/passwd/") || machine.IsID(strings.ToUpper(a)[:13]) {
		t.Errorf("ids %s and %s", a, b)
	}
	ip, err := netip.ParseAddr(machine.PrivateIP(a))
	if err != nil || !ip.IsPrivate() || !ip.Is6() || machine.PrivateIP(a) != ip.String() || machine.PrivateIP(b) == ip.String() {
		t.Errorf("address %v, %v", ip, err)
	}
	if x, y := machine.NewInstance(), machine.NewInstance(); len(x) != 26 || x >= y {
		t.Errorf("instances %s, %s", x, y)
	}
}

// TestStates holds that every state can be left but the last, that none is left
// for one that is none, and that those that pass lead on.
func TestStates(t *testing.T) {
	t.Parallel()
	for _, from := range machine.States() {
		next := 0
		for _, to := range machine.States() {
			if from.Can(to) {
				next++
			}
			if got, err := from.To(to); (err == nil) != from.Can(to) || err == nil && got != to || err != nil && (got != from || !fault.Is(err, fault.Conflict)) {
				t.Errorf("%s to %s: %s, %v", from, to, got, err)
			}
		}
		if (next == 0) != (from == machine.Destroyed) {
			t.Errorf("%s leads to %d states", from, next)
		}
		if from != machine.Destroyed && from != machine.Destroying && !from.Can(machine.Destroying) {
			t.Errorf("%s cannot be destroyed", from)
		}
	}
	if !strings.Contains(machine.Diagram(), "destroying --> destroyed") {
		t.Error(machine.Diagram())
	}
}

func TestConfig(t *testing.T) {
	t.Parallel()
	c, err := machine.ReadConfig([]byte(`{"image":"x","services":[{"internal_port":80}],"unknown":{"kept":1}}`))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(machine.Guest{CPUKind: "shared", CPUs: 1, MemoryMB: 512}, *c.Guest); diff != "" {
		t.Error(diff)
	}
	if l := c.Guest.Limits(); l.MilliCPU != 1000 || l.Memory != 512<<20 {
		t.Errorf("limits %+v", l)
	}
	doc, err := c.Document([]byte(`{"image":"x","unknown":{"kept":1}}`))
	if err != nil || !strings.Contains(string(doc), `"unknown":{"kept":1}`) || !strings.Contains(string(doc), `"memory_mb":512`) {
		t.Errorf("document %s, %v", doc, err)
	}
	for text, field := range map[string]string{
		``:                                       "config",
		`null`:                                   "config",
		`[]`:                                     "config",
		`{}`:                                     "config.image",
		`{"image":"x","guest":{"cpus":-1}}`:      "config.guest.cpus",
		`{"image":"x","guest":{"cpus":100000}}`:  "config.guest.cpus",
		`{"image":"x","guest":{"memory_mb":-5}}`: "config.guest.memory_mb",
		`{"image":"x","guest":{"cpu_kind":"huge"}}`:                                  "config.guest.cpu_kind",
		`{"image":"x","guest":{"gpus":1}}`:                                           "config.guest.gpus",
		`{"image":"x","guest":{"cpus":"2"}}`:                                         "config",
		`{"image":"x","mounts":[{"volume":"v"}]}`:                                    "config.mounts",
		`{"image":"x","containers":[{}]}`:                                            "config.containers",
		`{"image":"x","schedule":"daily"}`:                                           "config.schedule",
		`{"image":"x","restart":{"policy":"maybe"}}`:                                 "config.restart.policy",
		`{"image":"x","processes":[{}]}`:                                             "config.processes",
		`{"image":"x","stop_config":{"signal":"SIGNOPE"}}`:                           "config.stop_config.signal",
		`{"image":"x","stop_config":{"timeout":"yes"}}`:                              "config.stop_config.timeout",
		`{"image":"x","files":[{"guest_path":"/a/../b","raw_value":"eA=="}]}`:        "config.files",
		`{"image":"x","files":[{"guest_path":"a","raw_value":"eA=="}]}`:              "config.files",
		`{"image":"x","files":[{"guest_path":"/a","raw_value":"?"}]}`:                "config.files",
		`{"image":"x","files":[{"guest_path":"/a","secret_name":"s"}]}`:              "config.files",
		`{"image":"x","files":[{"guest_path":"/a","raw_value":"eA==","mode":2048}]}`: "config.files",
		`{"image":"x","metadata":{"":"v"}}`:                                          "metadata",
		`{"image":"x","metadata":{"a b":"v"}}`:                                       "metadata",
		`{"image":"x","metadata":{"k":"` + strings.Repeat("x", 5000) + `"}}`:         "metadata",
	} {
		_, err := machine.ReadConfig([]byte(text))
		if f, ok := err.(*fault.Error); !ok || f.Field != field { //nolint:errorlint // it is the fault itself
			t.Errorf("%.60s: %v, want a fault of %s", text, err, field)
		}
	}
}

func TestRestartPolicy(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		config   string
		failed   bool
		restarts int
		want     bool
	}{
		{`{"image":"x"}`, true, 0, true},
		{`{"image":"x"}`, false, 0, false},
		{`{"image":"x"}`, true, 10, false},
		{`{"image":"x","auto_destroy":true}`, true, 0, false},
		{`{"image":"x","restart":{"policy":"always"}}`, false, 99, true},
		{`{"image":"x","restart":{"policy":"no"}}`, true, 0, false},
		{`{"image":"x","restart":{"policy":"on-failure","max_retries":2}}`, true, 2, false},
	} {
		config, err := machine.ReadConfig([]byte(c.config))
		if err != nil || config.Again(c.failed, c.restarts) != c.want {
			t.Errorf("%+v, %v", c, err)
		}
	}
}

func TestSplit(t *testing.T) {
	t.Parallel()
	for line, want := range map[string][]string{
		``:                       nil,
		`  `:                     nil,
		`echo hello`:             {"echo", "hello"},
		`a  'b c' "d e"`:         {"a", "b c", "d e"},
		`a\ b "" 'x'y"z"`:        {"a b", "", "xyz"},
		`sh -c "echo \"$HOME\""`: {"sh", "-c", `echo "$HOME"`},
		`"\n"`:                   {`\n`},
		"a\tb\nc":                {"a", "b", "c"},
	} {
		got, err := machine.Split(line)
		if err != nil || !cmp.Equal(got, want) {
			t.Errorf("%q: %q, %v", line, got, err)
		}
	}
	if _, err := machine.Split(`echo "half`); !fault.Is(err, fault.Invalid) {
		t.Errorf("half a quote: %v", err)
	}
}

func TestSignalsAndSeconds(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]int{"": 2, "SIGTERM": 15, "term": 15, "9": 9, "SIGNOPE": 0, "0": 0, "64": 0} {
		if got, _ := machine.Signal(name); got != want {
			t.Errorf("signal %q is %d, want %d", name, got, want)
		}
	}
	for text, want := range map[string]string{`300`: "5m0s", `"10s"`: "10s", `"10"`: "10s", `1.5`: "1.5s", `null`: "0s", ``: "0s", `-1`: "!", `"x"`: "!", `1e99`: "!", `{}`: "!", `"NaN"`: "!", `"-5s"`: "!"} {
		got, err := machine.Seconds("t", []byte(text))
		if err != nil {
			if want != "!" {
				t.Errorf("%s: %v", text, err)
			}
			continue
		}
		if got.String() != want {
			t.Errorf("%s is %s, want %s", text, got, want)
		}
	}
}

// FuzzConfig holds that what was taken once is taken again.
func FuzzConfig(f *testing.F) {
	f.Add([]byte(`{"image":"x","guest":{"cpus":2},"env":{"A":"b"},"files":[{"guest_path":"/a","raw_value":"eA=="}]}`))
	f.Add([]byte(`{"image":"x","processes":[{"cmd":["a"]}],"stop_config":{"timeout":"5s"}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		c, err := machine.ReadConfig(raw)
		if err != nil {
			return
		}
		doc, err := c.Document(raw)
		if err != nil {
			t.Skip()
		}
		if _, err := machine.ReadConfig(doc); err != nil && len(doc) < 1<<20 {
			t.Errorf("%s: %v", doc, err)
		}
	})
}
