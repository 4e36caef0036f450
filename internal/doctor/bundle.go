package doctor

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Bounds of a bundle.
const (
	maxLog   = 1 << 20 // of the end of each log
	maxPanic = 256 << 10
	maxFiles = 200
)

// Bundle is what support needs to know.
type Bundle struct {
	Report Report
	// Versions are name and version of the parts.
	Versions map[string]string
	// Settings are shown as they stand; the caller has hidden the secrets.
	Settings any
	// Logs are files whose end is packed, Panics patterns of files in which a
	// sentry wrote its last words.
	Logs   []string
	Panics []string
	// Secrets are taken out wherever they stand, besides what looks like one.
	Secrets []string
}

// Write packs the bundle as a gzipped tar. What cannot be read is named in it.
func (b Bundle) Write(w io.Writer) error {
	zipped := gzip.NewWriter(w)
	p := &packer{tar: tar.NewWriter(zipped), clean: cleaner(b.Secrets), at: b.Report.At}
	p.json("doctor.json", b.Report)
	p.json("versions.json", b.Versions)
	p.json("settings.json", b.Settings)
	for i, path := range b.Logs {
		p.file(fmt.Sprintf("logs/%02d-%s", i, filepath.Base(path)), path, maxLog)
	}
	for _, pattern := range b.Panics {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			p.notes = append(p.notes, pattern+": "+err.Error())
		}
		for _, path := range paths {
			p.file("panics/"+filepath.Base(filepath.Dir(path))+"-"+filepath.Base(path), path, maxPanic)
		}
	}
	p.add("notes.txt", []byte(strings.Join(p.notes, "\n")+"\n"))
	if err := errors.Join(p.err, p.tar.Close(), zipped.Close()); err != nil {
		return fmt.Errorf("write the bundle: %w", err)
	}
	return nil
}

// packer writes files into the bundle and remembers what went wrong.
type packer struct {
	tar   *tar.Writer
	clean func([]byte) []byte
	at    time.Time
	files int
	notes []string
	err   error
}

func (p *packer) add(name string, body []byte) {
	if p.err != nil {
		return
	}
	if p.files++; p.files > maxFiles {
		p.notes = append(p.notes, name+": left out, there are too many")
		return
	}
	body = p.clean(body)
	p.err = p.tar.WriteHeader(&tar.Header{Name: "aurea-diagnose/" + name, Mode: 0o600, Size: int64(len(body)), ModTime: p.at})
	if p.err == nil {
		_, p.err = p.tar.Write(body)
	}
}

func (p *packer) json(name string, v any) {
	body, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		p.notes = append(p.notes, name+": "+err.Error())
		return
	}
	p.add(name, append(body, '\n'))
}

// file packs the end of a regular file. A sandbox's kernel wrote some of them,
// so a link is not followed and nothing that blocks is opened.
func (p *packer) file(name, path string, most int64) {
	body, err := tail(path, most)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(body) == 0 {
		return
	}
	if err != nil {
		p.notes = append(p.notes, string(p.clean([]byte(path+": "+err.Error()))))
		return
	}
	p.add(name, body)
}

func tail(path string, most int64) ([]byte, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("not a regular file")
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	cut := info.Size() > most
	if cut {
		if _, err := f.Seek(-most, io.SeekEnd); err != nil {
			return nil, err
		}
	}
	body, err := io.ReadAll(io.LimitReader(f, most))
	if err != nil {
		return nil, err
	}
	if cut { // half a line may be half a secret, which nothing recognises
		_, body, _ = bytes.Cut(body, []byte("\n"))
	}
	return body, nil
}

const hidden = "[hidden]"

// cleaner returns what takes secrets out of a text: those that are known, and
// what looks like one.
func cleaner(secrets []string) func([]byte) []byte {
	known := slices.DeleteFunc(slices.Clone(secrets), func(s string) bool { return len(s) < 4 })
	slices.SortFunc(known, func(a, b string) int { return len(b) - len(a) }) // one may hold another
	looks := []*regexp.Regexp{
		regexp.MustCompile(`(?i)((?:authorization|x-api-key|cookie)["']?\s*[:=]\s*["']?)(?:(?:bearer|basic)\s+)?[^\s"',]+`),
		regexp.MustCompile(`(?i)(bearer\s+)[a-z0-9._~+/=-]{8,}`),
		regexp.MustCompile(`(?i)([a-z0-9_]*(?:password|passwd|secret|token|api_?key|access_?key|private_?key)["']?\s*[:=]\s*["']?)[^\s"',}]+`),
		regexp.MustCompile(`([a-zA-Z][a-zA-Z0-9+.-]*://[^/\s:@"']*:)[^@\s/"']+`),
		regexp.MustCompile(`()AKIA[0-9A-Z]{16}`),
		regexp.MustCompile(`()(?:ghp|gho|ghs|ghu|github_pat|glpat|sk|xox[abp])[_-][A-Za-z0-9_-]{16,}`),
		regexp.MustCompile(`(?s)()-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\z)`),
	}
	return func(body []byte) []byte {
		for _, s := range known {
			body = bytes.ReplaceAll(body, []byte(s), []byte(hidden))
		}
		for _, re := range looks {
			body = re.ReplaceAll(body, []byte("${1}"+hidden))
		}
		return body
	}
}
