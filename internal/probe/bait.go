package probe

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
)

// bait is what stands on the host for the probe to reach: a file, a listener
// on TCP, one on an abstract socket. All of it is really there.
type bait struct {
	mark      string
	file      string
	listeners []net.Listener
	hosts     []string
	abstract  string
	calls     atomic.Int64
	serving   sync.WaitGroup
}

func setBait(folder string) (*bait, error) {
	b := &bait{mark: newMark()}
	f, err := os.CreateTemp(folder, "probe-canary-")
	if err != nil {
		return nil, fmt.Errorf("put a file for the probe: %w", err)
	}
	// Anybody may read it: only the wall keeps it from the sandbox.
	b.file, err = filepath.Abs(f.Name())
	if err == nil {
		_, err = f.WriteString(b.mark)
	}
	if err == nil {
		err = f.Chmod(0o644)
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = b.listen()
	}
	if err != nil {
		_ = os.Remove(f.Name())
		b.remove()
		return nil, fmt.Errorf("put a file for the probe: %w", err)
	}
	return b, nil
}

// listen opens a socket on loopback and, where the host has one, on the address
// by which others know it; and an abstract one. The listeners say nothing.
func (b *bait) listen() error {
	addresses := []string{"127.0.0.1:0"}
	if ip := ownAddress(); ip != "" {
		addresses = append(addresses, ip+":0")
	}
	for _, address := range addresses {
		l, err := net.Listen("tcp4", address) //nolint:noctx // it waits for nothing
		if err != nil {
			return err
		}
		b.listeners = append(b.listeners, l)
		b.hosts = append(b.hosts, l.Addr().String())
	}
	l, err := net.Listen("unix", "@"+b.mark) //nolint:noctx // it waits for nothing
	if err != nil {
		return err
	}
	b.listeners, b.abstract = append(b.listeners, l), b.mark
	for _, l := range b.listeners {
		b.serving.Go(func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				// Others of the host may knock by chance at a port, so only the
				// abstract name, which nobody else knows, counts as a call.
				if l.Addr().Network() == "unix" {
					b.calls.Add(1)
				}
				_ = c.Close()
			}
		})
	}
	return nil
}

// ownAddress is the host's first address that is not its loopback.
func ownAddress() string {
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return ""
	}
	for _, a := range addresses {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil && !n.IP.IsLoopback() && !n.IP.IsLinkLocalUnicast() {
			return n.IP.String()
		}
	}
	return ""
}

func (b *bait) touched() bool { return b.calls.Load() > 0 }

// arguments is what the probe is told of the host.
func (b *bait) arguments() []string {
	args := []string{"mark=" + b.mark, "canary=" + b.file, "abstract=" + b.abstract}
	for _, host := range b.hosts {
		args = append(args, "host="+host)
	}
	return args
}

func (b *bait) remove() {
	_ = os.Remove(b.file)
	for _, l := range b.listeners {
		_ = l.Close()
	}
	b.serving.Wait()
}
