package dispatch

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/aurea-dev/aurea/internal/evidence"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/language"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

const emptyDigest = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

type checker interface{ Check() error }

func registration(change func(*Registration)) Registration {
	r := Registration{Wire: Version, WorkerID: "w", Identity: "i", Incarnation: "n", Slots: 4, Drivers: []DriverSummary{{Name: "fake"}}}
	change(&r)
	return r
}

func reportOf(it ReportItem) ReportRequest {
	if it.JobID == "" {
		it.JobID = "j"
	}
	return ReportRequest{Session: "s", Items: []ReportItem{it}}
}

func finishOf(change func(*Result)) FinishRequest {
	r := Result{Held: Held{JobID: "j", Fence: 1}, Details: json.RawMessage(` {"a":1}`)}
	change(&r)
	return FinishRequest{Session: "s", Results: []Result{r}}
}

func TestBoundsNameTheField(t *testing.T) {
	t.Parallel()
	event := func(h Happening) ReportRequest { return reportOf(ReportItem{Event: &h}) }
	output := func(c Chunk) ReportRequest { return reportOf(ReportItem{Output: &c}) }
	for _, tc := range []struct {
		name  string
		what  checker
		field string
	}{
		{"no worker id", registration(func(r *Registration) { r.WorkerID = "" }), "worker_id"},
		{"a NUL in the worker id", registration(func(r *Registration) { r.WorkerID = "a\x00b" }), "worker_id"},
		{"broken UTF-8", registration(func(r *Registration) { r.Identity = "\xff" }), "identity"},
		{"a long incarnation", registration(func(r *Registration) { r.Incarnation = strings.Repeat("x", maxWord+1) }), "incarnation"},
		{"a line break in the role", registration(func(r *Registration) { r.Role = "a\nb" }), "role"},
		{"negative slots", registration(func(r *Registration) { r.Slots = -1 }), "slots"},
		{"an empty model", registration(func(r *Registration) { r.Models = []string{"a", ""} }), "models[1]"},
		{"a driver without a name", registration(func(r *Registration) { r.Drivers = []DriverSummary{{}} }), "drivers[0].name"},
		{"too many languages", registration(func(r *Registration) { r.Languages = make([]language.Status, maxLanguages+1) }), "languages"},
		{"a language without a name", registration(func(r *Registration) { r.Languages = []language.Status{{File: "x"}} }), "languages[0].name"},
		{"a language without a file", ExtendRequest{Session: "s", Languages: []language.Status{{Name: "x"}}}, "languages[0].file"},
		{"an empty alias", registration(func(r *Registration) {
			r.Languages = []language.Status{{Name: "x", File: "x", Aliases: []string{""}}}
		}), "languages[0].aliases[0]"},
		{"a reason with a line break", registration(func(r *Registration) {
			r.Languages = []language.Status{{Name: "x", File: "x", Reason: "a\nb"}}
		}), "languages[0].reason"},
		{"too many holdings", registration(func(r *Registration) { r.Holding = make([]Held, MaxHeld+1) }), "holding"},
		{"too many lost", registration(func(r *Registration) { r.Lost = make([]Lost, MaxHeld+1) }), "lost"},
		{"a lost lease of no job", registration(func(r *Registration) { r.Lost = []Lost{{}} }), "lost[0].job_id"},
		{"a loss with a line break", registration(func(r *Registration) { r.Lost = []Lost{{Held: Held{JobID: "j"}, Reason: "a\nb"}} }), "lost[0].reason"},
		{"a negative fence", registration(func(r *Registration) { r.Holding = []Held{{JobID: "j", Fence: -1}} }), "holding[0].fence"},

		{"no session", LeaseRequest{Max: 1}, "session"},
		{"no leases", LeaseRequest{Session: "s"}, "max"},
		{"too many leases", LeaseRequest{Session: "s", Max: MaxLeases + 1}, "max"},
		{"a negative wait", LeaseRequest{Session: "s", Max: 1, Wait: -1}, "wait_ns"},
		{"a long wait", LeaseRequest{Session: "s", Max: 1, Wait: MaxWait + time.Nanosecond}, "wait_ns"},

		{"too many held", ExtendRequest{Session: "s", Held: make([]Held, MaxHeld+1)}, "held"},
		{"a nameless lease", ExtendRequest{Session: "s", Held: []Held{{Fence: 1}}}, "held[0].job_id"},

		{"too many items", ReportRequest{Session: "s", Items: make([]ReportItem, MaxReports+1)}, "items"},
		{"neither event nor output", reportOf(ReportItem{}), "items[0]"},
		{"both", reportOf(ReportItem{Event: &Happening{N: 1, Type: "a"}, Output: &Chunk{Stream: 1}}), "items[0]"},
		{"an event without a number", event(Happening{Type: "exec.started"}), "items[0].event.n"},
		{"an event without a type", event(Happening{N: 1}), "items[0].event.type"},
		{"an event that says no object", event(Happening{N: 1, Type: "a", Data: json.RawMessage(`[1]`)}), "items[0].event.data"},
		{"an event that says too much", event(Happening{N: 1, Type: "a", Data: make([]byte, maxData+1)}), "items[0].event.data"},
		{"a third stream", output(Chunk{Stream: 3}), "items[0].output.stream"},
		{"a large piece", output(Chunk{Stream: sandbox.Stdout, Data: make([]byte, MaxChunk+1)}), "items[0].output.data"},
		{"a negative offset", output(Chunk{Stream: sandbox.Stdout, Offset: -1}), "items[0].output.offset"},
		{"an offset at the end of numbers", output(Chunk{Stream: sandbox.Stdout, Offset: 1<<63 - 1}), "items[0].output.offset"},

		{"too many results", FinishRequest{Session: "s", Results: make([]Result, MaxFinishes+1)}, "results"},
		{"no details", finishOf(func(r *Result) { r.Details = nil }), "results[0].details"},
		{"details of another type", finishOf(func(r *Result) { r.Details = json.RawMessage(`"x"`) }), "results[0].details"},
		{"broken details", finishOf(func(r *Result) { r.Details = json.RawMessage(`{"a"`) }), "results[0].details"},
		{"too many artifacts", finishOf(func(r *Result) { r.Artifacts = make([]evidence.Artifact, MaxArtifacts+1) }), "results[0].artifacts"},
		{"a nameless artifact", finishOf(func(r *Result) { r.Artifacts = []evidence.Artifact{{SHA256: emptyDigest}} }), "results[0].artifacts[0].name"},
		{"an artifact with a bad digest", finishOf(func(r *Result) { r.Artifacts = []evidence.Artifact{{Name: "a", SHA256: "x"}} }), "results[0].artifacts[0].sha256"},
		{"an artifact of negative size", finishOf(func(r *Result) {
			r.Artifacts = []evidence.Artifact{{Name: "a", SHA256: emptyDigest, Bytes: -1}}
		}), "results[0].artifacts[0].bytes"},
		{"a large inline blob", finishOf(func(r *Result) { r.Inline = map[string][]byte{emptyDigest: make([]byte, MaxInline+1)} }), "results[0].inline"},
		{"an inline blob without a digest", finishOf(func(r *Result) { r.Inline = map[string][]byte{"": nil} }), "results[0].inline"},
		{"too many happenings", finishOf(func(r *Result) { r.Happenings = make([]Happening, MaxReports+1) }), "results[0].happenings"},
		{"a bad happening", finishOf(func(r *Result) { r.Happenings = []Happening{{N: 0, Type: "a"}} }), "results[0].happenings[0].n"},

		{"a cancel of nothing", Cancel{}, "job_id"},
		{"a long reason", Cancel{Held: Held{JobID: "j"}, Reason: strings.Repeat("x", maxText+1)}, "reason"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			err := tc.what.Check()
			var f *fault.Error
			if !errors.As(err, &f) || f.Kind != fault.Invalid || f.Field != tc.field {
				t.Errorf("got %v, want an Invalid fault about %s", err, tc.field)
			}
		})
	}
}

