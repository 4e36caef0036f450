package machinist

import (
	"context"
	"testing"
)

// A sweep that a stop overtakes finds machines and may begin nothing any more.
// It must let go of them: a stop waits for the sweep.
func TestNothingIsBegunOutsideOfALife(t *testing.T) {
	t.Parallel()
	k := New(Config{})
	k.background("a machine", func(context.Context) { t.Error("it was begun") })
	done, ok := k.take("a machine")
	if !ok {
		t.Fatal("the machine was not let go of")
	}
	done()
}
