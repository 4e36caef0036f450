package runner

import (
	"fmt"
	"testing"
	"time"
)

// anywhere lets every ticket be served.
func anywhere(*ticket) *place { return &place{} }

func TestAnOwnerWithHundredsKeepsNobodyWaiting(t *testing.T) {
	t.Parallel()
	l := newLine()
	for i := range 500 {
		l.enter(&ticket{id: fmt.Sprint(i), owner: "many"})
	}
	l.next(anywhere)
	one := &ticket{id: "one", owner: "few"}
	l.enter(one)
	if p := l.position(one); p > 1 {
		t.Errorf("%d turns come before it", p)
	}
	for turn := 1; ; turn++ {
		got, _ := l.next(anywhere)
		if got == one {
			if turn > 2 {
				t.Errorf("it came in turn %d", turn)
			}
			break
		}
	}
}

func TestPositionsAreTheTurnsThatFollow(t *testing.T) {
	t.Parallel()
	l := newLine()
	tickets := map[*ticket]int{}
	for i := range 40 {
		tk := &ticket{id: fmt.Sprint(i), owner: fmt.Sprint("o", i%7*i%3)}
		l.enter(tk)
		tickets[tk] = 0
	}
	for tk := range tickets {
		tickets[tk] = l.position(tk)
	}
	for turn := range len(tickets) {
		got, _ := l.next(anywhere)
		if tickets[got] != turn {
			t.Errorf("the ticket in turn %d was told %d", turn, tickets[got])
		}
	}
	if got, _ := l.next(anywhere); got != nil || l.length != 0 || len(l.queues) != 0 || len(l.owners) != 0 {
		t.Errorf("something is left: %+v", l)
	}
}

func TestWhatWaitsForAWorkerOfItsOwnHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	l := newLine()
	stuck, free := &ticket{owner: "o", worker: "away"}, &ticket{owner: "o"}
	l.enter(stuck)
	l.enter(free)
	choose := func(tk *ticket) *place {
		if tk.worker == "" {
			return &place{}
		}
		return nil
	}
	if got, _ := l.next(choose); got != free {
		t.Errorf("got %+v", got)
	}
	if got, _ := l.next(choose); got != nil {
		t.Errorf("got %+v", got)
	}
	if !l.leave(stuck) || l.leave(stuck) || l.length != 0 || l.position(stuck) != -1 {
		t.Errorf("the line is %+v", l)
	}
}

func TestOneThatHadItsTurnGoesFirst(t *testing.T) {
	t.Parallel()
	l := newLine()
	a, b := &ticket{owner: "o"}, &ticket{owner: "o", urgent: true}
	l.enter(a)
	l.enter(b)
	if got, _ := l.next(anywhere); got != b {
		t.Errorf("got %+v", got)
	}
}

func TestAPlaceHasAsMuchRoomAsItSays(t *testing.T) {
	t.Parallel()
	now := time.Now()
	p := &place{Worker: Worker{Slots: 2}}
	if p.busy = 1; !p.room(now) {
		t.Error("one of two is room")
	}
	if p.busy = 2; p.room(now) {
		t.Error("two of two is none")
	}
	p.busy, p.full = 0, now.Add(time.Second)
	if p.room(now) || !p.room(now.Add(time.Second)) {
		t.Error("one that has said that it is full is left alone for a while")
	}
	l := newLine()
	l.ended(time.Second)
	l.ended(9 * time.Second)
	if l.wait(3, 4) != 2*time.Second || l.wait(-1, 4) != 0 {
		t.Errorf("the estimate is %s", l.wait(3, 4))
	}
}
