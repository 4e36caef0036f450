package docker

import (
	"context"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// process is a command, whose end is seen in the light of the sandbox's.
type process struct {
	sandbox.Process
	box *Box

	mu   sync.Mutex
	exit *sandbox.Exit
}

// Wait implements sandbox.Process. A command that ends in a sandbox which ran
// out of memory ends for that, whatever the guest could still say of it.
func (p *process) Wait(ctx context.Context) (sandbox.Exit, error) {
	exit, err := p.Process.Wait(ctx)
	if err != nil {
		return sandbox.Exit{}, err
	}
	if exit.Lost && !p.box.detached.Load() {
		select { // of what the sandbox died is about to be known
		case <-p.box.done:
		case <-p.box.watched:
		case <-ctx.Done():
			return sandbox.Exit{}, fault.New(fault.Unavailable, "wait for the sandbox: %w", context.Cause(ctx))
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.exit == nil {
		if p.box.ranOut() {
			exit.OOM, exit.Lost, exit.Code, exit.Signal = true, false, -1, int(unix.SIGKILL)
		}
		p.exit = &exit
	}
	return *p.exit, nil
}
