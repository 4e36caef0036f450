package filesync

import (
	"bytes"
	"context"
	"io"
	"path"

	"github.com/aurea-dev/aurea/internal/blob"
	"github.com/aurea-dev/aurea/internal/evidence"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/file"
)

// write puts a file into the sandbox and notes that both have it.
func (p *pass) write(ctx context.Context, name string, data []byte, sha256 string, mode uint32) error {
	if mode == 0 {
		mode = 0o644
	}
	info, err := p.side.WriteFile(ctx, path.Join(p.root, name), mode, bytes.NewReader(data))
	if err != nil {
		return err
	}
	p.remember(name, stateOf(sha256, info.Mode), info)
	return nil
}

// still demands that a file of the sandbox is as it was looked at: what was
// changed since is not written over, and left to the next pass.
func (p *pass) still(ctx context.Context, name string, here *local) error {
	info, err := p.side.ReadFile(ctx, path.Join(p.root, name), 0, 0, io.Discard)
	switch {
	case fault.Is(err, fault.NotFound) && !here.there:
		return nil
	case err != nil && fault.CodeOf(err) == "not_dir" && !here.there:
		return nil // a file stands where a folder is meant; the write says so
	case err != nil && !fault.Is(err, fault.NotFound):
		return err
	case err != nil || !here.there || info.Size != here.info.Size || !info.ModTime.Equal(here.info.ModTime):
		return fault.New(fault.Conflict, "it changed in the sandbox meanwhile; the next pass looks again").WithCode("changed_meanwhile")
	}
	return nil
}

// prune removes the folders that a removal left empty.
func (p *pass) prune(ctx context.Context, name string) {
	for dir := parent(name); dir != ""; dir = parent(dir) {
		if p.side.Remove(ctx, path.Join(p.root, dir), false) != nil {
			return // it has entries, or is none of ours to remove
		}
	}
}

// conflict is that both sides changed a path, differently.
func (p *pass) conflict(ctx context.Context, name string, here *local, head file.File, base file.Synced) error {
	if here.data == nil {
		if err := p.load(ctx, name, here); err != nil {
			return err
		}
	}
	c := Conflict{Path: name, SHA256: here.state.sha256, ModifiedAt: here.info.ModTime, Stored: head}
	var err error
	switch c.Winner = p.winner(ctx, here, head, base); c.Winner {
	case Nobody:
	case InSandbox:
		err = p.push(ctx, name, here, head) // what was stored stays as a version
	case Stored:
		if err = p.lose(ctx, name, here); err == nil {
			err = p.pull(ctx, name, here, head)
		}
	case Merged:
		err = p.merge(ctx, name, here, head, base)
	}
	if err == nil {
		p.result.Conflicts = append(p.result.Conflicts, c)
	}
	return err
}

// winner applies the strategy, or what somebody has chosen.
func (p *pass) winner(ctx context.Context, here *local, head file.File, base file.Synced) Winner {
	chosen := p.choice != nil
	switch {
	case chosen && p.choice.winner != Merged:
		return p.choice.winner
	case !chosen && p.req.Strategy == Ask:
		return Nobody
	case chosen || p.req.Strategy == AutoMerge:
		if _, ok := p.merged(ctx, here, head, base); ok {
			return Merged
		}
		if chosen {
			return Nobody
		}
	}
	at := here.info.ModTime
	if now := p.now(); at.After(now) { // the sandbox's clock may say anything
		at = now
	}
	if at.After(head.Modified) {
		return InSandbox
	}
	return Stored
}

// lose keeps what the sandbox has as a version that is not the newest.
func (p *pass) lose(ctx context.Context, name string, here *local) error {
	f := file.File{Session: p.req.Session, Path: name, Origin: p.req.Sandbox, Mode: here.info.Mode & 0o777, Modified: here.info.ModTime}
	return p.shelf.keep(ctx, &f, here.data)
}

// merged puts the three texts together, where that can be done.
func (p *pass) merged(ctx context.Context, here *local, head file.File, base file.Synced) (string, bool) {
	if base.SHA256 == "" || !isText(here.data) {
		return "", false
	}
	old, err := p.shelf.read(ctx, base.SHA256)
	if err != nil || !isText(old) {
		return "", false
	}
	stored, err := p.shelf.read(ctx, head.SHA256)
	if err != nil || !isText(stored) {
		return "", false
	}
	return evidence.Merge(string(old), string(here.data), string(stored))
}

// merge stores what came out, and then writes it into the sandbox. What the
// sandbox had is kept before.
func (p *pass) merge(ctx context.Context, name string, here *local, head file.File, base file.Synced) error {
	text, ok := p.merged(ctx, here, head, base)
	if !ok {
		return fault.New(fault.Conflict, "both changed the same lines").WithCode("no_merge")
	}
	if err := p.lose(ctx, name, here); err != nil {
		return err
	}
	mode := here.info.Mode & 0o777
	if mode&0o111 == base.Mode&0o111 && head.Mode != 0 {
		mode = head.Mode // the other side's change of it, if any
	}
	data := []byte(text)
	if digest := blob.Digest(data); digest != head.SHA256 || mode != head.Mode {
		f := file.File{Session: p.req.Session, Path: name, Origin: p.req.Sandbox, Mode: mode, Modified: p.now()}
		if err := p.shelf.put(ctx, &f, head.Version, data); err != nil {
			return err
		}
		p.heads[name], head = f, f
	}
	if err := p.still(ctx, name, here); err != nil {
		return err
	}
	return p.write(ctx, name, data, head.SHA256, head.Mode)
}
