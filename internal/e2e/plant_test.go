package e2e

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// leaseTerm is as short as it can be, so that lost work comes back soon.
const leaseTerm = 3 * time.Second

// claimerRole is the role of the jobs that are left to HTTP claimers, which
// all go by the name of claimerID.
const (
	claimerRole = "Claimer"
	claimerID   = "claimer"
)

// plant is a whole installation that is about to be harmed.
type plant interface {
	url() string
	bases() map[string]string // SANDBOX_BASE by worker
	database() string
	// hurt kills something with SIGKILL and has it run again. Now and then it
	// only holds something still for too long.
	hurt(r *rand.Rand) (what string, err error)
	// end stops everything in good order and returns all that was logged.
	end() (said string, err error)
}

// roles is a plant whose supervisor is the test: a manager and two workers.
type roles struct {
	data    string
	sock    *os.File
	address string
	order   []string // names of the roles

	mu   sync.Mutex
	live map[string]*process
	said strings.Builder
}

func newRoles(t *testing.T) *roles {
	t.Helper()
	sock, address, err := socket()
	if err != nil {
		t.Fatal(err)
	}
	p := &roles{data: dataFolder(t), sock: sock, address: address, order: []string{"manager", "worker_a", "worker_b"}, live: map[string]*process{}}
	t.Cleanup(func() {
		for _, one := range p.live {
			_ = one.kill()
		}
		_ = sock.Close()
	})
	for _, name := range p.order {
		if err := p.start(name); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.live["manager"].expect("manager serves"); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *roles) url() string { return p.address }

func (p *roles) bases() map[string]string {
	return map[string]string{"worker_a": filepath.Join(p.data, "worker_a"), "worker_b": filepath.Join(p.data, "worker_b")}
}

func (p *roles) database() string { return filepath.Join(p.data, "data", "manager", "aurea.db") }

func (p *roles) start(name string) (err error) {
	var one *process
	if name == "manager" {
		one, err = start([]string{
			"AUREA_DATA=" + filepath.Join(p.data, "data"), "AUREA_LISTEN_FD=3", "AUREA_LEASE_TERM=" + leaseTerm.String(),
			"AUREA_ROLES=" + claimerRole + "=" + claimerID,
		}, p.sock, "manager")
	} else {
		one, err = start([]string{
			"SANDBOX_BASE=" + p.bases()[name], "WORKER_ID=" + name, "MANAGER_URL=" + p.address, "AUREA_DRIVER=fake", "AUREA_CONCURRENCY=4",
		}, nil, "worker")
	}
	if err == nil {
		p.mu.Lock()
		p.live[name] = one
		p.mu.Unlock()
	}
	return err
}

// kill ends roles at the same moment. One that ended by itself is an error.
func (p *roles) kill(names ...string) error {
	errs := make([]error, len(names))
	var all sync.WaitGroup
	for i, name := range names {
		one := p.live[name]
		all.Go(func() {
			select {
			case <-one.ended:
				errs[i] = fmt.Errorf("%s ended by itself (%v):\n%s", name, one.cmd.ProcessState, one.said())
			default:
				errs[i] = one.kill()
			}
		})
	}
	all.Wait()
	for _, name := range names {
		fmt.Fprintf(&p.said, "%s", prefixed(name, p.live[name].said()))
		delete(p.live, name)
	}
	return errors.Join(errs...)
}

func prefixed(name, text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString(name + " | " + line)
	}
	return b.String()
}

// hurt gives each kind of death its share.
func (p *roles) hurt(r *rand.Rand) (string, error) {
	if r.IntN(16) == 0 {
		return p.freeze(p.order[r.IntN(len(p.order))])
	}
	var victims []string
	switch n := r.IntN(10); {
	case n < 4:
		victims = p.order[:1]
	case n < 6:
		victims = p.order[1:2]
	case n < 8:
		victims = p.order[2:]
	default:
		victims = p.order
	}
	err := p.kill(victims...)
	// Mostly back at once, at times only after leases have run out.
	away := time.Duration(r.IntN(300)) * time.Millisecond
	if r.IntN(12) == 0 {
		away = leaseTerm + 500*time.Millisecond
	}
	time.Sleep(away)
	again := slices.Clone(victims)
	r.Shuffle(len(again), func(i, j int) { again[i], again[j] = again[j], again[i] })
	for _, name := range again {
		err = errors.Join(err, p.start(name))
	}
	return fmt.Sprintf("%s, away for %v", strings.Join(victims, "+"), away), err
}

