package docker_test

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/aurea-dev/aurea/internal/driver/docker"
	"github.com/aurea-dev/aurea/internal/driver/docker/dockertest"
	"github.com/aurea-dev/aurea/internal/driver/drivertest"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

func TestWhatACommandIs(t *testing.T) {
	t.Parallel()
	b := drivertest.Kept(t, opened(t), sandbox.Spec{})
	status := sh(t, b, "cat /proc/self/status")
	for _, want := range []string{
		"CapInh:\t0000000000000000", "CapPrm:\t0000000000000000", "CapEff:\t0000000000000000",
		"CapBnd:\t0000000000000000", "CapAmb:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2",
	} {
		if !strings.Contains(status, want) {
			t.Errorf("a command has not %q:\n%s", want, status)
		}
	}
	for script, want := range map[string]string{
		"whoami; pwd; echo $HOME":                            "sandbox\n/workspace\n/workspace\n",
		"ulimit -c":                                          "0\n",
		"ls /proc/self/fd | tr '\\n' ' '":                    "0 1 2 3 ", // the last is the folder
		"cat /etc/resolv.conf":                               "",
		"hostname 2>/dev/null || cat /etc/hostname":          "sandbox\n",
		"tail -n +3 /proc/net/dev | tr -d ' ' | cut -d: -f1": "lo\n",
		"ls /sys | wc -l":                                    "0\n",
		"getent passwd sandbox | cut -d: -f1,6":              "sandbox:/workspace\n",
		"getent passwd daemon | cut -d: -f1":                 "daemon\n", // the image's own
		"env | sort | cut -d= -f1 | tr '\\n' ' '":            "HOME LANG PATH PWD USER ",
		"python3 -c 'import os; print(os.listdir(\"/proc/1/fd\"))' 2>&1 | grep -c PermissionError": "1\n",
		"ls /.aurea/channel 2>&1 | grep -c denied":                                                 "1\n",
		"cat /.aurea/channel/out 2>&1 | grep -c denied":                                            "1\n",
		"kill -9 1 2>&1 | grep -c permitted":                                                       "1\n",
	} {
		if got := sh(t, b, script); got != want {
			t.Errorf("%s: %q, want %q", script, got, want)
		}
	}
}

func TestWhereACommandWrites(t *testing.T) {
	t.Parallel()
	b := drivertest.Kept(t, opened(t), sandbox.Spec{})
	out := sh(t, b, "for d in / /etc /usr /var /var/tmp /run /dev /.aurea /.aurea/channel /proc/sys/kernel /sys /root /home; do touch $d/x 2>/dev/null && echo $d; done; "+
		"for f in /etc/passwd /etc/hosts /proc/sysrq-trigger /proc/sys/kernel/core_pattern /.aurea/guest; do (echo x > $f) 2>/dev/null && echo $f; done; "+
		"for d in /workspace /tmp /dev/shm; do touch $d/x && echo good; done")
	if out != "good\ngood\ngood\n" {
		t.Errorf("written: %q", out)
	}
	// Nowhere else on any file system that can be written.
	out = sh(t, b, "find / -xdev -writable ! -type l 2>/dev/null | head; awk '$4 ~ /^rw/ {print $2}' /proc/mounts | sort | tr '\\n' ' '")
	t.Log(out)
	if strings.Contains(out, "/etc") {
		t.Errorf("writable: %q", out)
	}
}

func TestNothingRunsAsRoot(t *testing.T) {
	t.Parallel()
	b := drivertest.Kept(t, opened(t), sandbox.Spec{})
	for _, user := range []string{"root", "0", "0:1000", "1000:1610612736", "aurea"} {
		_, err := b.Exec(t.Context(), sandbox.ExecSpec{ID: "x", Command: []string{"true"}, User: user})
		if !fault.Is(err, fault.Denied) {
			t.Errorf("exec as %s: %v, want it denied", user, err)
		}
	}
	exit, out := do(t, b, sandbox.ExecSpec{ID: "n", Command: []string{"id", "-un"}, User: "nobody"})
	if exit.Code != 0 || out != "nobody\n" {
		t.Errorf("exec as nobody: %+v %q", exit, out)
	}
}

