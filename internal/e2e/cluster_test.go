package e2e

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/aurea-dev/aurea/internal/store/postgres/pgtest"
)

// cluster is a plant of two managers over one PostgreSQL database and three
// workers that know both. Every connection goes through a proxy that can cut
// it: those of the managers to the database, those of the workers to the
// managers, and those of the users, who come to either manager by one address.
type cluster struct {
	data     string
	address  string // of the database
	socks    map[string]*os.File
	door     *pgtest.Proxy            // of the users
	proxies  map[string]*pgtest.Proxy // of the database, by manager; of each manager
	managers []string
	workers  []string

	mu   sync.Mutex
	live map[string]*process
	said strings.Builder
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	needPostgres(t)
	address, err := bases.server.Fresh(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	p := &cluster{
		data: dataFolder(t), address: address, socks: map[string]*os.File{}, proxies: map[string]*pgtest.Proxy{}, live: map[string]*process{},
		managers: []string{"manager_a", "manager_b"}, workers: []string{"worker_a", "worker_b", "worker_c"},
	}
	t.Cleanup(p.close)
	if err := p.build(); err != nil {
		t.Fatal(err)
	}
	for _, name := range p.all() {
		if err := p.start(name); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range p.managers {
		if err := p.live[name].expect("manager serves"); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

func (p *cluster) all() []string { return append(slices.Clone(p.managers), p.workers...) }

// build opens the sockets of the managers and the proxies before everything.
func (p *cluster) build() error {
	var targets []string
	for _, name := range p.managers {
		sock, url, err := socket()
		if err != nil {
			return err
		}
		p.socks[name] = sock
		at := strings.TrimPrefix(url, "http://")
		targets = append(targets, at)
		if p.proxies[name], err = pgtest.NewProxy("tcp", at); err != nil {
			return err
		}
		if p.proxies[name+" to the database"], err = pgtest.NewProxy("unix", bases.server.Socket()); err != nil {
			return err
		}
	}
	var err error
	p.door, err = pgtest.NewProxy("tcp", targets...)
	p.proxies["the users' door"] = p.door
	return err
}

func (p *cluster) close() {
	for _, one := range p.live {
		_ = one.kill()
	}
	for _, proxy := range p.proxies {
		_ = proxy.Close()
	}
	for _, sock := range p.socks {
		_ = sock.Close()
	}
}

func (p *cluster) url() string { return "http://" + p.door.Address() }

func (p *cluster) database() string { return "" }

func (p *cluster) bases() map[string]string {
	folders := map[string]string{}
	for _, name := range p.workers {
		folders[name] = filepath.Join(p.data, name)
	}
	return folders
}

func (p *cluster) start(name string) error {
	var one *process
	var err error
	if sock := p.socks[name]; sock != nil {
		var database string
		if database, err = p.proxies[name+" to the database"].URL(p.address); err != nil {
			return err
		}
		one, err = start([]string{
			"AUREA_DATA=" + filepath.Join(p.data, name), "AUREA_LISTEN_FD=3", "AUREA_LEASE_TERM=" + leaseTerm.String(),
			"AUREA_ROLES=" + claimerRole + "=" + claimerID, "DATABASE_URL=" + database,
		}, sock, "manager")
	} else {
		var urls []string
		for _, m := range p.managers {
			urls = append(urls, "http://"+p.proxies[m].Address())
		}
		one, err = start([]string{
			"SANDBOX_BASE=" + p.bases()[name], "WORKER_ID=" + name, "MANAGER_URL=" + strings.Join(urls, ","), "AUREA_DRIVER=fake", "AUREA_CONCURRENCY=4",
		}, nil, "worker")
	}
	if err == nil {
		p.mu.Lock()
		p.live[name] = one
		p.mu.Unlock()
	}
	return err
}

// hurt kills one of the five, or both managers, or cuts connections, or holds
// one still.
func (p *cluster) hurt(r *rand.Rand) (string, error) {
	switch n := r.IntN(16); {
	case n < 6:
		names := slices.Sorted(func(yield func(string) bool) {
			for name := range p.proxies {
				if !yield(name) {
					return
				}
			}
		})
		name := names[r.IntN(len(names))]
		p.proxies[name].Cut()
		return "cut " + name, nil
	case n == 6:
		return p.freeze(p.all()[r.IntN(5)])
	case n == 7:
		return p.murder(r, p.managers...)
	default:
		return p.murder(r, p.all()[r.IntN(5)])
	}
}

func (p *cluster) murder(r *rand.Rand, victims ...string) (string, error) {
	var errs []error
	for _, name := range victims {
		one := p.live[name]
		select {
		case <-one.ended:
			errs = append(errs, fmt.Errorf("%s ended by itself (%v):\n%s", name, one.cmd.ProcessState, one.said()))
		default:
			errs = append(errs, one.kill())
		}
		p.said.WriteString(prefixed(name, one.said()))
		delete(p.live, name)
	}
	away := time.Duration(r.IntN(300)) * time.Millisecond
	if r.IntN(8) == 0 {
		away = leaseTerm + 500*time.Millisecond
	}
	time.Sleep(away) // the others go on without them, at times for longer than a lease
	for _, name := range victims {
		errs = append(errs, p.start(name))
	}
	return fmt.Sprintf("%s, away for %v", strings.Join(victims, "+"), away), errors.Join(errs...)
}

// freeze holds a role still until what it led, or leased, is another's.
func (p *cluster) freeze(name string) (string, error) {
	one := p.live[name].cmd.Process
	err := one.Signal(syscall.SIGSTOP)
	time.Sleep(leaseTerm + 4*time.Second) // longer than a lease and than a leader's term
	return name + ", which was only frozen", errors.Join(err, one.Signal(syscall.SIGCONT))
}

func (p *cluster) end() (string, error) {
	var errs []error
	for _, name := range append(slices.Clone(p.workers), p.managers...) {
		one := p.live[name]
		code, err := one.stop()
		if code != 0 && err == nil {
			err = fmt.Errorf("%s ends with %d", name, code)
		}
		errs = append(errs, err)
		p.said.WriteString(prefixed(name, one.said()))
		delete(p.live, name)
	}
	if found := left(p.data); len(found) > 0 {
		errs = append(errs, fmt.Errorf("left running:\n%s", strings.Join(found, "\n")))
	}
	errs = append(errs, oneLeader(p.said.String()))
	return p.said.String(), errors.Join(errs...)
}

// oneLeader demands that each fence was one manager's, and at least one led. A
// manager that lost sight of the database for a moment says its fence again.
func oneLeader(said string) error {
	leads := regexp.MustCompile(`(?m)^(\w+) \|.*msg="this manager leads" fence=(\d+)`)
	of := map[string]string{}
	for _, m := range leads.FindAllStringSubmatch(said, -1) {
		manager, fence := m[1], m[2]
		if other := of[fence]; other != "" && other != manager {
			return fmt.Errorf("the fence %s is that of %s and of %s", fence, other, manager)
		}
		of[fence] = manager
	}
	if len(of) == 0 {
		return errors.New("nobody ever led")
	}
	return nil
}

// TestCrashCluster kills any of two managers and three workers, and cuts any
// connection, at random moments.
func TestCrashCluster(t *testing.T) {
	t.Parallel()
	crash(t, newCluster(t), number(t, "CRASHES", 12), time.Second)
}
