package keeper

import (
	"os"
	"testing"

	"github.com/aurea-dev/aurea/internal/blob/s3"
	"github.com/aurea-dev/aurea/internal/blob/s3/s3test"
	"github.com/aurea-dev/aurea/internal/live"
)

// TestSyncOverS3: files of a session lie in a bucket, outlive the sandbox that
// they came from, and come into the next one.
func TestSyncOverS3(t *testing.T) {
	t.Parallel()
	if reason := s3test.Missing(); reason != "" {
		if os.Getenv("CI") == "true" {
			t.Fatal(reason)
		}
		t.Skip("left out: " + reason)
	}
	server, err := s3test.Start(t.Context(), "", "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	bucket, err := server.Bucket()
	if err != nil {
		t.Fatal(err)
	}
	blobs, err := s3.Open(t.Context(), s3.Config{Endpoint: server.Endpoint, Bucket: bucket, AccessKey: s3test.AccessKey, SecretKey: s3test.SecretKey})
	if err != nil {
		t.Fatalf("%v\n%s", err, server.Said())
	}
	t.Cleanup(func() { _ = blobs.Close() })
	s := newStage(t, func(c *Config) { c.Blobs = blobs })
	x := s.create(live.Request{})
	s.write(x.ID, "/workspace/notes.txt", "remember\n")
	if r := s.sync(x.ID, live.Sync{Session: "pad"}); len(r.Uploaded) != 1 || r.Failed != 0 {
		t.Fatalf("the first pass did %+v", r)
	}
	if _, err := s.EndSandbox(as("o"), x.ID, ""); err != nil {
		t.Fatal(err)
	}
	if got := s.stored("o", "pad", "notes.txt"); got != "remember\n" {
		t.Errorf("after its sandbox the bucket has %q", got)
	}
	y := s.create(live.Request{})
	if r := s.sync(y.ID, live.Sync{Session: "pad"}); len(r.Downloaded) != 1 || s.inside(y.ID, "/workspace/notes.txt") != "remember\n" {
		t.Errorf("the next sandbox has %q, %+v", s.inside(y.ID, "/workspace/notes.txt"), r)
	}
	if left, err := os.ReadDir(server.Folder(bucket)); err != nil || len(left) == 0 {
		t.Errorf("nothing lies in the bucket: %v, %v", left, err)
	}
}