func TestEachSandboxHasItsOwnUsers(t *testing.T) {
	t.Parallel()
	d := opened(t)
	one, two := drivertest.Kept(t, d, sandbox.Spec{}), drivertest.Kept(t, d, sandbox.Spec{})
	if a, b := sh(t, one, "id -u"), sh(t, two, "id -u"); a == b || a == "0\n" {
		t.Errorf("two sandboxes run as %q and %q", a, b)
	}
}

func TestOutOfMemoryEndsTheWholeSandbox(t *testing.T) {
	t.Parallel()
	b := drivertest.Kept(t, opened(t), sandbox.Spec{Limits: sandbox.Limits{Memory: 64 << 20}})
	bystander, err := b.Exec(t.Context(), sandbox.ExecSpec{ID: "bystander", Command: []string{"sleep", "1000"}})
	if err != nil {
		t.Fatal(err)
	}
	// The greedy one is a child, and its parent goes on.
	greedy := "import time\nb = bytearray(1 << 28)\nfor i in range(0, len(b), 4096): b[i] = 1"
	parent, err := b.Exec(t.Context(), sandbox.ExecSpec{ID: "parent", Command: []string{"sh", "-c", "python3 -c '" + greedy + "'; sleep 1000"}})
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-b.Done():
	case <-time.After(60 * time.Second):
		t.Fatal("the sandbox lives on")
	}
	for _, p := range []sandbox.Process{parent, bystander} {
		if exit, err := p.Wait(t.Context()); err != nil || !exit.OOM {
			t.Errorf("%s: %+v, %v", p.ID(), exit, err)
		}
	}
}

