package probe

import (
	"errors"
	"strings"
	"testing"

	"github.com/aurea-dev/aurea/internal/probe/inside"
)

func answer(change func(map[string]string)) string {
	words := map[string]string{}
	for _, name := range inside.Controls() {
		words[name] = inside.Works
	}
	for _, name := range inside.Names(false) {
		words[name] = inside.Stopped
	}
	if change != nil {
		change(words)
	}
	var b strings.Builder
	for name, word := range words {
		b.WriteString(name + "\t" + word + "\tx\n")
	}
	return b.String()
}

func judged(t *testing.T, text string) Report {
	t.Helper()
	var r Report
	p := &prober{report: &r}
	r.Err = p.judge(parse(text), false)
	return r
}

func TestOnlyAWholeAnswerServes(t *testing.T) {
	t.Parallel()
	if why := judged(t, answer(nil)).Degraded(); why != "" {
		t.Errorf("all was stopped, and yet: %s", why)
	}
	for name, text := range map[string]string{
		"silence":          "",
		"one got through":  answer(func(w map[string]string) { w["guest-memory"] = inside.Through }),
		"one is missing":   answer(func(w map[string]string) { delete(w, "file-host") }),
		"an unknown word":  answer(func(w map[string]string) { w["file-host"] = "fine" }),
		"a broken control": answer(func(w map[string]string) { w["control-write"] = inside.Broken }),
		"no control":       answer(func(w map[string]string) { delete(w, "control-proc") }),
		"two answers":      answer(func(w map[string]string) { w["file-host"] = inside.Through }) + "file-host\tstopped\tx\n",
		"cut off":          strings.TrimSuffix(answer(nil), "\n"),
	} {
		if why := judged(t, text).Degraded(); why == "" {
			t.Errorf("%s: served", name)
		}
	}
	if why := (Report{Attempts: []Attempt{{Name: "a", Stopped: true}}, Err: errors.New("cut short")}).Degraded(); !strings.Contains(why, "cut short") {
		t.Errorf("a probe that was cut short: %q", why)
	}
	if why := (Report{Exempt: "nothing is executed"}).Degraded(); why != "" {
		t.Errorf("exempt: %s", why)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(answer(nil))
	f.Add("a\tstopped\t\x1b[2J\n\t\t\t\na\tthrough\t\n")
	f.Fuzz(func(t *testing.T, text string) {
		said := parse(text)
		if len(said) > 256 {
			t.Fatalf("%d lines", len(said))
		}
		for name, l := range said {
			if len(name) > 64 || len(l.detail) > 200 {
				t.Fatalf("%q: %q", name, l)
			}
			for _, r := range l.detail {
				if r < ' ' || r > '~' {
					t.Fatalf("unprintable: %q", l.detail)
				}
			}
		}
	})
}
