package filesync

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/aurea-dev/aurea/internal/blob"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/file"
	"github.com/aurea-dev/aurea/internal/sandbox"
	"github.com/aurea-dev/aurea/internal/store"
)

// pass is one pass over one tree.
type pass struct {
	*Syncer
	side    Side
	req     Request
	root    string
	limits  Limits
	changed map[string]bool // paths of which a change was told
	choice  *choice

	ignored ignore
	tree    *tree
	heads   map[string]file.File
	synced  map[string]file.Synced
	result  Result

	put  []file.Synced // to be remembered
	drop []string
	away int // calls in a row that the sandbox did not answer
}

const (
	maxFailures = 100
	maxAway     = 5
	rememberAt  = 200
	maxRetries  = 3
	// racy is within how much of its reading a file may have changed without its
	// time showing it.
	racy = 2 * time.Second
)

func (p *pass) run(ctx context.Context) (err error) {
	if p.synced, err = p.shelf.synced(ctx, p.req.Sandbox, p.req.between()); err != nil {
		return err
	}
	if p.heads, err = p.shelf.heads(ctx, p.req.Session); err != nil {
		return err
	}
	if err := p.readIgnore(ctx); err != nil {
		return err
	}
	if err := p.look(ctx); err != nil {
		return err
	}
	for _, name := range p.paths() {
		if err := p.settle(ctx, name); err != nil {
			return errors.Join(err, p.flush(context.WithoutCancel(ctx)))
		}
		if len(p.put)+len(p.drop) >= rememberAt {
			if err := p.flush(ctx); err != nil {
				return err
			}
		}
	}
	return p.flush(ctx)
}

// flush remembers what was done.
func (p *pass) flush(ctx context.Context) error {
	err := p.shelf.remember(ctx, p.req.Sandbox, p.put, p.drop)
	p.put, p.drop = nil, nil
	return err
}

// readIgnore reads the ignore file of the sandbox, or where that has none the
// stored one.
func (p *pass) readIgnore(ctx context.Context) error {
	data, _, err := p.read(ctx, IgnoreFile)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil && !fault.Is(err, fault.NotFound) {
		p.fail(IgnoreFile, err)
	}
	if head, ok := p.heads[IgnoreFile]; err != nil && ok && !head.Deleted {
		if data, err = p.shelf.read(ctx, head.SHA256); err != nil {
			return err // without it we would sync what was not meant
		}
	}
	p.ignored = parseIgnore(string(data))
	return nil
}

// paths lists what is to be settled, what is to be removed from the sandbox
// first: a file can then make room for a folder, and a folder for a file.
func (p *pass) paths() []string {
	all := map[string]bool{}
	for name := range p.tree.files {
		all[name] = true
	}
	for name := range p.synced {
		all[name] = true
	}
	for name, head := range p.heads {
		if !head.Deleted {
			all[name] = true
		}
	}
	first := func(name string) int {
		head, ok := p.heads[name]
		if _, there := p.tree.files[name]; there && (!ok || head.Deleted) {
			if _, was := p.synced[name]; was {
				return 0
			}
		}
		return 1
	}
	maps.DeleteFunc(all, func(name string, _ bool) bool {
		return p.ignored.matchPath(name) || p.choice != nil && p.choice.path != name
	})
	return slices.SortedFunc(maps.Keys(all), func(a, b string) int {
		return cmp.Or(first(a)-first(b), strings.Compare(a, b))
	})
}

