package live

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/aurea-dev/aurea/internal/sandbox"
)

func TestToken(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	s := &Sandbox{ID: "abc1", State: sandbox.StateRunning, LinkKey: bytes.Repeat([]byte{7}, linkKeyBytes)}
	token := s.Token(now.Add(time.Minute))
	if err := s.CheckToken(token, now); err != nil {
		t.Fatal(err)
	}
	if id, ok := TokenOf(token); !ok || id != "abc1" {
		t.Errorf("the token is of %q", id)
	}
	other, keyless, ended := *s, *s, *s
	other.ID, keyless.LinkKey, ended.State = "abc", nil, sandbox.StateCompleted
	last := token[len(token)-2:]
	for name, c := range map[string]struct {
		s     *Sandbox
		token string
		now   time.Time
	}{
		"another sandbox": {&other, strings.Replace(token, "abc1", "abc", 1), now},
		"without a key":   {&keyless, token, now},
		"ended":           {&ended, token, now},
		"over":            {s, token, now.Add(time.Minute)},
		"altered":         {s, strings.TrimSuffix(token, last) + "AA", now},
		"cut":             {s, token[:len(token)-4], now},
		"a link":          {s, TokenPrefix + s.ID + "_" + s.Link(1, now.Add(time.Hour)), now},
		"nothing":         {s, "", now},
	} {
		if c.s.CheckToken(c.token, c.now) == nil {
			t.Errorf("%s: it is taken", name)
		}
	}
	if s.CheckLink(1, strings.TrimPrefix(token, TokenPrefix+"abc1_"), now) == nil {
		t.Error("a token passes for a link")
	}
}
