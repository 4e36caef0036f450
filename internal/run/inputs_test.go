package run_test

import (
	"crypto/sha256"
	"encoding/hex"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/aurea-dev/aurea/internal/run"
)

func TestInputsAreDigestsOfWhatWasGiven(t *testing.T) {
	t.Parallel()
	sum := func(text string) string { s := sha256.Sum256([]byte(text)); return hex.EncodeToString(s[:]) }
	if got := (&run.Order{Code: "x"}).Inputs(); got != nil {
		t.Errorf("nothing was given, and it has %+v", got)
	}
	o := run.Order{
		Files: map[string]string{"a.txt": "A", "empty": ""}, Stdin: "in\n", Args: []string{"-x", "", "two words"},
		Env: map[string]string{"B": "2", "A": "1=1"},
	}
	want := &run.Inputs{
		Files: map[string]string{"a.txt": sum("A"), "empty": sum("")}, Stdin: sum("in\n"), Args: sum("-x\x00\x00two words\x00"), Env: sum("A=1=1\x00B=2\x00"),
	}
	if diff := cmp.Diff(want, o.Inputs()); diff != "" {
		t.Error(diff)
	}
}
