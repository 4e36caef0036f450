package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// warmBox is a sandbox, and whether it waited in the pool.
type warmBox struct {
	box
	Warm bool
}

// waiting waits until so many sandboxes wait.
func (f *fort) waiting(count int) {
	f.t.Helper()
	eventually(f.t, "sandboxes wait", func() (bool, string) {
		var classes []struct{ Waiting, Making int }
		err := f.get(f.t.Context(), "/api/v1/pool", &classes)
		n := 0
		for _, c := range classes {
			n += c.Waiting
		}
		return err == nil && n >= count, fmt.Sprintf("%+v, %v", classes, err)
	})
}

// claim makes a sandbox, from the pool where one waits.
func (f *fort) claim(t *testing.T) (x warmBox) {
	t.Helper()
	if err := f.demand(t, "a sandbox", []int{201}, http.MethodPost, "/api/v1/sandboxes", `{}`).into(http.StatusCreated, &x); err != nil {
		t.Error(err)
	}
	return x
}

// TestWaitingSandboxesAreFresh attacks the pool: by what an occupant leaves
// behind, by a crowd, and by sandboxes that die while they wait.
func TestWaitingSandboxesAreFresh(t *testing.T) {
	t.Parallel()
	f := newFort(t, false, "AUREA_POOL=bash=2", "SANDBOX_MEMORY_LIMIT=128m", "AUREA_MEMORY=8g")
	f.waiting(1)
	t.Run("C45 what the last one left", func(t *testing.T) {
		const leave = `echo left | tee /tmp/canary /workspace/canary /dev/shm/canary >/dev/null; (setsid sh -c 'sleep 600; echo canary' >/dev/null 2>&1 &)`
		const look = `ls -A /workspace /tmp /dev/shm; env; cat /proc/[0-9]*/cmdline | tr '\0' ' '`
		before := f.claim(t)
		if !before.Warm {
			t.Error("the first one was not from the pool")
		}
		fresh := f.run(before.box, look)
		f.run(before.box, leave)
		if got := f.run(before.box, look); !strings.Contains(got, "canary") {
			t.Fatalf("nothing was left: %q", got)
		}
		f.demand(t, "its end", []int{200}, http.MethodDelete, before.path(), "")
		for range 4 {
			f.waiting(1)
			x := f.claim(t)
			if got := f.run(x.box, look); strings.Contains(got, "canary") {
				t.Errorf("the next one (warm: %v) finds %q, a fresh one %q", x.Warm, got, fresh)
			}
			f.demand(t, "its end", []int{200}, http.MethodDelete, x.path(), "")
		}
	})
	t.Run("H96, H99 a crowd", func(t *testing.T) {
		const crowd = 12
		f.waiting(1)
		boxes := make([]warmBox, crowd)
		var group sync.WaitGroup
		for i := range boxes {
			group.Go(func() { boxes[i] = f.claim(t) })
		}
		group.Wait()
		warm := 0
		for i, x := range boxes {
			if x.Warm {
				warm++
			}
			if got := f.run(x.box, fmt.Sprintf("cat mark 2>/dev/null; echo %d > mark", i)); got != "" {
				t.Errorf("%s was handed out twice, or was not fresh: %q", x.ID, got)
			}
		}
		t.Logf("%d of %d waited", warm, crowd)
		// The pool grows by what was missed, and no further than it may.
		if n := f.alive(); n > 2*crowd+4 {
			t.Errorf("%d sandboxes live for %d", n, crowd)
		}
		for _, x := range boxes {
			f.demand(t, "its end", []int{200}, http.MethodDelete, x.path(), "")
		}
	})
	t.Run("H96 one that died while it waited", func(t *testing.T) {
		f.waiting(1)
		killed := map[int]bool{}
		for pid, args := range processes() {
			if len(args) > 0 && strings.HasPrefix(args[0], "runsc-sandbox") && strings.Contains(strings.Join(args, " "), f.folder) {
				killed[pid] = syscall.Kill(pid, syscall.SIGKILL) == nil
			}
		}
		// The worker may not have seen it yet: none of them is handed out all the same.
		eventually(t, "they are dead", func() (bool, string) {
			for pid, args := range processes() {
				if killed[pid] && len(args) > 0 {
					return false, fmt.Sprint(pid, args)
				}
			}
			return true, ""
		})
		for range 5 {
			f.run(f.claim(t).box, "true")
		}
	})
}