func TestPausedSandboxes(t *testing.T) {
	t.Parallel()
	d := opened(t)
	b := drivertest.Kept(t, d, sandbox.Spec{})
	if err := b.(sandbox.Pauser).Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Exec(t.Context(), sandbox.ExecSpec{ID: "x", Command: []string{"true"}}); !fault.Is(err, fault.Conflict) {
		t.Errorf("exec in a paused sandbox: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := d.Destroy(ctx, b.Handle()); err != nil {
		t.Errorf("destroy a paused sandbox: %v", err)
	}
}

func TestPausedSandboxIsAdoptedPaused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first := open(t, dir)
	id, err := sandbox.NewID()
	if err != nil {
		t.Fatal(err)
	}
	b, err := first.Create(t.Context(), sandbox.Spec{ID: id}, func(sandbox.Handle) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	if err := b.(sandbox.Pauser).Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	second := open(t, dir)
	defer second.Close()
	defer func() {
		if err := second.Destroy(context.Background(), b.Handle()); err != nil {
			t.Error(err)
		}
	}()
	b, err = second.Recover(t.Context(), b.Handle())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Exec(t.Context(), sandbox.ExecSpec{ID: "x", Command: []string{"true"}}); !fault.Is(err, fault.Conflict) {
		t.Errorf("exec in a paused sandbox: %v", err)
	}
	if err := b.(sandbox.Pauser).Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	if out := sh(t, b, "echo awake"); out != "awake\n" {
		t.Errorf("%q", out)
	}
}

func TestSandboxKilledBehindOurBack(t *testing.T) {
	t.Parallel()
	d := opened(t)
	b := drivertest.Kept(t, d, sandbox.Spec{})
	p, err := b.Exec(t.Context(), sandbox.ExecSpec{ID: "x", Command: []string{"sleep", "1000"}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = engineAPI(t).ContainerKill(t.Context(), containerOf(t, b), client.ContainerKillOptions{Signal: "KILL"})
	if err != nil {
		t.Fatal(err)
	}
	<-b.Done()
	if exit, err := p.Wait(t.Context()); err != nil || !exit.Lost || exit.OOM {
		t.Errorf("%+v, %v", exit, err)
	}
	if _, err := d.Recover(t.Context(), b.Handle()); !fault.Is(err, fault.NotFound) {
		t.Errorf("recover: %v", err)
	}
}

func engineAPI(t *testing.T) *client.Client {
	t.Helper()
	needEngine(t)
	api, err := client.New(client.WithHost(engineHost))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = api.Close() })
	return api
}

// containerOf finds the container by its label.
func containerOf(t *testing.T, b sandbox.Box) string {
	t.Helper()
	list, err := engineAPI(t).ContainerList(t.Context(), client.ContainerListOptions{
		All: true, Filters: client.Filters{}.Add("label", "aurea.sandbox="+b.Handle().ID),
	})
	if err != nil || len(list.Items) != 1 {
		t.Fatalf("%+v, %v", list, err)
	}
	return list.Items[0].ID
}

func TestTheWallAsTheEngineSeesIt(t *testing.T) {
	t.Parallel()
	b := drivertest.Kept(t, opened(t), sandbox.Spec{Limits: sandbox.Limits{Memory: 128 << 20, MilliCPU: 500, Processes: 100, OpenFiles: 100, Disk: 64 << 20}})
	found, err := engineAPI(t).ContainerInspect(t.Context(), containerOf(t, b), client.ContainerInspectOptions{})
	if err != nil {
		t.Fatal(err)
	}
	h := found.Container.HostConfig
	switch {
	case h.Privileged, !h.ReadonlyRootfs, h.NetworkMode != "none", h.PidMode != "", h.AutoRemove, h.PublishAllPorts:
		t.Errorf("%+v", h)
	case h.Memory != 128<<20, h.MemorySwap != 128<<20, h.NanoCPUs != 5e8, *h.PidsLimit != 164:
		t.Errorf("%+v", h.Resources)
	case h.LogConfig.Type != "none", *h.Init, len(h.Devices) > 0, len(h.Binds) > 0, h.RestartPolicy.Name != container.RestartPolicyDisabled:
		t.Errorf("%+v", h)
	}
	for _, m := range found.Container.Mounts {
		if m.RW && m.Type == "bind" {
			t.Errorf("a folder of the host can be written: %+v", m)
		}
		if strings.Contains(m.Source, ".sock") {
			t.Errorf("a socket is mounted: %+v", m)
		}
	}
	if out := sh(t, b, "ulimit -n; ulimit -u 2>/dev/null; df -k /workspace /tmp /dev/shm | awk 'NR>1 {s+=$2} END {print s}'"); !strings.HasPrefix(out, "100\n") || !strings.HasSuffix(out, "65536\n") {
		t.Errorf("%q", out)
	}
}

func TestWorkersThatShareAnEngine(t *testing.T) {
	t.Parallel()
	one, two := opened(t), opened(t)
	b := drivertest.Kept(t, one, sandbox.Spec{})
	if left, err := two.List(t.Context()); err != nil || len(left) != 0 {
		t.Errorf("another worker's sandbox is listed: %v, %v", left, err)
	}
	if err := two.Destroy(t.Context(), b.Handle()); err != nil {
		t.Error(err)
	}
	if out := sh(t, b, "echo here"); out != "here\n" {
		t.Error("another worker destroyed it")
	}
}

func TestContainerWithoutItsFolderIsSwept(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := open(t, dir)
	defer d.Close()
	id, err := sandbox.NewID()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Create(t.Context(), sandbox.Spec{ID: id}, func(sandbox.Handle) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(dir + "/box/" + id); err != nil {
		t.Fatal(err)
	}
	left, err := d.List(t.Context())
	if err != nil || len(left) != 1 || left[0].ID != id {
		t.Fatalf("%v, %v", left, err)
	}
	if err := d.Destroy(t.Context(), left[0]); err != nil {
		t.Fatal(err)
	}
	if left, err := d.List(t.Context()); err != nil || len(left) != 0 {
		t.Errorf("%v, %v", left, err)
	}
}

func TestImages(t *testing.T) {
	t.Parallel()
	d := opened(t)
	made, err := engineAPI(t).ContainerCreate(t.Context(), client.ContainerCreateOptions{
		Config:     &container.Config{Image: dockertest.Image, Cmd: []string{"true"}},
		HostConfig: &container.HostConfig{NetworkMode: "none"},
	})
	if err != nil {
		t.Fatal(err)
	}
	_, err = engineAPI(t).ContainerCommit(t.Context(), made.ID, client.ContainerCommitOptions{
		Reference: "aurea-volumes:latest", Changes: []string{"VOLUME /data", "HEALTHCHECK CMD true", "ENV FROM_IMAGE=yes"},
	})
	if err != nil {
		t.Fatal(err)
	}
	_, err = engineAPI(t).ContainerCommit(t.Context(), made.ID, client.ContainerCommitOptions{
		Reference: "aurea-hostile:latest", Changes: []string{"ENV FROM_IMAGE=yes", "USER nobody", `ENTRYPOINT ["false"]`, "WORKDIR /nowhere", "HEALTHCHECK --interval=1s CMD true"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := engineAPI(t).ContainerRemove(t.Context(), made.ID, client.ContainerRemoveOptions{}); err != nil {
		t.Fatal(err)
	}
	for name, kind := range map[string]fault.Kind{
		"aurea-volumes:latest":    fault.Invalid,
		"nothing-of-the-sort:1":   fault.NotFound,
		"../containers/json?x":    fault.Invalid,
		"a/../../containers/json": fault.Invalid,
		"-rf":                     fault.Invalid,
	} {
		_, err := d.Create(t.Context(), sandbox.Spec{ID: "image", Image: name}, func(sandbox.Handle) error { return nil })
		if !fault.Is(err, kind) {
			t.Errorf("%s: %v, want %v", name, err, kind)
		}
	}
	b := drivertest.Kept(t, d, sandbox.Spec{Image: "aurea-hostile:latest"})
	if out := sh(t, b, "echo $FROM_IMAGE; whoami; pwd"); out != "yes\nsandbox\n/workspace\n" {
		t.Errorf("%q", out)
	}
}

func TestEnginesThatWillNotDo(t *testing.T) {
	t.Parallel()
	needEngine(t)
	for host, kind := range map[string]fault.Kind{
		"":                       fault.Invalid,
		"ssh://somewhere":        fault.Invalid,
		"tcp://192.0.2.1:2375":   fault.Invalid,
		"tcp://engine:2375":      fault.Invalid,
		"unix:///nowhere/at.all": fault.Unavailable,
	} {
		c := config(t, t.TempDir())
		c.Host = host
		if _, err := docker.New(t.Context(), c); !fault.Is(err, kind) {
			t.Errorf("%q: %v, want %v", host, err, kind)
		}
	}
	c := config(t, t.TempDir())
	c.Runtime = "unheard-of"
	if _, err := docker.New(t.Context(), c); !fault.Is(err, fault.Unavailable) {
		t.Errorf("%v", err)
	}
}

func TestEngineThatMapsUsers(t *testing.T) {
	t.Parallel()
	needEngine(t)
	e, err := dockertest.StartMapped(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Stop(); err != nil {
			t.Error(err)
		}
	})
	c := config(t, t.TempDir())
	c.Host = e.Host
	d, err := docker.New(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	b := drivertest.Kept(t, d, sandbox.Spec{Limits: sandbox.Limits{Processes: 64}})
	out := sh(t, b, "awk '{print $1, $2, $3}' /proc/self/uid_map; id -un; touch made && echo made; kill -9 1 2>&1 | grep -c permitted; ls /.aurea/channel 2>&1 | grep -c denied")
	if out != "0 300000 65536\nsandbox\nmade\n1\n1\n" {
		t.Errorf("%q", out)
	}
	p, err := b.Exec(t.Context(), sandbox.ExecSpec{ID: "bomb", Command: []string{"python3", "-c", bomb}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Next(t.Context()); err != nil {
		t.Fatal(err)
	}
	gone(t, b, p)
}
