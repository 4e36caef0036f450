package policy

import (
	"strings"
	"time"
	"unicode/utf8"

	"github.com/aurea-dev/aurea/internal/fault"
)

// Pause says whether the organisation is paused: then nothing new is taken in
// or handed out, while what there is can be looked at and goes on.
type Pause struct {
	Paused bool
	Reason string // of the last change
	Actor  string // who changed it last; "" is nobody ever
	At     time.Time
}

// CodePaused is the code of what is refused meanwhile.
const CodePaused = "ORG_PAUSED"

// pausedAgain is when somebody may ask again: people decide when it is over.
const pausedAgain = 30 * time.Second

// Refuse returns why nothing new is taken in, or nil while it is.
func (p Pause) Refuse() error {
	if !p.Paused {
		return nil
	}
	return fault.New(fault.Unavailable, "The organisation is paused, so nothing new is taken in: %s", p.Reason).WithCode(CodePaused).Retry(pausedAgain)
}

// MaxReason bounds a reason, in bytes.
const MaxReason = 1000

// CheckReason refuses what says nothing to those who ask later why.
func CheckReason(reason string) error {
	if strings.TrimSpace(reason) == "" || len(reason) > MaxReason || !utf8.ValidString(reason) || strings.ContainsRune(reason, 0) {
		return fault.Field("reason", "say why, in at most %d bytes", MaxReason)
	}
	return nil
}