// TestTimeAndMemoryOfThePaused looks at what a pause may not bend: clocks,
// timers, files that are being written, and what the worker may give.
func TestTimeAndMemoryOfThePaused(t *testing.T) {
	t.Parallel()
	f := newFort(t, false, "AUREA_POOL=", "AUREA_MEMORY=1g")
	x := f.sandbox(map[string]any{"memory_limit": "256m"})
	pause := func(t *testing.T, mode string) {
		t.Helper()
		f.demand(t, mode, []int{200}, http.MethodPost, x.path()+"/pause", fmt.Sprintf(`{"mode":%q}`, mode))
	}
	t.Run("H94 clocks", func(t *testing.T) {
		for _, mode := range []string{"freeze", "checkpoint"} {
			e := f.begin(x, map[string]any{"shell": "sleep 1; echo woke"})
			pause(t, mode)
			eventually(t, "time passes", func() func() (bool, string) {
				from := time.Now()
				return func() (bool, string) { return time.Since(from) > 2*time.Second, "" }
			}())
			f.demand(t, "resume", []int{200}, http.MethodPost, x.path()+"/resume", "")
			before := time.Now().Unix()
			var inside int64
			if _, err := fmt.Sscan(f.run(x, "date +%s"), &inside); err != nil {
				t.Fatal(err)
			}
			if after := time.Now().Unix(); inside < before-1 || inside > after+1 {
				t.Errorf("after %s the clock says %d, between %d and %d", mode, inside, before, after)
			}
			eventually(t, "the timer fires", func() (bool, string) {
				var c command
				err := f.get(t.Context(), x.path()+"/execs/"+e.ID, &c)
				return err == nil && c.State == "ENDED" && c.Verdict == "ok", fmt.Sprintf("%+v, %v", c, err)
			})
		}
	})
	t.Run("H98 a snapshot of what is being written", func(t *testing.T) {
		f.begin(x, map[string]any{"shell": "i=0; while :; do echo $i; i=$((i+1)); done > log"})
		eventually(t, "it writes", func() (bool, string) {
			got := f.run(x, "wc -c < log")
			return strings.TrimSpace(got) > "0", got
		})
		var made []box
		if err := f.demand(t, "fork", []int{201}, http.MethodPost, x.path()+"/fork", `{"count":1}`).into(http.StatusCreated, &made); err != nil || len(made) != 1 {
			t.Fatalf("%v, %v", made, err)
		}
		f.run(made[0], `cp log then; sed '$d' then | awk '$1 != NR-1 { exit 1 }'`) // the last line may be half
		f.demand(t, "its end", []int{200}, http.MethodDelete, made[0].path(), "")
	})
	t.Run("H100 forks and paused ones count", func(t *testing.T) {
		pause(t, "freeze")
		var open []box
		for i := range 8 {
			text, err := json.Marshal(map[string]any{"memory_limit": "256m", "name": fmt.Sprint("n", i)})
			if err != nil {
				t.Fatal(err)
			}
			f.demand(t, "another", []int{201, 429, 503}, http.MethodPost, "/api/v1/sandboxes", string(text))
		}
		f.demand(t, "resume", []int{200}, http.MethodPost, x.path()+"/resume", "")
		f.demand(t, "forks", []int{429, 503}, http.MethodPost, x.path()+"/fork", `{"count":8}`)
		if err := f.get(t.Context(), "/api/v1/sandboxes?open=true&limit=100", &open); err != nil || len(open) > 4 {
			t.Errorf("%d sandboxes of 256 MiB are open where there is 1 GiB, %v", len(open), err)
		}
	})
}