// freeze holds a role still until its leases, or those that it gave, have run
// out, and then lets it go on as if nothing had been: it comes back with work
// that is no longer its own.
func (p *roles) freeze(name string) (string, error) {
	one := p.live[name].cmd.Process
	err := one.Signal(syscall.SIGSTOP)
	time.Sleep(leaseTerm + 1500*time.Millisecond)
	return name + ", which was only frozen", errors.Join(err, one.Signal(syscall.SIGCONT))
}

func (p *roles) end() (string, error) {
	var errs []error
	for _, name := range []string{"worker_a", "worker_b", "manager"} {
		one := p.live[name]
		code, err := one.stop()
		if code != 0 && err == nil {
			err = fmt.Errorf("%s ends with %d", name, code)
		}
		errs = append(errs, err)
		fmt.Fprintf(&p.said, "%s", prefixed(name, one.said()))
		delete(p.live, name)
	}
	if found := left(p.data); len(found) > 0 {
		errs = append(errs, fmt.Errorf("left running:\n%s", strings.Join(found, "\n")))
	}
	return p.said.String(), errors.Join(errs...)
}

// supervised is a plant under `aurea up`, which starts again what is killed;
// only the supervisor itself is started again by the test.
type supervised struct {
	data    string
	port    int
	one     *process
	said    strings.Builder
	between int // kills of children until the supervisor's own turn
}

func newSupervised(t *testing.T) *supervised {
	t.Helper()
	p := &supervised{data: dataFolder(t), port: freePort(t)}
	t.Cleanup(func() {
		if p.one != nil {
			_, _ = p.one.stop()
		}
	})
	if err := p.start(); err != nil {
		t.Fatal(err)
	}
	return p
}

// freePort finds one below those that the kernel gives to outgoing
// connections, so that nobody takes it while the supervisor is dead.
func freePort(t *testing.T) int {
	t.Helper()
	for range 100 {
		port := 12000 + rand.IntN(18000)
		if ln, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			_ = ln.Close()
			return port
		}
	}
	t.Fatal("no free port")
	return 0
}

func (p *supervised) start() (err error) {
	p.one, err = start([]string{"AUREA_LEASE_TERM=" + leaseTerm.String(), "AUREA_ROLES=" + claimerRole + "=" + claimerID},
		nil, "up", "--data", filepath.Join(p.data, "data"), "--driver", "fake", "--port", fmt.Sprint(p.port), "--bridge-port", "0")
	if err != nil {
		return err
	}
	return p.one.expect("Ctrl-C stops everything in order.")
}

func (p *supervised) url() string { return fmt.Sprintf("http://127.0.0.1:%d", p.port) }

func (p *supervised) bases() map[string]string {
	return map[string]string{"worker_default": filepath.Join(p.data, "data", "sandbox")}
}

func (p *supervised) database() string { return filepath.Join(p.data, "data", "manager", "aurea.db") }

func (p *supervised) hurt(r *rand.Rand) (string, error) {
	if p.between++; p.between%4 == 0 {
		// Its children must end by themselves; kill waits for them too, since
		// they hold its output.
		if err := p.one.kill(); err != nil {
			return "up", err
		}
		p.said.WriteString(p.one.said())
		return "up", p.start()
	}
	kids := children(p.one.pid())
	names := []string{"manager", "worker", "bridge"}
	r.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	names = names[:1+r.IntN(2)]
	for _, name := range names {
		if pid := kids[name]; pid > 0 { // else it is being started again
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
				return name, err
			}
		}
	}
	return "up's " + strings.Join(names, "+"), nil
}

func (p *supervised) end() (string, error) {
	code, err := p.one.stop()
	if code != 0 && err == nil {
		err = fmt.Errorf("up ends with %d", code)
	}
	p.said.WriteString(p.one.said())
	p.one = nil
	if found := left(p.data); len(found) > 0 {
		err = errors.Join(err, fmt.Errorf("left running:\n%s", strings.Join(found, "\n")))
	}
	return p.said.String(), err
}

// complaints picks from the logs what a role should never say, and, each sort
// once, what it called an error.
func complaints(said string) (bad, errs []string) {
	message := regexp.MustCompile(`level=ERROR msg=("[^"]*"|\S+)`)
	seen := map[string]bool{}
	for line := range strings.Lines(said) {
		if strings.Contains(line, "panic:") || strings.Contains(line, "DATA RACE") || strings.Contains(line, "fatal error:") {
			bad = append(bad, line)
		}
		if m := message.FindString(line); m != "" && !seen[m] {
			seen[m] = true
			errs = append(errs, line)
		}
	}
	return bad, errs
}
