package main

import (
	"slices"
	"testing"

	"gvisor.dev/gvisor/pkg/sentry/platform"
	"gvisor.dev/gvisor/pkg/sentry/seccheck"
)

func TestThePlatformAsksForNoCapability(t *testing.T) {
	if err := usePowerless(); err != nil {
		t.Fatal(err)
	}
	c, err := platform.Lookup(platformName)
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Requirements(); got != (platform.Requirements{}) {
		t.Errorf("it asks for %+v", got)
	}
}

func TestOnlyABootIsToldToStay(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ args, want []string }{
		{[]string{"runsc-sandbox", "--root=/x", "boot", "--bundle=/b", "box"}, []string{"runsc-sandbox", "--root=/x", "boot", "--apply-caps=true", "--bundle=/b", "box"}},
		{[]string{"/proc/self/exe", "umount"}, []string{"/proc/self/exe", "umount"}},
	} {
		if got := stay(row.args); !slices.Equal(got, row.want) {
			t.Errorf("%q became %q", row.args, got)
		}
	}
}

// TestTracePointsAreLeftOut fails when a new gVisor guards its list of points
// by another name: then ours is a variable of nobody's.
func TestTracePointsAreLeftOut(t *testing.T) {
	skipPoints()
	seccheck.Initialize()
	if n := len(seccheck.Points); n != 0 {
		t.Errorf("%d points were made", n)
	}
}

func TestThePaceOfCollecting(t *testing.T) {
	t.Parallel()
	p := &pace{percent: 100}
	if few, many := p.of(small), p.of(small+1); few != 400 || many != 100 {
		t.Errorf("%d while it is small, %d later", few, many)
	}
}
