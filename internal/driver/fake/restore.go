package fake

import (
	"bytes"
	"errors"
	"io/fs"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// restore brings a sandbox back by playing its journal: files are put again,
// processes that had ended play to where they ended, in no time, and those that
// had not go on. What they had in the background is lost.
func restore(name string, h sandbox.Handle) (*box, error) {
	file, entries, err := openJournal(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fault.New(fault.NotFound, "the sandbox %s is dead or gone", h.ID)
	}
	if err != nil {
		return nil, err
	}
	b, unfinished, err := replay(h, entries)
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	b.journal.file = file // nobody else has seen the sandbox yet
	for _, p := range unfinished {
		if t, ok := p.newTask(); ok {
			go t.main()
		}
	}
	return b, nil
}

// replay plays the entries, and returns the processes that are to go on.
func replay(h sandbox.Handle, entries []entry) (*box, []*process, error) {
	gone := fault.New(fault.NotFound, "the sandbox %s is dead or was never ready", h.ID)
	if len(entries) < 2 || entries[0].Spec == nil || entries[0].Spec.ID != h.ID || !entries[1].Ready {
		return nil, nil, gone
	}
	s, err := readScript(entries[0].Spec.Env)
	if err != nil {
		return nil, nil, err
	}
	b := newBox(h, *entries[0].Spec, s)
	b.ready = true
	dead, paused := false, false
	inputs, exits := map[string][]inputEntry{}, map[string]*exitEntry{}
	for _, e := range entries {
		switch {
		case e.Dead:
			dead = true
		case e.Paused, e.Resumed:
			paused = e.Paused
		case e.Input != nil:
			inputs[e.Input.ID] = append(inputs[e.Input.ID], *e.Input)
		case e.Exit != nil:
			exits[e.Exit.ID] = e.Exit
		}
	}
	for _, e := range exits {
		if dead && e.Exit.OOM {
			return nil, nil, fault.New(fault.NotFound, "the sandbox %s ran out of memory", h.ID).WithCode(sandbox.CodeOutOfMemory)
		}
	}
	if dead {
		return nil, nil, gone
	}
	var unfinished []*process
	for _, e := range entries {
		switch {
		case e.Put != nil:
			// It may have failed the first time too, after a part of it.
			_ = b.tree.unpack(e.Put.Dir, bytes.NewReader(e.Put.Tar)) //nolint:errcheck // said above
		case e.File != nil:
			// What it met the first time may have been made by a process that
			// plays on differently.
			_, _ = b.tree.apply(*e.File) //nolint:errcheck // said above
		case e.Exec != nil:
			p, err := b.replayExec(*e.Exec, inputs[e.Exec.Spec.ID], exits[e.Exec.Spec.ID])
			if err != nil {
				return nil, nil, err
			}
			if p.past == nil {
				unfinished = append(unfinished, p)
			}
		}
	}
	if paused {
		b.hold() // nobody else has seen the sandbox yet
	}
	return b, unfinished, nil
}

// replayExec brings one process back, and plays it if it had ended.
func (b *box) replayExec(e execEntry, inputs []inputEntry, past *exitEntry) (*process, error) {
	if err := e.Spec.Validate(); err != nil {
		return nil, err
	}
	s, err := readScript(b.spec.Env, e.Spec.Env)
	if err != nil {
		return nil, err
	}
	p := newProcess(b, e.Spec, s, e.Started)
	p.recovered, p.past = true, past
	for _, in := range inputs {
		p.input = append(p.input, in.Data...)
		p.inputClosed = p.inputClosed || in.Close
	}
	if err := b.add(p); err != nil || past == nil {
		return p, err
	}
	// The end is known, so nothing of this play may end the sandbox again.
	p.script.crash, p.script.hang = "", ""
	if t, ok := p.newTask(); ok {
		t.main()
	}
	p.end(past.Exit, true)
	b.running.Wait()
	p.mu.Lock()
	p.exit = past.Exit
	p.mu.Unlock()
	return p, nil
}
