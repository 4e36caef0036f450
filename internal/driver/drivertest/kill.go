package drivertest

import (
	"context"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// killChecks are the sentences on the end of many sandboxes at once.
func killChecks() []check {
	return []check{
		{"many sandboxes are killed at once, and no others", killMany},
		{"a paused sandbox is killed too", killPaused},
		{"sandboxes that nobody has adopted are killed", killUnadopted},
		{"a sandbox that is being made is not finished when all are killed", killMaking},
	}
}

// killer is the driver's power to kill many at once.
func (r *rig) killer(d sandbox.Driver) sandbox.Killer {
	r.Helper()
	k, ok := d.(sandbox.Killer)
	if !ok {
		r.Skip("the driver kills one sandbox after the other")
	}
	return k
}

func (r *rig) dead(b sandbox.Box) {
	r.Helper()
	select {
	case <-b.Done():
	case <-r.ctx.Done():
		r.Fatal("the sandbox is not dead")
	}
}

func killMany(r *rig) {
	k := r.killer(r.d)
	var boxes []sandbox.Box
	var procs []sandbox.Process
	ids := []string{r.newID()} // nobody's
	for range 3 {
		b := r.box()
		boxes, ids = append(boxes, b), append(ids, b.Handle().ID)
		p := r.exec(b, r.sh("echo up; sleep 600"))
		r.until(p, "up\n")
		procs = append(procs, p)
	}
	spared := r.box()
	for range 2 { // it is idempotent
		if err := k.KillAll(r.ctx, ids); err != nil {
			r.Fatalf("kill: %v", err)
		}
	}
	for i, b := range boxes {
		r.dead(b)
		if exit := r.wait(procs[i]); !exit.Lost && exit.Signal != 9 {
			r.Errorf("a command of a killed sandbox ended with %+v", exit)
		}
		if !r.listed(b.Handle().ID) {
			r.Error("a killed sandbox is not listed any more: it was destroyed")
		}
		_, err := b.Exec(r.ctx, r.sh("true"))
		r.wantKind("an exec in a killed sandbox", err, fault.Conflict, fault.NotFound, fault.Unavailable)
	}
	r.say(spared, "echo alive")
}

func killPaused(r *rig) {
	r.need(r.d.Capabilities().Pause, "pause")
	k := r.killer(r.d)
	b := r.box()
	r.pause(b)
	if err := k.KillAll(r.ctx, []string{b.Handle().ID}); err != nil {
		r.Fatalf("kill: %v", err)
	}
	r.dead(b)
}

func killUnadopted(r *rig) {
	r.need(r.d.Capabilities().Recover, "recover")
	dir := folder(r.T)
	first := r.h.Open(r.T, dir)
	r.killer(first)
	b, err := first.Create(r.ctx, r.spec(), noReport)
	if err != nil {
		r.Fatalf("create: %v", err)
	}
	h := b.Handle()
	if err := first.Close(); err != nil {
		r.Fatalf("close: %v", err)
	}
	next := r.h.Open(r.T, dir)
	defer closeEmpty(r.T, next)
	defer func() {
		ctx, cancel := context.WithTimeoutCause(context.Background(), patience, errPatience)
		defer cancel()
		if err := next.Destroy(ctx, h); err != nil {
			r.Errorf("destroy: %v", err)
		}
	}()
	if err := r.killer(next).KillAll(r.ctx, nil); err != nil {
		r.Fatalf("kill: %v", err)
	}
	_, err = next.Recover(r.ctx, h)
	r.wantKind("Recover of a killed sandbox", err, fault.NotFound)
}

func killMaking(r *rig) {
	dir := folder(r.T)
	d := r.h.Open(r.T, dir)
	k := r.killer(d)
	defer closeEmpty(r.T, d)
	reported, killed := make(chan sandbox.Handle, 1), make(chan struct{})
	made := make(chan error, 1)
	go func() {
		b, err := d.Create(r.ctx, r.spec(), func(h sandbox.Handle) error {
			reported <- h
			<-killed
			return nil
		})
		if err == nil {
			<-b.Done() // where it was made all the same, it must be dead
		}
		made <- err
	}()
	h := <-reported
	go func() { // it waits for the making to end, which waits for the report
		if err := k.KillAll(r.ctx, nil); err != nil {
			r.Errorf("kill: %v", err)
		}
		made <- nil
	}()
	close(killed)
	for range 2 {
		select {
		case <-made:
		case <-r.ctx.Done():
			r.Fatal("neither made nor killed")
		}
	}
	if err := d.Destroy(r.ctx, h); err != nil {
		r.Errorf("destroy: %v", err)
	}
}
