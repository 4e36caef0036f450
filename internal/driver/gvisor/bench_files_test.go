package gvisor_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"testing"

	"github.com/aurea-dev/aurea/internal/driver/drivertest"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// BenchmarkFiles is single files there and back.
func BenchmarkFiles(b *testing.B) {
	d := open(b, stateDir(b))
	defer d.Close()
	made := drivertest.Create(b, d, sandbox.Spec{})
	defer drivertest.Destroy(b, d, made)
	ctx, files := context.Background(), made.(sandbox.Filer)
	for _, size := range []int{1 << 10, 10 << 20} {
		data := make([]byte, size)
		b.Run(fmt.Sprintf("write/%d", size), func(b *testing.B) {
			measure(b, func() {
				if _, err := files.WriteFile(ctx, "/workspace/f", 0, bytes.NewReader(data)); err != nil {
					b.Fatal(err)
				}
			})
		})
		b.Run(fmt.Sprintf("read/%d", size), func(b *testing.B) {
			measure(b, func() {
				if _, err := files.ReadFile(ctx, "/workspace/f", 0, -1, io.Discard); err != nil {
					b.Fatal(err)
				}
			})
		})
	}
	b.Run("stat", func(b *testing.B) {
		measure(b, func() {
			if _, err := files.Stat(ctx, "/workspace/f"); err != nil {
				b.Fatal(err)
			}
		})
	})
}

// BenchmarkDial is a connection to a server in the sandbox, and a round trip
// over one.
func BenchmarkDial(b *testing.B) {
	d := open(b, stateDir(b))
	defer d.Close()
	made := drivertest.Create(b, d, sandbox.Spec{})
	defer drivertest.Destroy(b, d, made)
	ctx := context.Background()
	spec := drivertest.Echo("127.0.0.1", 8080)
	spec.ID = "server"
	p, err := made.Exec(ctx, spec)
	if err != nil {
		b.Fatal(err)
	}
	if _, err := p.Next(ctx); err != nil { // it listens
		b.Fatal(err)
	}
	dialer := made.(sandbox.Dialer)
	trip := func(b *testing.B, c io.ReadWriter) {
		if _, err := c.Write([]byte("ping")); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(c, make([]byte, 4)); err != nil {
			b.Fatal(err)
		}
	}
	b.Run("dial", func(b *testing.B) {
		measure(b, func() {
			c, err := dialer.Dial(ctx, 8080)
			if err != nil {
				b.Fatal(err)
			}
			trip(b, c)
			if err := c.Close(); err != nil {
				b.Fatal(err)
			}
		})
	})
	b.Run("trip", func(b *testing.B) {
		c, err := dialer.Dial(ctx, 8080)
		if err != nil {
			b.Fatal(err)
		}
		defer c.Close()
		measure(b, func() { trip(b, c) })
	})
}
