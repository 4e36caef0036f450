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
)

// Language says how code of one language is run: the file that it is put into,
// and the command that is given that file.
type Language struct {
	File    string
	Command []string
}

// Languages are those that a worker understands unless it is told others.
func Languages() map[string]Language {
	python := Language{"main.py", []string{"python3"}}
	javascript := Language{"main.js", []string{"node"}}
	shell := Language{"main.sh", []string{"sh"}}
	return map[string]Language{
		"python": python, "python3": python, "javascript": javascript, "js": javascript, "node": javascript,
		"bash": {"main.sh", []string{"bash"}}, "shell": shell, "sh": shell,
	}
}

// plan is what a payload asks for, in the terms of a sandbox.
type plan struct {
	work    job.Work
	files   map[string]string // to put into the workspace
	before  map[string]string // what the diff compares with
	command []string          // none where files are all that is asked for
}

// planFor reads a payload. The fault says why it cannot be run here.
func planFor(payload json.RawMessage, languages map[string]Language) (plan, error) {
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
		lang, ok := languages[strings.ToLower(strings.TrimSpace(work.Language))]
		if !ok {
			return plan{}, fault.Field("language", "%q is not known here; this worker runs %s",
				clip(work.Language), strings.Join(slices.Sorted(maps.Keys(languages)), ", ")).WithCode("unknown_language")
		}
		if _, taken := p.files[lang.File]; taken {
			return plan{}, fault.Field("files", "%s is the file that the code goes into; give this one another name", lang.File)
		}
		p.files = maps.Clone(p.files)
		if p.files == nil {
			p.files = map[string]string{}
		}
		p.files[lang.File] = work.Code
		p.command = slices.Concat(lang.Command, []string{lang.File}, work.Args)
	}
	p.before = p.files
	return p, nil
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
