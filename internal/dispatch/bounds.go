package dispatch

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/aurea-dev/aurea/internal/evidence"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/language"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// Bounds of single fields.
const (
	maxWord      = 200  // bytes of an id or a name
	maxText      = 4096 // bytes of a reason or an artifact's name
	maxNames     = 64   // models, drivers
	maxLanguages = 200
	maxSlots     = 10_000 // jobs at a time on one worker
	// maxVerdict bounds what is said of a driver that is not served.
	maxVerdict = 4096
	maxData    = 64 << 10 // bytes of what a happening says
	// maxDetails bounds what a result says for people and programs; bytes that
	// matter are artifacts.
	maxDetails = 1 << 20
)

// Check refuses a registration that is out of bounds. Which versions of the
// wire are spoken is the manager's to say.
func (r Registration) Check() error {
	for _, w := range []struct{ field, word string }{
		{"worker_id", r.WorkerID}, {"identity", r.Identity}, {"incarnation", r.Incarnation},
	} {
		if err := checkWord(w.field, w.word); err != nil {
			return err
		}
	}
	if err := checkText("role", r.Role, maxWord); err != nil {
		return err
	}
	if err := checkText("version", r.Version, maxWord); err != nil {
		return err
	}
	if r.Slots < 0 || r.Slots > maxSlots {
		return fault.Field("slots", "must be from 0 to %d", maxSlots)
	}
	if err := checkCount("models", len(r.Models), maxNames); err != nil {
		return err
	}
	for i, m := range r.Models {
		if err := checkWord(at("models", i), m); err != nil {
			return err
		}
	}
	if err := checkCount("drivers", len(r.Drivers), maxNames); err != nil {
		return err
	}
	for i, d := range r.Drivers {
		if err := d.check(at("drivers", i)); err != nil {
			return err
		}
	}
	if err := checkLanguages(r.Languages); err != nil {
		return err
	}
	if err := checkHeld("holding", r.Holding); err != nil {
		return err
	}
	if err := checkStandings(r.Sandboxes); err != nil {
		return err
	}
	if err := checkCount("lost", len(r.Lost), MaxHeld); err != nil {
		return err
	}
	for i := range r.Lost {
		if err := r.Lost[i].check(at("lost", i)); err != nil {
			return err
		}
	}
	return checkTripped(r.Tripped)
}

func (d DriverSummary) check(field string) error {
	if err := checkWord(field+".name", d.Name); err != nil {
		return err
	}
	if err := checkText(field+".version", d.Version, maxWord); err != nil {
		return err
	}
	if err := checkText(field+".degraded", d.Degraded, maxVerdict); err != nil || d.Probe == nil {
		return err
	}
	if d.Probe.Stopped < 0 || d.Probe.Tried < d.Probe.Stopped {
		return fault.Field(field+".probe", "stops %d of %d attempts", d.Probe.Stopped, d.Probe.Tried)
	}
	return checkText(field+".probe.exempt", d.Probe.Exempt, maxVerdict)
}

func checkLanguages(all []language.Status) error {
	if err := checkCount("languages", len(all), maxLanguages); err != nil {
		return err
	}
	for i, l := range all {
		field := at("languages", i)
		if err := checkWord(field+".name", l.Name); err != nil {
			return err
		}
		if err := checkWord(field+".file", l.File); err != nil {
			return err
		}
		if err := checkCount(field+".aliases", len(l.Aliases), maxNames); err != nil {
			return err
		}
		for j, a := range l.Aliases {
			if err := checkWord(at(field+".aliases", j), a); err != nil {
				return err
			}
		}
		if err := checkText(field+".image", l.Image, maxText); err != nil {
			return err
		}
		if err := checkText(field+".reason", l.Reason, maxVerdict); err != nil {
			return err
		}
	}
	return nil
}

func (l Lost) check(field string) error {
	if err := l.Held.check(); err != nil {
		return within(field, err)
	}
	if err := checkText(field+".sandbox", l.Sandbox, maxWord); err != nil {
		return err
	}
	return checkText(field+".reason", l.Reason, maxText)
}

