package drivertest

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// limitChecks are the sentences on limits and networks.
func limitChecks() []check {
	return []check{
		{"a limit that is not declared is refused before any side effect", undeclaredLimit},
		{"a limit that is declared is enforced as asked", declaredLimit},
		{"a network that is not declared is refused before any side effect", undeclaredNetwork},
		{"no network is the default and is enforced", noNetwork},
		{"running out of memory ends every process of the sandbox by that", sharedOOM},
		{"a disk limit holds", diskLimit},
		{"a limit on processes refuses more and hurts nobody", processLimit},
		{"a limit on open files holds and cannot be raised", openFilesLimit},
		{"what one sandbox uses up another still has", neighbours},
		{"Usage says what it can measure", usage},
		{"the bytes of files that were written are known", written},
		{"processor time is measured while it is used", cpuTime},
	}
}

// oneLimit is one limit, whether it is declared, and a modest amount of it.
type oneLimit struct {
	name     string
	declared bool
	limits   sandbox.Limits
}

func eachLimit(c sandbox.Capabilities) []oneLimit {
	return []oneLimit{
		{"cpu", c.CPU, sandbox.Limits{MilliCPU: 500}},
		{"memory", c.Memory, sandbox.Limits{Memory: 256 << 20}},
		{"processes", c.Processes, sandbox.Limits{Processes: 64}},
		{"disk", c.Disk, sandbox.Limits{Disk: 64 << 20}},
		{"open files", c.OpenFiles, sandbox.Limits{OpenFiles: 256}},
		{"cpu time", c.CPUTime, sandbox.Limits{CPUTime: 20 * time.Second}},
	}
}

// refused fails unless Create refuses the spec with the code and does nothing.
func (r *rig) refused(spec sandbox.Spec, code string) {
	r.Helper()
	_, err := r.d.Create(r.ctx, spec, func(h sandbox.Handle) error {
		r.Error("a handle was reported for what must be refused")
		return r.sweep(h)
	})
	r.wantKind("create", err, fault.Invalid)
	r.wantText("code", fault.CodeOf(err), code)
	if r.listed(spec.ID) {
		r.Error("what was refused is listed")
	}
}

func undeclaredLimit(r *rig) {
	for _, l := range eachLimit(r.d.Capabilities()) {
		if l.declared {
			continue
		}
		spec := r.spec()
		spec.Limits = l.limits
		r.refused(spec, "limit_unenforceable")
	}
}

func declaredLimit(r *rig) {
	for _, l := range eachLimit(r.d.Capabilities()) {
		if !l.declared {
			continue
		}
		spec := r.spec()
		spec.Limits = l.limits
		b := r.create(spec)
		if err := l.limits.Hold(b.Enforced()); err != nil {
			r.Errorf("%s: %v", l.name, err)
		}
		r.say(b, "true")
	}
}

func undeclaredNetwork(r *rig) {
	all := []sandbox.Network{sandbox.NetworkNone, sandbox.NetworkController, sandbox.NetworkAllowlist, sandbox.NetworkFull}
	for _, network := range all {
		if slices.Contains(r.d.Capabilities().Networks, network) {
			continue
		}
		spec := r.spec()
		spec.Network = network
		r.refused(spec, "network_unenforceable")
	}
}

func noNetwork(r *rig) {
	if !slices.Contains(r.d.Capabilities().Networks, sandbox.NetworkNone) {
		r.Error("the driver cannot do without a network, so nothing may run in it by default")
	}
}

func sharedOOM(r *rig) {
	r.need(r.d.Capabilities().Memory && r.h.OOM != nil, "a memory limit, or its harness has no program for it")
	const limit = 128 << 20
	spec := r.spec()
	spec.Limits.Memory = limit
	b := r.create(spec)
	bystander := r.exec(b, r.sh("echo up; sleep 1000"))
	r.until(bystander, "up\n")
	greedy := r.h.OOM(limit)
	greedy.ID = r.newID()
	p := r.exec(b, greedy)
	if exit := r.wait(p); !exit.OOM {
		r.Errorf("the greedy one ended with %+v", exit)
	}
	if exit := r.wait(bystander); !exit.OOM {
		r.Errorf("the bystander ended with %+v", exit)
	}
	select {
	case <-b.Done():
	case <-r.ctx.Done():
		r.Error("the sandbox goes on")
	}
	if u, err := b.Usage(r.ctx); err == nil && u.PeakMemory > limit+limit/8 {
		r.Errorf("%d bytes were used under a limit of %d", u.PeakMemory, limit)
	}
}

func diskLimit(r *rig) {
	r.need(r.d.Capabilities().Disk, "a disk limit")
	const limit = 8 << 20
	spec := r.spec()
	spec.Limits.Disk = limit
	b := r.create(spec)
	exit, _ := r.run(b, r.sh("head -c 33554432 /dev/zero > big; exit 0"))
	if exit.Lost || exit.Code != 0 {
		r.Errorf("exit %+v: a full disk must not end the sandbox", exit)
	}
	var packed bytes.Buffer
	if err := b.Get(r.ctx, "/workspace/big", &packed); err == nil && packed.Len() > 2*limit {
		r.Errorf("%d bytes were written under a limit of %d", packed.Len(), limit)
	}
}

