package live

import (
	"testing"
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

func TestLinks(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	s := &Sandbox{ID: "abc", State: sandbox.StateRunning, LinkKey: NewLinkKey()}
	token := s.Link(8080, now.Add(time.Minute))
	if err := s.CheckLink(8080, token, now); err != nil {
		t.Fatal(err)
	}
	other, ended, unkeyed := *s, *s, *s
	other.ID, ended.State, unkeyed.LinkKey = "abd", sandbox.StateCompleted, nil
	stranger := &Sandbox{ID: "abc", State: sandbox.StateRunning, LinkKey: NewLinkKey()}
	for what, err := range map[string]error{
		"another port":       s.CheckLink(8081, token, now),
		"later":              s.CheckLink(8080, token, now.Add(time.Minute)),
		"another sandbox":    other.CheckLink(8080, token, now),
		"one that has ended": ended.CheckLink(8080, token, now),
		"one without a key":  unkeyed.CheckLink(8080, token, now),
		"another key":        stranger.CheckLink(8080, token, now),
		"nothing":            s.CheckLink(8080, "", now),
		"a cut token":        s.CheckLink(8080, token[:len(token)-1], now),
		"a longer time":      s.CheckLink(8080, "B"+token[1:], now),
		"what is no base64":  s.CheckLink(8080, "%%%", now),
	} {
		if !fault.Is(err, fault.Unauthenticated) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