func TestWhatIsInBoundsPasses(t *testing.T) {
	t.Parallel()
	for name, what := range map[string]checker{
		"registration": registration(func(r *Registration) { r.Holding = []Held{{JobID: "j", Fence: 2}}; r.Models = []string{"m"} }),
		"lease":        LeaseRequest{Session: "s", Max: MaxLeases, Wait: MaxWait},
		"extend":       ExtendRequest{Session: "s"},
		"event":        reportOf(ReportItem{Event: &Happening{N: 1, Type: "exec.started", Data: json.RawMessage(`{}`)}}),
		"null data":    reportOf(ReportItem{Event: &Happening{N: 1, Type: "exec.started", Data: json.RawMessage(`null`)}}),
		"old fence":    reportOf(ReportItem{Held: Held{JobID: "j"}, Output: &Chunk{Stream: sandbox.Stderr, Data: make([]byte, MaxChunk)}}),
		"finish": finishOf(func(r *Result) {
			r.Artifacts = []evidence.Artifact{{Name: "artifacts/ä b", SHA256: emptyDigest}}
			r.Inline = map[string][]byte{emptyDigest: {}}
		}),
		"cancel": Cancel{Held: Held{JobID: "j", Fence: 1}, Reason: "asked to"},
	} {
		if err := what.Check(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestBlobs(t *testing.T) {
	t.Parallel()
	if err := CheckBlob(emptyDigest, MaxBlobBytes); err != nil {
		t.Error(err)
	}
	if err := CheckBlob(emptyDigest, MaxBlobBytes+1); !fault.Is(err, fault.TooLarge) {
		t.Errorf("an oversized blob: %v", err)
	}
	for _, digest := range []string{"", "x", strings.ToUpper(emptyDigest), emptyDigest + "00", "../" + emptyDigest[3:]} {
		if err := CheckBlob(digest, 1); !fault.Is(err, fault.Invalid) {
			t.Errorf("digest %q: %v", digest, err)
		}
	}
	if err := CheckBlob(emptyDigest, -1); !fault.Is(err, fault.Invalid) {
		t.Errorf("unknown size: %v", err)
	}
}
