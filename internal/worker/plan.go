package worker

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/job"
	"github.com/aurea-dev/aurea/internal/language"
)

// plan is what a payload asks for, in the terms of a sandbox.
type plan struct {
	work    job.Work
	files   map[string]string // to put into the workspace
	before  map[string]string // what the diff compares with
	command []string          // none where files are all that is asked for
}

// planFor reads a payload. The fault says why it cannot be run here.
func planFor(payload json.RawMessage, languages *language.Registry) (plan, error) {
	work, err := job.ParseWork(payload)
	if err != nil {
		return plan{}, fmt.Errorf("read payload: %w", err)
	}
	p := plan{work: work, files: work.Files}
	switch work.Action {
	case job.CreateFile, job.WriteFiles:
		// Writing the files is the work, so the workspace began empty.
		return p, nil
	case job.Exec:
		p.command = work.Command
	case job.Run:
		if err := p.inLanguage(languages); err != nil {
			return plan{}, err
		}
	}
	p.before = p.files
	return p, nil
}

// inLanguage adds the code as a file, and the command that runs it.
func (p *plan) inLanguage(languages *language.Registry) error {
	lang, err := languages.Find(p.work.Language)
	if err != nil {
		return err
	}
	if _, taken := p.files[lang.File]; taken {
		return fault.Field("files", "%s is the file that the code goes into; give this one another name", lang.File)
	}
	p.files = maps.Clone(p.files)
	if p.files == nil {
		p.files = map[string]string{}
	}
	p.files[lang.File] = p.work.Code
	// What a compile step makes is no part of the workspace.
	const out = "/tmp/main"
	p.command = lang.RunCommand(lang.File, out, p.work.Args)
	if compile := lang.CompileCommand(lang.File, out); compile != nil {
		// A job has one command. Its words come from the registry, the
		// arguments go around the shell's reading of them.
		script := quote(compile) + " && exec " + quote(lang.RunCommand(lang.File, out, nil)) + ` "$@"`
		p.command = slices.Concat([]string{"sh", "-c", script, "sh"}, p.work.Args)
	}
	return nil
}

// quote writes words so that a shell reads them as they are.
func quote(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
	}
	return strings.Join(quoted, " ")
}

// archive packs the files for the sandbox.
func (p plan) archive() (*bytes.Reader, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, name := range slices.Sorted(maps.Keys(p.files)) {
		text := p.files[name]
		h := &tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(text)), ModTime: time.Unix(0, 0)}
		if err := w.WriteHeader(h); err != nil {
			return nil, fmt.Errorf("pack %s: %w", clip(name), err)
		}
		if _, err := w.Write([]byte(text)); err != nil {
			return nil, fmt.Errorf("pack %s: %w", clip(name), err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("pack files: %w", err)
	}
	return bytes.NewReader(b.Bytes()), nil
}

// clip keeps a text short where it is shown.
func clip(s string) string {
	const most = 1000
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
