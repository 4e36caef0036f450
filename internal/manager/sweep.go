package manager

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/aurea-dev/aurea/internal/blob"
	"github.com/aurea-dev/aurea/internal/evidence"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/store"
)

// leastGrace is the shortest time for which a blob is left to whoever put it.
const leastGrace = time.Hour

// blobs removes blobs that no record, no run and no file refers to. It first notes those that
// nobody has wanted for the time of grace, then crosses out what any record
// refers to, then removes the rest, each unless it was wanted meanwhile: a
// result that names a blob asks for it before its record is written, so a
// record that was written behind the pass's back is never left without.
func (p *pass) blobs(ctx context.Context) error {
	since := p.now.Add(-max(p.m.Retention.Unreferenced, leastGrace))
	unwanted, err := p.unwanted(ctx, since)
	if err != nil {
		return err
	}
	if err := p.records(ctx, unwanted); err != nil {
		return err
	}
	if err := p.execBlobs(ctx, unwanted); err != nil {
		return err
	}
	if err := p.runBlobs(ctx, unwanted); err != nil {
		return err
	}
	if err := p.fileBlobs(ctx, unwanted); err != nil {
		return err
	}
	if err := p.fleetBlobs(ctx, unwanted); err != nil {
		return err
	}
	for digest, size := range unwanted {
		removed := p.dry
		if !p.dry {
			if removed, err = p.m.Blobs.Remove(ctx, digest, since); err != nil {
				return err
			}
		}
		if removed {
			p.result.Blobs++
			p.result.BlobBytes += size
			p.result.KeptBlobs--
			p.result.KeptBytes -= size
		}
	}
	return nil
}

// fileBlobs crosses out of the list what files of sessions refer to.
func (p *pass) fileBlobs(ctx context.Context, unwanted map[string]int64) error {
	for after := ""; ; {
		var page []string
		err := p.m.Store.View(ctx, func(tx store.Tx) (err error) {
			page, err = tx.History().FileDigests(ctx, after, keptPage)
			return err
		})
		if err != nil || len(page) == 0 {
			return err
		}
		for _, digest := range page {
			delete(unwanted, digest)
		}
		after = page[len(page)-1]
	}
}

// unwanted lists the blobs that were last wanted before since, by digest with
// their size. What is too many for one pass is left to the next.
func (p *pass) unwanted(ctx context.Context, since time.Time) (map[string]int64, error) {
	list := map[string]int64{}
	err := p.m.Blobs.Walk(ctx, func(b blob.Info) error {
		p.result.KeptBlobs++
		p.result.KeptBytes += b.Bytes
		if b.Wanted.Before(since) && len(list) < maxCandidates {
			list[b.Digest] = b.Bytes
		}
		return nil
	})
	return list, err
}

// records crosses out of the list what records refer to, and drops small blobs
// whose time is over.
func (p *pass) records(ctx context.Context, unwanted map[string]int64) error {
	var place store.Kept
	for {
		var page []store.Kept
		err := p.m.Store.View(ctx, func(tx store.Tx) (err error) {
			page, err = tx.History().Kept(ctx, place, keptPage)
			return err
		})
		if err != nil || len(page) == 0 {
			return err
		}
		place = page[len(page)-1]
		var drops []drop
		for i := range page {
			kept, over := p.split(&page[i])
			for _, digest := range kept {
				delete(unwanted, digest)
			}
			if over.what&^page[i].Dropped != 0 && page[i].Small > 0 {
				drops = append(drops, over)
			}
		}
		if err := p.drop(ctx, drops); err != nil {
			return err
		}
	}
}

// drop is what of a record's bytes is over.
type drop struct {
	jobID   string
	attempt int
	digests []string
	what    store.Dropped
}

// split says which of the bytes that a record refers to stay, and of which the
// time is over.
func (p *pass) split(k *store.Kept) (kept []string, over drop) {
	past := func(keep time.Duration) bool {
		before, bounded := p.cutoff(keep)
		return bounded && k.Ended.Before(before)
	}
	over = drop{jobID: k.JobID, attempt: k.Attempt}
	// A dry run has not removed the plans that would go.
	gone := p.dry && past(p.m.Retention.Jobs)
	put := func(digest string, what store.Dropped, keep time.Duration) {
		if !gone && !past(keep) {
			kept = append(kept, digest)
			return
		}
		over.what |= what
		over.digests = append(over.digests, digest)
	}
	if k.Snapshot != "" {
		put(k.Snapshot, store.DroppedSnapshot, p.m.Retention.Snapshots)
	}
	for _, a := range k.Artifacts {
		put(a.SHA256, store.DroppedOutput, p.m.Retention.Output)
	}
	// One that both name stays as long as either does.
	over.digests = slices.DeleteFunc(over.digests, func(d string) bool { return slices.Contains(kept, d) })
	return kept, over
}

// drop drops small blobs whose time is over, those of one page together. A dry
// run undoes it.
func (p *pass) drop(ctx context.Context, drops []drop) error {
	if len(drops) == 0 {
		return nil
	}
	update := p.write
	if p.dry {
		update = p.m.Store.Update
	}
	var sum int64
	err := update(ctx, func(tx store.Tx) error {
		sum = 0
		for _, d := range drops {
			n, err := tx.History().DropBlobs(ctx, d.jobID, d.attempt, d.digests, d.what)
			if err != nil {
				return err
			}
			sum += n
		}
		if p.dry {
			return errDry
		}
		return nil
	})
	if err != nil && !errors.Is(err, errDry) {
		return err
	}
	p.result.SmallBytes += sum
	return nil
}

// removed explains bytes that a record names and that are not there: they were
// there when it was written.
func removed(err error, a evidence.Artifact) error {
	if fault.Is(err, fault.NotFound) {
		return fault.New(fault.Gone, "%s was removed, as the retention says; its record stays", a.Name).WithCode("expired")
	}
	return err
}