// Check refuses a request for work that is out of bounds.
func (r LeaseRequest) Check() error {
	if r.Max < 1 || r.Max > MaxLeases {
		return fault.Field("max", "must be from 1 to %d", MaxLeases)
	}
	if r.Wait < 0 || r.Wait > MaxWait {
		return fault.Field("wait_ns", "must be from 0 to %s", MaxWait)
	}
	return checkWord("session", r.Session)
}

// Check refuses an extension that is out of bounds.
func (r ExtendRequest) Check() error {
	if err := checkHeld("held", r.Held); err != nil {
		return err
	}
	if err := checkText("paused", r.Paused, maxText); err != nil {
		return err
	}
	if f := r.Figures; f.Sandboxes < 0 || f.DiskFree < 0 || f.DiskBytes < 0 {
		return fault.Field("figures", "must not be negative")
	}
	if err := checkLanguages(r.Languages); err != nil {
		return err
	}
	if err := checkTripped(r.Tripped); err != nil {
		return err
	}
	return checkWord("session", r.Session)
}

// Check refuses a report that is out of bounds.
func (r ReportRequest) Check() error {
	if err := checkCount("items", len(r.Items), MaxReports); err != nil {
		return err
	}
	for i := range r.Items {
		if err := r.Items[i].check(); err != nil {
			return within(at("items", i), err)
		}
	}
	return checkWord("session", r.Session)
}

func (it ReportItem) check() error {
	if err := it.Held.check(); err != nil {
		return err
	}
	switch {
	case it.Event != nil && it.Output != nil, it.Event == nil && it.Output == nil:
		return fault.Field("", "must be an event or a piece of output, and not both")
	case it.Event != nil:
		return within("event", it.Event.check())
	}
	return within("output", it.Output.check())
}

func (h Happening) check() error {
	if h.N < 1 {
		return fault.Field("n", "must be at least 1")
	}
	if err := checkWord("type", string(h.Type)); err != nil {
		return err
	}
	if len(h.Data) == 0 || string(h.Data) == "null" {
		return nil
	}
	return checkObject("data", h.Data, maxData)
}

func (c Chunk) check() error {
	if c.Stream != sandbox.Stdout && c.Stream != sandbox.Stderr {
		return fault.Field("stream", "must be %d or %d", sandbox.Stdout, sandbox.Stderr)
	}
	if len(c.Data) > MaxChunk {
		return fault.Field("data", "has %d bytes; at most %d fit in one piece", len(c.Data), MaxChunk)
	}
	if c.Offset < 0 || c.Offset > math.MaxInt64-MaxChunk {
		return fault.Field("offset", "is out of range")
	}
	return nil
}

// Check refuses results that are out of bounds.
func (r FinishRequest) Check() error {
	if err := checkCount("results", len(r.Results), MaxFinishes); err != nil {
		return err
	}
	for i := range r.Results {
		if err := r.Results[i].check(); err != nil {
			return within(at("results", i), err)
		}
	}
	return checkWord("session", r.Session)
}

func (r Result) check() error {
	if err := r.Held.check(); err != nil {
		return err
	}
	if err := checkObject("details", r.Details, maxDetails); err != nil {
		return err
	}
	if err := checkCount("artifacts", len(r.Artifacts), MaxArtifacts); err != nil {
		return err
	}
	for i, a := range r.Artifacts {
		if err := checkLeft(a); err != nil {
			return within(at("artifacts", i), err)
		}
	}
	if err := checkCount("inline", len(r.Inline), MaxArtifacts); err != nil {
		return err
	}
	for digest, data := range r.Inline {
		if err := checkDigest("inline", digest); err != nil {
			return err
		}
		if len(data) > MaxInline {
			return fault.Field("inline", "has a blob of %d bytes; at most %d ride along, put larger ones first", len(data), MaxInline)
		}
	}
	if err := checkCount("happenings", len(r.Happenings), MaxReports); err != nil {
		return err
	}
	for i := range r.Happenings {
		if err := r.Happenings[i].check(); err != nil {
			return within(at("happenings", i), err)
		}
	}
	return nil
}

