package storetest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/file"
	"github.com/aurea-dev/aurea/internal/store"
)

func testFiles(t *testing.T, db Database) {
	ctx, s := t.Context(), open(t, db)
	full := &file.File{
		Session: "session " + odd, Path: "path " + odd, Size: 1 << 40, SHA256: strings.Repeat("a", 64), Mode: 0o755,
		Modified: moment(1), Stored: moment(2), Deleted: true, Origin: "origin " + odd, Lost: true,
	}
	put := func(f *file.File, was int64) error {
		return s.Update(ctx, func(tx store.Tx) error { return tx.Files().Put(ctx, f, was) })
	}
	get := func() file.File {
		t.Helper()
		return view(t, s, func(tx store.Tx) (file.File, error) {
			f, _, err := tx.Files().Get(ctx, full.Session, full.Path)
			return f, err
		})
	}
	equal(t, "what is not there", get(), file.File{})
	check(t, put(full, 0))
	equal(t, "the first version", full.Version, int64(1))
	equal(t, "the file", get(), *full)
	second := *full
	second.SHA256, second.Lost, second.Deleted, second.Size = strings.Repeat("b", 64), false, false, 5
	for _, was := range []int64{0, 2} {
		if err := put(&second, was); fault.CodeOf(err) != store.CodeFileChanged || !fault.Is(err, fault.Conflict) {
			t.Errorf("put over version %d: %v", was, err)
		}
	}
	check(t, put(&second, 1))
	lost := second
	lost.SHA256, lost.Lost, lost.Stored = strings.Repeat("c", 64), true, moment(3)
	for range 2 { // the second time it is there
		update(t, s, func(tx store.Tx) error { return tx.Files().Keep(ctx, &lost) })
		equal(t, "the version that is kept", lost.Version, int64(3))
	}
	equal(t, "the newest", get(), second)
	equal(t, "all versions", view(t, s, func(tx store.Tx) ([]file.File, error) {
		return tx.Files().Versions(ctx, full.Session, full.Path, 10)
	}), []file.File{lost, second, *full})
	equal(t, "some versions", len(view(t, s, func(tx store.Tx) ([]file.File, error) {
		return tx.Files().Versions(ctx, full.Session, full.Path, 2)
	})), 2)
	third := second
	check(t, put(&third, 2))
	equal(t, "the number after one that lost", third.Version, int64(4))
}

func testFileLists(t *testing.T, db Database) {
	ctx, s := t.Context(), open(t, db)
	names := func(after string, limit int) (paths []string) {
		for _, f := range view(t, s, func(tx store.Tx) ([]file.File, error) { return tx.Files().List(ctx, "s", after, limit) }) {
			paths = append(paths, f.Path)
		}
		return paths
	}
	update(t, s, func(tx store.Tx) error {
		for i, path := range []string{"b", "a/b", "a", "c"} {
			f := &file.File{Session: "s", Path: path, Size: 10, SHA256: fmt.Sprintf("%064d", i), Stored: moment(i)}
			if err := tx.Files().Put(ctx, f, 0); err != nil {
				return err
			}
			f.SHA256, f.Size, f.Stored = fmt.Sprintf("%064d", 10+i), 7, moment(i+10)
			if err := tx.Files().Put(ctx, f, 1); err != nil {
				return err
			}
		}
		gone := &file.File{Session: "s", Path: "c", Deleted: true, Stored: moment(20)}
		if err := tx.Files().Put(ctx, gone, 2); err != nil {
			return err
		}
		return tx.Files().Put(ctx, &file.File{Session: "other", Path: "x", Size: 1, SHA256: fmt.Sprintf("%064d", 5)}, 0)
	})
	equal(t, "paths in order", names("", 10), []string{"a", "a/b", "b", "c"})
	equal(t, "a page", names("a", 2), []string{"a/b", "b"})
	usage := func() file.Usage {
		return view(t, s, func(tx store.Tx) (file.Usage, error) { return tx.Files().Usage(ctx, "s") })
	}
	equal(t, "what is kept", usage(), file.Usage{Files: 3, Bytes: 21, Paths: 4, Older: 47})
	update(t, s, func(tx store.Tx) error { return tx.Files().Trim(ctx, "s", 15, 4) })
	equal(t, "after two of the oldest went", usage(), file.Usage{Files: 3, Bytes: 21, Paths: 4, Older: 27})
	update(t, s, func(tx store.Tx) error { return tx.Files().Trim(ctx, "s", 1000, 2) })
	equal(t, "after all that may go went", usage(), file.Usage{Files: 3, Bytes: 21, Paths: 3})
	equal(t, "paths that are left", names("", 10), []string{"a", "a/b", "b"})
	digests := func(after string) []string {
		return view(t, s, func(tx store.Tx) ([]string, error) { return tx.History().FileDigests(ctx, after, 3) })
	}
	equal(t, "digests", digests(""), []string{fmt.Sprintf("%064d", 5), fmt.Sprintf("%064d", 10), fmt.Sprintf("%064d", 11)})
	equal(t, "more digests", digests(fmt.Sprintf("%064d", 11)), []string{fmt.Sprintf("%064d", 12)})
	update(t, s, func(tx store.Tx) error { return tx.Files().Forget(ctx, "s") })
	equal(t, "after all was forgotten", usage(), file.Usage{})
}

func testSynced(t *testing.T, db Database) {
	ctx, s := t.Context(), open(t, db)
	full := &file.Synced{Path: "path " + odd, SHA256: "sum", Mode: 0o644, Size: 1 << 40, Modified: moment(1), At: moment(2)}
	list := func(sandbox, after string) []file.Synced {
		return view(t, s, func(tx store.Tx) ([]file.Synced, error) { return tx.Synced().List(ctx, sandbox, after, 10) })
	}
	update(t, s, func(tx store.Tx) error {
		for _, path := range []string{"b", "a"} {
			if err := tx.Synced().Put(ctx, "box", &file.Synced{Path: path}); err != nil {
				return err
			}
		}
		if err := tx.Synced().Put(ctx, "other", &file.Synced{Path: "x"}); err != nil {
			return err
		}
		return tx.Synced().Put(ctx, "box", full)
	})
	full.SHA256, full.Size = "other", 3
	update(t, s, func(tx store.Tx) error { return tx.Synced().Put(ctx, "box", full) })
	equal(t, "what was synced", list("box", ""), []file.Synced{{Path: "a"}, {Path: "b"}, *full})
	equal(t, "behind a", len(list("box", "a")), 2)
	update(t, s, func(tx store.Tx) error { return tx.Synced().Drop(ctx, "box", "a", "none") })
	equal(t, "without a", len(list("box", "")), 2)
	update(t, s, func(tx store.Tx) error { return tx.Synced().Forget(ctx, "box") })
	equal(t, "after all was forgotten", len(list("box", "")), 0)
	equal(t, "the other's", len(list("other", "")), 1)
}