// settle makes a path alike on both sides. Its error ends the pass.
func (p *pass) settle(ctx context.Context, name string) error {
	err := p.step(ctx, name)
	for try := 1; try < maxRetries && fault.CodeOf(err) == store.CodeFileChanged; try++ {
		var head file.File
		viewErr := p.shelf.store.View(ctx, func(tx store.Tx) (err error) {
			head, _, err = tx.Files().Get(ctx, p.req.Session, name)
			return err
		})
		if viewErr != nil {
			return viewErr
		}
		p.heads[name] = head
		err = p.step(ctx, name)
	}
	if err == nil {
		p.away = 0
		return nil
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	p.fail(name, err)
	if p.away++; !fault.Is(err, fault.Unavailable) {
		p.away = 0
	}
	if p.away >= maxAway {
		return fault.New(fault.Unavailable, "sync files: %w: %w", errSandboxAway, err)
	}
	return nil
}

// fail lists a path that could not be synced.
func (p *pass) fail(name string, err error) {
	p.result.Failed++
	if fault.KindOf(err) == fault.Internal {
		p.log.Warn("sync a file", "session", p.req.Session, "sandbox", p.req.Sandbox, "path", name, "error", err)
	}
	if len(p.result.Errors) < maxFailures {
		p.result.Errors = append(p.result.Errors, Failure{Path: strings.ToValidUTF8(name, "\uFFFD"), Code: fault.CodeOf(err), Message: message(err)})
	}
}

// message is what may be told of an error: what is ours to mend stays in the log.
func message(err error) string {
	if fault.KindOf(err) == fault.Internal {
		return "something went wrong here; the log says what"
	}
	return err.Error()
}

// state is a path on one side; the zero value is that it is not there.
type state struct {
	sha256 string
	runs   bool // it can be executed
}

func stateOf(sha256 string, mode uint32) state {
	if sha256 == "" {
		return state{}
	}
	return state{sha256, mode&0o100 != 0}
}

// local is a file of the sandbox.
type local struct {
	info  sandbox.FileInfo
	there bool
	data  []byte // nil when it did not have to be read
	state state
}

// step decides about one path, and does it.
func (p *pass) step(ctx context.Context, name string) error {
	base, head := p.synced[name], p.heads[name]
	stored, was := stateOf(head.SHA256, head.Mode), stateOf(base.SHA256, base.Mode)
	here, err := p.here(ctx, name, base)
	if err != nil || here == nil {
		return err
	}
	switch {
	case here.state == stored:
		p.remember(name, here.state, here.info)
		return nil
	case here.state == was:
		return p.pull(ctx, name, here, head)
	case stored == was, stored == state{}: // a change wins over a deletion
		return p.push(ctx, name, here, head)
	case here.state == state{}:
		return p.pull(ctx, name, here, head)
	}
	return p.conflict(ctx, name, here, head, base)
}

// here looks at a file of the sandbox, and reads it unless it is as it was. nil
// is that it cannot be told.
func (p *pass) here(ctx context.Context, name string, base file.Synced) (*local, error) {
	info, there := p.tree.files[name]
	if !there {
		if p.tree.taken[name] {
			return nil, fault.New(fault.Conflict, "something that is no file stands there in the sandbox").WithCode(sandbox.CodeNotFile)
		}
		if !p.tree.sure(name) {
			return nil, nil
		}
		return &local{}, nil
	}
	l := &local{info: info, there: true}
	if !p.req.Thorough && !p.changed[name] && asItWas(info, base) {
		l.state = stateOf(base.SHA256, base.Mode)
		return l, nil
	}
	if err := p.load(ctx, name, l); err != nil {
		if fault.Is(err, fault.NotFound) {
			return nil, nil // it went meanwhile; the next pass knows
		}
		return nil, err
	}
	return l, nil
}

func asItWas(info sandbox.FileInfo, base file.Synced) bool {
	return base.SHA256 != "" && info.Size == base.Size && info.ModTime.UnixMicro() == base.Modified.UnixMicro() && info.Mode&0o777 == base.Mode &&
		base.At.Sub(base.Modified) > racy
}

// load reads a file of the sandbox.
func (p *pass) load(ctx context.Context, name string, l *local) error {
	if l.info.Size > p.limits.FileBytes {
		return tooLarge(p.limits.FileBytes)
	}
	data, info, err := p.read(ctx, name)
	if err != nil {
		return err
	}
	if data == nil {
		data = []byte{}
	}
	l.data, l.info, l.state = data, info, stateOf(blob.Digest(data), info.Mode)
	return nil
}

// remember notes what is on both sides now.
func (p *pass) remember(name string, now state, info sandbox.FileInfo) {
	if now == (state{}) {
		if _, known := p.synced[name]; known {
			p.drop = append(p.drop, name)
		}
		return
	}
	s := file.Synced{Path: name, SHA256: now.sha256, Mode: info.Mode & 0o777, Size: info.Size, Modified: info.ModTime, At: p.now()}
	if old, ok := p.synced[name]; ok && old.SHA256 == s.SHA256 && asItWas(info, old) {
		return
	}
	p.put = append(p.put, s)
}

// push brings what the sandbox has onto the shelf.
func (p *pass) push(ctx context.Context, name string, here *local, head file.File) error {
	f := file.File{Session: p.req.Session, Path: name, Origin: p.req.Sandbox, Deleted: !here.there, Modified: p.now()}
	if here.there {
		if here.data == nil {
			if err := p.load(ctx, name, here); err != nil {
				return err
			}
		}
		f.Mode = here.info.Mode & 0o777
		if here.info.ModTime.Before(f.Modified) { // the sandbox's clock may say anything
			f.Modified = here.info.ModTime
		}
	}
	if err := p.shelf.put(ctx, &f, head.Version, here.data); err != nil {
		return err
	}
	p.heads[name] = f
	if here.there {
		p.result.Uploaded = append(p.result.Uploaded, name)
	} else {
		p.result.Deleted = append(p.result.Deleted, name)
	}
	p.remember(name, here.state, here.info)
	return nil
}

// pull brings what the shelf has into the sandbox.
func (p *pass) pull(ctx context.Context, name string, here *local, head file.File) error {
	if err := p.still(ctx, name, here); err != nil {
		return err
	}
	if head.SHA256 == "" {
		if err := p.side.Remove(ctx, path.Join(p.root, name), false); err != nil && !fault.Is(err, fault.NotFound) {
			return err
		}
		p.prune(ctx, name)
		p.result.Deleted = append(p.result.Deleted, name)
		p.remember(name, state{}, sandbox.FileInfo{})
		return nil
	}
	data, err := p.shelf.read(ctx, head.SHA256)
	if err != nil {
		return err
	}
	if err := p.write(ctx, name, data, head.SHA256, head.Mode); err != nil {
		return err
	}
	p.result.Downloaded = append(p.result.Downloaded, name)
	return nil
}
