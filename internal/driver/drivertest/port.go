package drivertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// portChecks are the sentences on ports.
func portChecks() []check {
	return []check{
		{"Dial reaches a port of the sandbox", dials},
		{"Dial to a port at which nobody listens says so", dialClosed},
		{"a connection is closed in one direction at a time", dialHalfClose},
		{"a connection keeps its deadlines", dialDeadlines},
		{"a slow reader holds up its own connection alone", dialSlow},
		{"connections are bounded", dialBound},
		{"a connection ends with the sandbox", dialEnds},
	}
}

// Echo is a Harness.Echo for sandboxes with Python.
func Echo(address string, port uint16) sandbox.ExecSpec {
	const program = `import socket, sys, threading
s = socket.socket(socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET)
s.bind((sys.argv[1], int(sys.argv[2])))
s.listen(300)
print("listening", flush=True)
def serve(c):
    try:
        while True:
            b = c.recv(65536)
            if not b: break
            c.sendall(b)
    except OSError: pass
    c.close()
while True:
    c, _ = s.accept()
    threading.Thread(target=serve, args=(c,), daemon=True).start()`
	return sandbox.ExecSpec{Command: []string{"python3", "-c", program, address, fmt.Sprint(port)}}
}

// echo starts a server in a new sandbox and returns how to reach it.
func (r *rig) echo(address string, port uint16) (sandbox.Box, sandbox.Dialer) {
	r.Helper()
	r.need(r.d.Capabilities().Ports && r.h.Echo != nil, "ports")
	b := r.box()
	d, ok := b.(sandbox.Dialer)
	if !ok {
		r.Fatal("the driver declares ports, and its boxes have none")
	}
	r.serve(b, address, port)
	return b, d
}

func (r *rig) serve(b sandbox.Box, address string, port uint16) sandbox.Process {
	r.Helper()
	spec := r.h.Echo(address, port)
	spec.ID = r.newID()
	p := r.exec(b, spec)
	r.until(p, "listening\n")
	return p
}

func (r *rig) dial(d sandbox.Dialer, port uint16) net.Conn {
	r.Helper()
	c, err := d.Dial(r.ctx, port)
	if err != nil {
		r.Fatalf("dial %d: %v", port, err)
	}
	r.Cleanup(func() { _ = c.Close() })
	if deadline, ok := r.ctx.Deadline(); ok {
		if err := c.SetDeadline(deadline); err != nil {
			r.Fatal(err)
		}
	}
	return c
}

// exchange sends all of data, ends that, and reads what comes back to the end.
func exchange(c net.Conn, data []byte) ([]byte, error) {
	sent := make(chan error, 1)
	go func() {
		_, err := c.Write(data)
		sent <- errors.Join(err, closeWrite(c))
	}()
	back, err := io.ReadAll(c)
	return back, errors.Join(err, <-sent)
}

func closeWrite(c net.Conn) error {
	half, ok := c.(interface{ CloseWrite() error })
	if !ok {
		return errors.New("the connection has no CloseWrite")
	}
	return half.CloseWrite()
}

func dials(r *rig) {
	b, d := r.echo("127.0.0.1", 8080)
	for range 3 {
		c := r.dial(d, 8080)
		for _, text := range []string{"hello", "again"} {
			if _, err := io.WriteString(c, text); err != nil {
				r.Fatal(err)
			}
			back := make([]byte, len(text))
			if _, err := io.ReadFull(c, back); err != nil || string(back) != text {
				r.Fatalf("%q, %v", back, err)
			}
		}
		if c.LocalAddr() == nil || c.RemoteAddr() == nil {
			r.Error("it has no addresses")
		}
		if err := c.Close(); err != nil {
			r.Error(err)
		}
		if _, err := c.Write([]byte("x")); err == nil {
			r.Error("what was closed can be written to")
		}
		if _, err := c.Read(make([]byte, 1)); err == nil {
			r.Error("what was closed can be read from")
		}
	}
	// Not every sandbox has a loopback of the sixth version.
	if r.h.Kernel && r.say(b, "cat /proc/net/if_inet6 2>/dev/null || true") != "" {
		r.serve(b, "::1", 8081)
		if back, err := exchange(r.dial(d, 8081), []byte("six")); err != nil || string(back) != "six" {
			r.Errorf("at ::1: %q, %v", back, err)
		}
	}
	data := bytes.Repeat([]byte("0123456789abcdef"), 1<<18) // 4 MiB
	if back, err := exchange(r.dial(d, 8080), data); err != nil || !bytes.Equal(back, data) {
		r.Errorf("%d bytes of %d came back: %v", len(back), len(data), err)
	}
}

func dialClosed(r *rig) {
	b, d := r.echo("127.0.0.1", 8080)
	for _, port := range []uint16{0, 1, 8081, 65535} {
		_, err := d.Dial(r.ctx, port)
		r.wantCode(fmt.Sprintf("dial %d", port), err, fault.Unavailable, sandbox.CodePortClosed)
	}
	p := r.serve(b, "127.0.0.1", 9000)
	if err := p.Signal(r.ctx, 9, true); err != nil {
		r.Fatal(err)
	}
	r.wait(p)
	r.eventually("the port is closed", func() bool {
		c, err := d.Dial(r.ctx, 9000)
		if err == nil {
			_ = c.Close()
		}
		return fault.CodeOf(err) == sandbox.CodePortClosed
	})
	ended, cancel := context.WithCancelCause(r.ctx)
	cancel(errPatience)
	if _, err := d.Dial(ended, 8080); err == nil {
		r.Error("a ctx that has ended was not heard")
	}
}

