package worker

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/aurea-dev/aurea/internal/live"
)

// Ends that answers have brought are told once more, many together however long
// they keep coming.
func TestEndsThatAnswersBroughtGather(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &hosted{news: make(chan struct{}, 1)}
		const ends, apart = 400, 5 * time.Millisecond
		told, calls := 0, 0
		for begin := time.Now(); told < ends; time.Sleep(apart) { // of virtual time
			if time.Since(begin) < ends*apart {
				h.sayLater(ending{exec: &live.ExecEnded{}})
			}
			synctest.Wait()
			for batch := h.take(); len(batch) > 0; batch = h.take() {
				told += len(batch)
				calls++
				for _, n := range batch {
					if late := time.Since(n.due); late < 0 || late > again+apart {
						t.Fatalf("an end is told %v after it was due", late)
					}
				}
			}
			if time.Since(begin) > ends*apart+time.Minute {
				t.Fatalf("%d of %d ends were told", told, ends)
			}
		}
		if most := int(ends*apart/again) + 1; told != ends || calls > most {
			t.Errorf("%d ends were told in %d calls, want %d in %d at most", told, calls, ends, most)
		}
	})
}