func processLimit(r *rig) {
	r.need(r.d.Capabilities().Processes && r.h.Kernel, "a limit on processes, or its harness has no kernel")
	const limit, tried = 16, 64
	spec := r.spec()
	spec.Limits.Processes = limit
	b := r.create(spec)
	crowd := fmt.Sprintf("i=0; while [ $i -lt %d ]; do i=$((i+1)); sleep 1000 >/dev/null 2>&1 & echo $i; done; echo all", tried)
	p := r.exec(b, r.sh(crowd))
	out := r.collect(p, sandbox.Offsets{})
	r.wait(p)
	if got := strings.Count(out.stdout, "\n"); got > limit || got == 0 || strings.Contains(out.stdout, "all") {
		r.Errorf("%d processes were started under a limit of %d", got, limit)
	}
	// The crowd can still be ended, and then there is room again.
	if err := p.Signal(r.ctx, 9, true); err != nil {
		r.Fatalf("end the crowd: %v", err)
	}
	r.eventually("there is room again", func() bool {
		again, err := b.Exec(r.ctx, r.sh("exit 0"))
		return err == nil && r.wait(again).Code == 0
	})
}

func openFilesLimit(r *rig) {
	r.need(r.d.Capabilities().OpenFiles && r.h.Kernel, "a limit on open files, or its harness has no kernel")
	const limit = 100
	spec := r.spec()
	spec.Limits.OpenFiles = limit
	b := r.create(spec)
	r.wantText("the limit", r.say(b, "ulimit -Sn; ulimit -Hn"), "100\n100")
	if exit, out := r.run(b, r.sh("ulimit -n 5000")); exit.Code == 0 {
		r.Errorf("it was raised: %q", out)
	}
}

// neighbours has one sandbox use up all that it has while another works.
func neighbours(r *rig) {
	c := r.d.Capabilities()
	r.need(c.Disk && c.Processes && r.h.Kernel, "limits on disk and processes, or its harness has no kernel")
	spec, other := r.spec(), r.spec()
	spec.Limits = sandbox.Limits{Disk: 8 << 20, Processes: 16}
	other.Limits = spec.Limits
	greedy, neighbour := r.create(spec), r.create(other)
	p := r.exec(greedy, r.sh("head -c 33554432 /dev/zero >big; echo full; while :; do sleep 1000 & done"))
	r.until(p, "full\n")
	r.wantText("the neighbour", r.say(neighbour, "head -c 4194304 /dev/zero >some && (sleep 0 & sleep 0 & wait) && echo well"), "well")
}

func usage(r *rig) {
	b := r.box()
	r.say(b, "true")
	u, err := b.Usage(r.ctx)
	if err != nil {
		r.Fatalf("usage: %v", err)
	}
	if u.CPU < -1 || u.PeakMemory < -1 || u.Processes < -1 {
		r.Errorf("usage %+v has a field that is no measure and not -1", u)
	}
}

// written writes files in both places, and removes them.
func written(r *rig) {
	b := r.box()
	meter, ok := b.(sandbox.DiskMeter)
	r.need(ok && r.h.Kernel, "a measure of the disk, or its harness has no kernel")
	disk := func() int64 {
		r.Helper()
		n, err := meter.Disk(r.ctx)
		if err != nil || n < 0 {
			r.Fatalf("the disk holds %d bytes, %v", n, err)
		}
		return n
	}
	const each, slack = 4 << 20, 1 << 20
	before := disk()
	r.say(b, "head -c 4194304 /dev/zero >/workspace/a && head -c 4194304 /dev/zero >/tmp/b")
	if more := disk() - before; more < 2*each || more > 2*each+slack {
		r.Errorf("two files of %d bytes took %d", each, more)
	}
	r.say(b, "rm /workspace/a /tmp/b")
	if more := disk() - before; more > slack {
		r.Errorf("%d bytes are left of what was removed", more)
	}
}

// cpuTime has Sandbox end what uses up its processor time, in which everything
// depends on what Usage says.
func cpuTime(r *rig) {
	r.need(r.d.Capabilities().CPUTime && r.h.Kernel, "a limit on processor time, or its harness has no kernel")
	spec := r.spec()
	spec.Limits.CPUTime = 2 * time.Second
	s, err := sandbox.Open(r.ctx, sandbox.Options{Driver: r.d, Spec: spec})
	if err != nil {
		r.Fatal(err)
	}
	defer func() {
		if err := s.Close(r.ctx); err != nil {
			r.Error(err)
		}
	}()
	result := func(script string) sandbox.Result {
		e, err := s.Exec(r.ctx, r.sh(script), sandbox.ExecOptions{})
		if err != nil {
			r.Fatal(err)
		}
		res, err := e.Wait(r.ctx)
		if err != nil {
			r.Fatal(err)
		}
		return res
	}
	if res := result("echo kept >file; while :; do :; done & while :; do :; done"); res.Verdict != sandbox.Limit || !strings.HasPrefix(res.Cause, "cpu_time: ") {
		r.Errorf("the greedy one: %+v", res)
	}
	if res := result("sleep 1000"); res.Verdict != sandbox.Limit {
		r.Errorf("one after the limit: %+v", res)
	}
	var files bytes.Buffer
	if err := s.Get(r.ctx, "/workspace/file", &files); err != nil || !bytes.Contains(files.Bytes(), []byte("kept")) {
		r.Errorf("the files are lost: %v", err)
	}
	if s.Enforced().CPUTime != spec.Limits.CPUTime {
		r.Errorf("enforced: %+v", s.Enforced())
	}
}