func dialHalfClose(r *rig) {
	_, d := r.echo("127.0.0.1", 8080)
	c := r.dial(d, 8080)
	back, err := exchange(c, []byte("all of it"))
	if err != nil || string(back) != "all of it" {
		r.Errorf("%q, %v", back, err)
	}
	if _, err := c.Write([]byte("x")); err == nil {
		r.Error("what was closed can be written to")
	}
	if err := c.Close(); err != nil {
		r.Error(err)
	}
}

func dialDeadlines(r *rig) {
	_, d := r.echo("127.0.0.1", 8080)
	c := r.dial(d, 8080)
	if err := c.SetReadDeadline(time.Now().Add(20 * time.Millisecond)); err != nil {
		r.Fatal(err)
	}
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		r.Errorf("read: %v", err)
	}
	var timeout net.Error
	if _, err := c.Read(make([]byte, 1)); !errors.As(err, &timeout) || !timeout.Timeout() {
		r.Errorf("read again: %v", err)
	}
	if err := c.SetWriteDeadline(time.Unix(1, 0)); err != nil {
		r.Fatal(err)
	}
	if _, err := c.Write([]byte("x")); !errors.Is(err, os.ErrDeadlineExceeded) {
		r.Errorf("write: %v", err)
	}
	if err := c.SetDeadline(time.Time{}); err != nil {
		r.Fatal(err)
	}
	if back, err := exchange(c, []byte("late")); err != nil || string(back) != "late" {
		r.Errorf("%q, %v", back, err)
	}
	// A deadline that comes while somebody waits is heard.
	c = r.dial(d, 8080)
	waited := make(chan error, 1)
	go func() {
		_, err := c.Read(make([]byte, 1))
		waited <- err
	}()
	if err := c.SetReadDeadline(time.Unix(1, 0)); err != nil {
		r.Fatal(err)
	}
	if err := <-waited; !errors.Is(err, os.ErrDeadlineExceeded) {
		r.Errorf("read: %v", err)
	}
}

func dialSlow(r *rig) {
	b, d := r.echo("127.0.0.1", 8080)
	slow := r.dial(d, 8080)
	if err := slow.SetWriteDeadline(time.Now().Add(500 * time.Millisecond)); err != nil {
		r.Fatal(err)
	}
	// More than all buffers on the way hold: it cannot go out while nobody reads.
	n, err := slow.Write(make([]byte, 64<<20))
	if !errors.Is(err, os.ErrDeadlineExceeded) || n == 64<<20 {
		r.Errorf("%d bytes went out: %v", n, err)
	}
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			data := bytes.Repeat([]byte{byte(i)}, 300_000)
			c, err := d.Dial(r.ctx, 8080)
			if err != nil {
				r.Error(err)
				return
			}
			defer func() { _ = c.Close() }()
			if back, err := exchange(c, data); err != nil || !bytes.Equal(back, data) {
				r.Errorf("%d bytes: %v", len(back), err)
			}
		})
	}
	all.Wait()
	r.wantText("a command", r.say(b, "echo runs"), "runs")
	// What it has sent so far comes back when it is read at last.
	if err := slow.SetWriteDeadline(time.Time{}); err != nil {
		r.Fatal(err)
	}
	if back, err := exchange(slow, nil); err != nil || len(back) != n {
		r.Errorf("%d bytes of %d came back at last: %v", len(back), n, err)
	}
}

func dialBound(r *rig) {
	_, d := r.echo("127.0.0.1", 8080)
	var all []net.Conn
	for range sandbox.MaxRelays {
		all = append(all, r.dial(d, 8080))
	}
	_, err := d.Dial(r.ctx, 8080)
	r.wantKind("one more", err, fault.Exhausted)
	for _, c := range all {
		if err := c.Close(); err != nil {
			r.Error(err)
		}
	}
	r.eventually("there is room again", func() bool {
		c, err := d.Dial(r.ctx, 8080)
		if err != nil {
			return false
		}
		return c.Close() == nil
	})
}

func dialEnds(r *rig) {
	b, d := r.echo("127.0.0.1", 8080)
	c := r.dial(d, 8080)
	waited := make(chan error, 1)
	go func() {
		_, err := c.Read(make([]byte, 1))
		waited <- err
	}()
	if err := r.d.Destroy(r.ctx, b.Handle()); err != nil {
		r.Fatal(err)
	}
	if err := <-waited; err == nil {
		r.Error("something was read")
	}
	if err := r.soon("write", func() error {
		for {
			if _, err := c.Write(make([]byte, 1<<20)); err != nil {
				return err
			}
		}
	}); err == nil {
		r.Error("something was written")
	}
	_, err := d.Dial(r.ctx, 8080)
	r.wantKind("dial", err, fault.NotFound, fault.Conflict)
}
