package filesync

import (
	"context"
	"fmt"
	"maps"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/aurea-dev/aurea/internal/blob"
)

// one is a path in the model.
type one struct {
	base, inside, outside string
	insideAt, outsideAt   time.Time
}

// end is what a path comes to, said a second time: by the rules, not by the code.
func (o one) end() (text, lost string) {
	in, out := o.inside != o.base, o.outside != o.base
	switch {
	case !in:
		return o.outside, ""
	case !out || o.inside == o.outside:
		return o.inside, ""
	case o.inside == "" || o.outside != "" && !o.insideAt.After(o.outsideAt):
		return o.outside, o.inside
	}
	return o.inside, o.outside
}

// A pass that is cut, however often and wherever, and then done to its end, ends
// where one that was never cut would have ended, and no bytes that somebody wrote
// are lost.
func TestACutPassDoesNoHarm(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Limits{})
	runs := 0
	rapid.Check(t, func(t *rapid.T) {
		runs++
		b, model := newBox(w.clock), map[string]*one{}
		req := Request{Session: fmt.Sprint("s", runs), Sandbox: fmt.Sprint("b", runs), Root: root}
		req.Strategy = rapid.SampledFrom([]Strategy{LastWriteWins, AutoMerge}).Draw(t, "strategy")
		for range rapid.IntRange(1, 4).Draw(t, "rounds") {
			edit(t, w, b, req.Session, model)
			for range rapid.IntRange(0, 3).Draw(t, "cuts") {
				k := &knife{after: rapid.IntRange(1, 40).Draw(t, "cut after"), done: rapid.Bool().Draw(t, "the last call is done")}
				_, cut := w.over(cutStore{w.store, k}, cutBlobs{w.blobs, k}, Limits{})
				_, _ = cut.Sync(context.Background(), cutSide{b, k}, req)
			}
			w.clock.tick(time.Duration(rapid.IntRange(1, 5).Draw(t, "pause")) * time.Second)
			if r, err := w.Sync(context.Background(), b, req); err != nil || r.Failed > 0 {
				t.Fatalf("sync: %v, %+v", err, r.Errors)
			}
			compare(t, w, b, req, model)
			if r, err := w.Sync(context.Background(), b, req); err != nil || !r.Quiet() || len(r.Conflicts) > 0 {
				t.Fatalf("one more pass did %+v, %v", r, err)
			}
		}
	})
}

// edit changes some paths on either side.
func edit(t *rapid.T, w *world, b *box, session string, model map[string]*one) {
	for range rapid.IntRange(0, 6).Draw(t, "edits") {
		name := rapid.SampledFrom([]string{"a", "b", "d/x", "d/y"}).Draw(t, "path")
		text := rapid.SampledFrom([]string{"", "1\n2\n3\n", "one\n2\n3\n", "1\n2\nthree\n", "other\x00", "1\n"}).Draw(t, "text")
		if model[name] == nil {
			model[name] = &one{}
		}
		w.clock.tick(time.Duration(rapid.IntRange(1, 5).Draw(t, "later")) * time.Second)
		m := model[name]
		if rapid.Bool().Draw(t, "inside") {
			m.inside, m.insideAt = text, w.clock.now()
			if text == "" {
				b.remove(name)
			} else {
				b.put(name, text)
			}
			continue
		}
		var err error
		switch {
		case text != "":
			w.storeIn(t, session, name, text)
		case m.outside != "":
			err = w.shelf.Delete(context.Background(), session, name, -1)
		}
		if err != nil {
			t.Fatal(err)
		}
		m.outside, m.outsideAt = text, w.clock.now()
	}
}

// compare holds both sides to the model, and takes what they came to as the next
// beginning.
func compare(t *rapid.T, w *world, b *box, req Request, model map[string]*one) {
	inside, outside := b.texts(), w.stored(req.Session)
	if !maps.Equal(inside, outside) {
		t.Fatalf("the sandbox has %q, stored is %q", inside, outside)
	}
	for name, m := range model {
		want, lost := m.end()
		if req.Strategy == LastWriteWins && inside[name] != want {
			t.Fatalf("%s: got %q, want %q of %+v", name, inside[name], want, m)
		}
		for _, text := range []string{lost} {
			if text != "" && !w.hasVersion(t, req.Session, name, text) {
				t.Fatalf("%s: %q is lost", name, text)
			}
		}
		text := inside[name]
		at := m.outsideAt
		if m.insideAt.After(at) {
			at = m.insideAt
		}
		*m = one{text, text, text, at, at}
	}
}

func (w *world) storeIn(t *rapid.T, session, name, text string) {
	if _, err := w.shelf.Put(context.Background(), session, name, 0, -1, stringReader(text)); err != nil {
		t.Fatal(err)
	}
}

func (w *world) hasVersion(t *rapid.T, session, name, text string) bool {
	list, err := w.shelf.Versions(context.Background(), session, name, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range list {
		if f.SHA256 == blob.Digest([]byte(text)) {
			return true
		}
	}
	return false
}
