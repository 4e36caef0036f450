package dispatch

import (
	"path"
	"strings"
	"unicode/utf8"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/live"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// maxPath bounds a path in a sandbox.
const maxPath = sandbox.MaxPath

// CheckSandboxPath refuses what is no absolute path in a sandbox. What it leads
// to is the sandbox's own business. It crosses as JSON, which would change bytes
// that are no text.
func CheckSandboxPath(field, p string) error {
	if err := sandbox.CheckPath(field, p); err != nil {
		return err
	}
	if !utf8.ValidString(p) {
		return fault.Field(field, "must be valid UTF-8")
	}
	return nil
}

// checkWorkspaceFiles refuses names that lead out of the workspace, or are
// written so that two could be one.
func checkWorkspaceFiles(files map[string][]byte) error {
	if err := checkCount("files", len(files), maxRunNames); err != nil {
		return err
	}
	total := 0
	for name, data := range files {
		if name == "" || name == "." || len(name) > maxPath || path.Clean(name) != name || strings.HasPrefix(name, "/") ||
			name == ".." || strings.HasPrefix(name, "../") || strings.ContainsRune(name, 0) || !utf8.ValidString(name) {
			return fault.Field("files", "has a name that is no plain path below the workspace")
		}
		total += len(data)
	}
	if total > MaxOrderBytes {
		return fault.Field("files", "have %d bytes; at most %d are allowed", total, MaxOrderBytes)
	}
	return nil
}

// CheckClosing refuses an end that is out of bounds.
func CheckClosing(c live.Closing) error {
	if err := CheckSandboxID("id", c.ID); err != nil {
		return err
	}
	if !c.Outcome.Valid() {
		return fault.Field("outcome", "is not an outcome")
	}
	return checkText("reason", c.Reason, maxText)
}

// CheckAdjust refuses limits that are out of bounds.
func CheckAdjust(id string, l sandbox.Limits) error {
	if err := CheckSandboxID("id", id); err != nil {
		return err
	}
	return checkLimits("limits", l)
}

// CheckSnapshotID refuses what is no id of a snapshot: it becomes the name of a
// folder.
func CheckSnapshotID(field, id string) error { return CheckExecID(field, id) }

// CheckSnapshotOrder refuses an order that is out of bounds.
func CheckSnapshotOrder(o live.SnapshotOrder) error {
	if err := CheckSnapshotID("id", o.ID); err != nil {
		return err
	}
	if err := CheckSandboxID("sandbox", o.Sandbox); err != nil {
		return err
	}
	if o.Kind != live.Files && o.Kind != live.Full {
		return fault.Field("kind", "must be %s or %s", live.Files, live.Full)
	}
	if o.Generation < 0 {
		return fault.Field("generation", "must not be negative")
	}
	return nil
}

// CheckSnapshotMade refuses what no worker can have made.
func CheckSnapshotMade(m live.SnapshotMade) error {
	if m.Bytes < 0 {
		return fault.Field("bytes", "must not be negative")
	}
	if m.SHA256 == "" {
		return nil
	}
	return checkDigest("sha256", m.SHA256)
}

// CheckMade refuses what no worker can have made.
func CheckMade(m live.Made) error {
	for _, w := range []struct{ field, text string }{{"driver", m.Driver}, {"isolation", m.Isolation}, {"image_digest", m.Digest}} {
		if err := checkText(w.field, w.text, maxWord); err != nil {
			return err
		}
	}
	if err := checkText("image", m.Image, maxText); err != nil {
		return err
	}
	return checkLimits("enforced", m.Enforced)
}

// CheckStats refuses what cannot be measured.
func CheckStats(s live.Stats) error {
	if s.Execs < 0 || s.Disk < -1 || s.Usage.CPU < -1 || s.Usage.Memory < -1 || s.Usage.PeakMemory < -1 || s.Usage.Processes < -1 {
		return fault.Field("usage", "must not be negative, but for -1")
	}
	return nil
}

// checkExec checks the names of an exec and its sandbox.
func checkExec(box, exec string) error {
	if err := CheckSandboxID("sandbox", box); err != nil {
		return err
	}
	return CheckExecID("exec", exec)
}

// CheckFollow refuses offsets that cannot be.
func CheckFollow(f live.Follow) error {
	if err := checkExec(f.Sandbox, f.Exec); err != nil {
		return err
	}
	if f.From.Stdout < 0 || f.From.Stderr < 0 {
		return fault.Field("from", "must not be negative")
	}
	return nil
}

// CheckInput refuses input that is out of bounds.
func CheckInput(in live.Input) error {
	if err := checkExec(in.Sandbox, in.Exec); err != nil {
		return err
	}
	if in.Offset < -1 || in.Offset > maxInputEver {
		return fault.Field("offset", "must be from 0 on, or -1 for the end")
	}
	if len(in.Data) > MaxInput {
		return fault.Field("data", "has %d bytes; at most %d go at a time", len(in.Data), MaxInput)
	}
	return nil
}

// maxInputEver is more than anybody sends, and far from where numbers end.
const maxInputEver = 1 << 60

// CheckSignal refuses what is no signal.
func CheckSignal(s live.Signal) error {
	if err := checkExec(s.Sandbox, s.Exec); err != nil {
		return err
	}
	if s.Kill == "" && (s.Signal < 1 || s.Signal > maxSignal) {
		return fault.Field("signal", "must be from 1 to %d", maxSignal)
	}
	return checkText("kill", s.Kill, maxText)
}

// CheckTerminalSize refuses a terminal without a size.
func CheckTerminalSize(s live.Size) error {
	if err := checkExec(s.Sandbox, s.Exec); err != nil {
		return err
	}
	if s.Cols == 0 || s.Rows == 0 {
		return fault.Field("cols", "a terminal has at least one column and one row")
	}
	return nil
}

// CheckFileInfo refuses what no file can be.
func CheckFileInfo(f sandbox.FileInfo) error {
	const most = 3 * sandbox.MaxPath // bytes that are no text grow on the way
	if len(f.Path) > most || len(f.Name) > most || len(f.Target) > most {
		return fault.Field("path", "is too long")
	}
	if f.Size < 0 || f.Mode > sandbox.MaxFileMode {
		return fault.Field("mode", "size and mode are out of range")
	}
	return checkFileType(f.Type)
}

func checkFileType(t sandbox.FileType) error {
	switch t {
	case sandbox.TypeFile, sandbox.TypeDir, sandbox.TypeLink, sandbox.TypeOther:
		return nil
	}
	return fault.Field("type", "is not a type of file")
}

// CheckChange refuses what cannot happen to a file.
func CheckChange(c sandbox.Change) error {
	const most = 3 * sandbox.MaxPath
	if len(c.Path) > most || len(c.From) > most {
		return fault.Field("path", "is too long")
	}
	switch c.Kind {
	case sandbox.ChangeCreated, sandbox.ChangeModified, sandbox.ChangeDeleted, sandbox.ChangeRenamed, sandbox.ChangeOverflow:
	default:
		return fault.Field("kind", "is not a kind of change")
	}
	if c.Type == "" {
		return nil
	}
	return checkFileType(c.Type)
}