func checkLeft(a evidence.Artifact) error {
	if err := CheckArtifact("name", a.Name); err != nil {
		return err
	}
	if err := checkDigest("sha256", a.SHA256); err != nil {
		return err
	}
	if a.Bytes < 0 || a.Bytes > MaxBlobBytes {
		return fault.Field("bytes", "must be from 0 to %d", int64(MaxBlobBytes))
	}
	return nil
}

// Check refuses a command that is out of bounds.
func (c Cancel) Check() error {
	if err := c.check(); err != nil {
		return err
	}
	return checkText("reason", c.Reason, maxText)
}

// CheckSession refuses what cannot be a session.
func CheckSession(session string) error { return checkWord("session", session) }

// CheckArtifact refuses what cannot name an artifact. Code in a sandbox chooses
// the names of its files, so a worker asks before it puts one into a result.
func CheckArtifact(field, name string) error {
	if name == "" {
		return fault.Field(field, "must not be empty")
	}
	return checkText(field, name, maxText)
}

// CheckBlob refuses what cannot be a blob's digest (lower-case hex) and size.
func CheckBlob(sha256 string, size int64) error {
	if err := checkDigest("sha256", sha256); err != nil {
		return err
	}
	if size < 0 {
		return fault.Field("size", "must be known before the bytes are sent")
	}
	if size > MaxBlobBytes {
		return fault.New(fault.TooLarge, "a blob can have at most %d bytes, not %d", int64(MaxBlobBytes), size)
	}
	return nil
}

// check allows the fence 0: it is older than every lease, and is refused as
// such rather than as nonsense.
func (h Held) check() error {
	if err := checkWord("job_id", h.JobID); err != nil {
		return err
	}
	if h.Fence < 0 {
		return fault.Field("fence", "must not be negative")
	}
	return nil
}

func checkHeld(field string, held []Held) error {
	if err := checkCount(field, len(held), MaxHeld); err != nil {
		return err
	}
	for i, h := range held {
		if err := h.check(); err != nil {
			return within(at(field, i), err)
		}
	}
	return nil
}

func at(field string, i int) string { return fmt.Sprintf("%s[%d]", field, i) }

// within puts what a field is part of before its name. Only a refusal pays for
// that: every call is checked at both of its ends.
func within(field string, err error) error {
	var f *fault.Error
	if !errors.As(err, &f) {
		return err
	}
	whole := *f
	whole.Field = strings.TrimSuffix(field+"."+f.Field, ".")
	return &whole
}

func checkCount(field string, n, most int) error {
	if n > most {
		return fault.Field(field, "has %d entries; at most %d fit in one call", n, most)
	}
	return nil
}

func checkWord(field, word string) error {
	if word == "" {
		return fault.Field(field, "must not be empty")
	}
	return checkText(field, word, maxWord)
}

// checkText keeps control characters out of logs, file names and rows.
func checkText(field, text string, most int) error {
	if len(text) > most {
		return fault.Field(field, "has %d bytes; at most %d are allowed", len(text), most)
	}
	if !utf8.ValidString(text) {
		return fault.Field(field, "must be valid UTF-8")
	}
	for _, c := range text {
		if unicode.IsControl(c) {
			return fault.Field(field, "must not have control characters")
		}
	}
	return nil
}

func checkObject(field string, data json.RawMessage, most int) error {
	if len(data) > most {
		return fault.Field(field, "has %d bytes; at most %d are allowed", len(data), most)
	}
	if !bytes.HasPrefix(bytes.TrimLeft(data, " \t\r\n"), []byte("{")) || !json.Valid(data) {
		return fault.Field(field, "must be a JSON object")
	}
	return nil
}

func checkDigest(field, digest string) error {
	const digits = 64
	if len(digest) != digits {
		return fault.Field(field, "must have %d hex digits", digits)
	}
	var sum [digits / 2]byte
	if _, err := hex.Decode(sum[:], []byte(digest)); err != nil || hex.EncodeToString(sum[:]) != digest {
		return fault.Field(field, "must be lower-case hex")
	}
	return nil
}
