//go:build !race

package deploytest

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aurea-dev/aurea/internal/driver/docker/dockertest"
)

// testPackage installs the package on a machine with a real systemd, starts the
// service, upgrades it under a running job, and removes it.
func testPackage(t *testing.T, root string, engine *dockertest.Engine) {
	debs := packages(t, root)
	m := boot(t, engine)
	m.copyIn(debs[0], "/root/old.deb")
	m.copyIn(debs[1], "/root/new.deb")
	m.do("dpkg", "--install", "/root/old.deb")
	m.do("systemctl", "enable", "--now", "aurea.service")
	m.awaitServed()
	if got := m.do("sh", "-c", `for p in $(pgrep -f 'aurea (manager|bridge)'); do stat -c %U /proc/$p; done`); strings.TrimSpace(got) != "aurea\naurea" {
		t.Errorf("manager and bridge run as %q", got)
	}

	id := m.submit(`{"action":"exec","command":["sh","-c","echo begun; sleep 15; echo done"]}`)
	m.await(id, "IN_PROGRESS")
	m.do("dpkg", "--install", "/root/new.deb")
	m.awaitServed()
	m.await(id, "COMPLETED")
	if said := m.do("aurea", "jobs", "logs", id); said != "begun\ndone\n" {
		t.Errorf("the job that went through an upgrade said %q", said)
	}
	if job := m.job(id); job.Attempt != 1 {
		t.Errorf("the job that went through an upgrade took %d tries", job.Attempt)
	}

	m.do("dpkg", "--purge", "aurea")
	if left := m.do("sh", "-c", "pgrep -l aurea || true; ls -d /etc/aurea /usr/bin/aurea /lib/systemd/system/aurea* 2>/dev/null || true"); left != "" {
		t.Errorf("the package left behind: %s", left)
	}
	m.do("test", "-d", "/var/lib/aurea/manager")
}

// packages makes two packages that differ in their version alone.
func packages(t *testing.T, root string) [2]string {
	t.Helper()
	var debs [2]string
	for i, version := range []string{"0.0.1", "0.0.2"} {
		out, err := exec.CommandContext(t.Context(), filepath.Join(root, "scripts", "package"), version, t.TempDir()).CombinedOutput()
		if err != nil {
			t.Fatalf("make a package: %v: %s", err, out)
		}
		lines := strings.Fields(string(out))
		debs[i] = strings.Trim(lines[len(lines)-1], "'.")
	}
	return debs
}

// machine is a container that has a systemd as its first process.
type machine struct {
	t    *testing.T
	host string
	id   string
}

func boot(t *testing.T, engine *dockertest.Engine) *machine {
	t.Helper()
	m := &machine{t: t, host: engine.Host}
	// The groups of the machine below, since systemd and the worker make more.
	m.id = strings.TrimSpace(m.docker("run", "--detach", "--network", "none", "--cap-add", "SYS_ADMIN", "--cap-add", "SYS_PTRACE",
		"--security-opt", "seccomp=unconfined", "--security-opt", "apparmor=unconfined", "--tmpfs", "/run", "--tmpfs", "/tmp",
		"--volume", "/sys/fs/cgroup:/sys/fs/cgroup:rw", dockertest.WorkerBase, "/sbin/init"))
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(m.try("journalctl", "--no-pager", "--lines", "60"))
		}
		m.command(context.Background(), "rm", "--force", m.id).Run() //nolint:errcheck // the engine ends next
	})
	m.until("the machine to boot", func() bool {
		state := m.try("systemctl", "is-system-running")
		return strings.Contains(state, "running") || strings.Contains(state, "degraded")
	})
	return m
}

func (m *machine) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "docker", args...)
	cmd.Env = append(os.Environ(), "DOCKER_HOST="+m.host)
	return cmd
}

func (m *machine) docker(args ...string) string {
	m.t.Helper()
	var said strings.Builder
	cmd := m.command(m.t.Context(), args...)
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		m.t.Fatalf("docker %s: %v\n%s%s", strings.Join(args, " "), err, out, said.String())
	}
	return string(out)
}

func (m *machine) copyIn(from, to string) { m.t.Helper(); m.docker("cp", from, m.id+":"+to) }

// do runs a command on the machine.
func (m *machine) do(args ...string) string {
	m.t.Helper()
	return m.docker(append([]string{"exec", m.id}, args...)...)
}

// try runs a command that may fail.
func (m *machine) try(args ...string) string {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	out, err := m.command(ctx, append([]string{"exec", m.id}, args...)...).CombinedOutput()
	if err != nil && len(out) == 0 {
		return err.Error()
	}
	return string(out)
}

// until looks again and again.
func (m *machine) until(what string, done func() bool) {
	m.t.Helper()
	const patience, pause = 2 * time.Minute, 200 * time.Millisecond
	for deadline := time.Now().Add(patience); ; time.Sleep(pause) {
		if done() {
			return
		}
		if time.Now().After(deadline) {
			m.t.Fatalf("waited in vain for %s", what)
		}
	}
}

func (m *machine) awaitServed() {
	m.t.Helper()
	m.until("a worker whose isolation is proved", func() bool {
		return strings.Contains(m.try("aurea", "health"), "drivers: gvisor")
	})
}

func (m *machine) submit(payload string) string {
	m.t.Helper()
	said := m.do("curl", "-s", "-X", "POST", "http://127.0.0.1:9000/mcp/command", "-H", "Content-Type: application/json",
		"-d", `{"project_id":1,"title":"Upgrade","tasks":[{"role":"Employee","payload":`+payload+`}]}`)
	var answer struct {
		JobIDs []string `json:"job_ids"`
	}
	if err := json.Unmarshal([]byte(said), &answer); err != nil || len(answer.JobIDs) != 1 {
		m.t.Fatalf("the bridge answers %s", said)
	}
	return answer.JobIDs[0]
}

type jobSeen struct {
	Status  string `json:"status"`
	Attempt int    `json:"attempt"`
}

func (m *machine) job(id string) (j jobSeen) {
	m.t.Helper()
	if err := json.Unmarshal([]byte(m.do("aurea", "jobs", "show", id, "--json")), &j); err != nil {
		m.t.Fatal(err)
	}
	return j
}

func (m *machine) await(id, status string) {
	m.t.Helper()
	m.until("the job to be "+status, func() bool {
		got := m.job(id).Status
		if got == "FAILED" {
			m.t.Fatal("the job failed")
		}
		return got == status
	})
}
