package job_test

import (
	"strings"
	"testing"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/job"
)

// legal is the machine as the design tells it, one line per state.
const legal = `
QUEUED:      ASSIGNED FAILED
ASSIGNED:    IN_PROGRESS QUEUED ASSIGNED FAILED
IN_PROGRESS: SUBMITTED COMPLETED FAILED QUEUED
SUBMITTED:   VALIDATING FAILED
VALIDATING:  COMPLETED ESCALATED SUBMITTED FAILED
COMPLETED:
FAILED:      QUEUED IN_PROGRESS
ESCALATED:   QUEUED
`

func TestEveryMoveIsLegalOrRefused(t *testing.T) {
	t.Parallel()
	allowed := map[[2]job.State]bool{}
	for line := range strings.Lines(strings.TrimSpace(legal)) {
		from, tos, _ := strings.Cut(line, ":")
		for _, to := range strings.Fields(tos) {
			allowed[[2]job.State{job.State(from), job.State(to)}] = true
		}
	}
	for _, from := range job.States() {
		for _, to := range append(job.States(), "NOWHERE", "") {
			want := allowed[[2]job.State{from, to}]
			j := job.Job{ID: "j", RootID: "r", State: from}
			err := j.To(to)
			if from.Can(to) != want || (err == nil) != want {
				t.Errorf("%s to %s: can %v, moved %v, want %v", from, to, from.Can(to), err, want)
			}
			if want && j.State != to {
				t.Errorf("%s to %s: the job is %s", from, to, j.State)
			}
			if !want && (j.State != from || !fault.Is(err, fault.Conflict) || fault.CodeOf(err) != "illegal_move") {
				t.Errorf("%s to %s was refused with %v, and the job is %s", from, to, err, j.State)
			}
		}
	}
}

func TestOnlyThreeStatesAreEnds(t *testing.T) {
	t.Parallel()
	for _, s := range job.States() {
		if want := s == job.Completed || s == job.Failed || s == job.Escalated; s.Ended() != want || !s.Valid() {
			t.Errorf("%s: ended %v, valid %v", s, s.Ended(), s.Valid())
		}
		if !s.Ended() && !s.Can(job.Failed) {
			t.Errorf("%s is open, and cannot be cancelled", s)
		}
	}
	if job.State("queued").Valid() {
		t.Error("a state in lower case is a state")
	}
}

func TestDemandNamesWhatIsAndWhatShouldBe(t *testing.T) {
	t.Parallel()
	j := job.Job{ID: "j", State: job.Queued}
	if err := j.Demand("complete", job.Assigned, job.Queued); err != nil {
		t.Errorf("refused: %v", err)
	}
	err := j.Demand("complete", job.InProgress, job.Submitted)
	if !fault.Is(err, fault.Conflict) || fault.CodeOf(err) != "wrong_state" {
		t.Fatalf("got %v", err)
	}
	if want := "cannot complete job j: it is QUEUED, not IN_PROGRESS or SUBMITTED"; err.Error() != want {
		t.Errorf("it says %q, want %q", err, want)
	}
}

func TestTheDiagramShowsEveryMove(t *testing.T) {
	t.Parallel()
	drawn := job.Diagram()
	if !strings.HasPrefix(drawn, "stateDiagram-v2\n    [*] --> QUEUED\n") {
		t.Errorf("it begins\n%s", drawn)
	}
	for _, from := range job.States() {
		for _, to := range job.States() {
			if strings.Contains(drawn, "    "+string(from)+" --> "+string(to)+"\n") != from.Can(to) {
				t.Errorf("%s to %s: drawn and legal differ", from, to)
			}
		}
		if strings.Contains(drawn, string(from)+" --> [*]\n") != from.Ended() {
			t.Errorf("%s: the end is drawn wrong", from)
		}
	}
}
