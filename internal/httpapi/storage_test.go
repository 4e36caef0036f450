package httpapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	blobs "github.com/aurea-dev/aurea/internal/blob"
	"github.com/aurea-dev/aurea/internal/evidence"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/file"
	"github.com/aurea-dev/aurea/internal/filesync"
	"github.com/aurea-dev/aurea/internal/httpapi"
	"github.com/aurea-dev/aurea/internal/live"
)

// shelf keeps one stored file, and writes down what it is asked.
type shelf struct {
	httpapi.Keeper
	mu    sync.Mutex
	asked []string
	err   error // in place of the next answer
}

func (k *shelf) note(format string, args ...any) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.asked = append(k.asked, fmt.Sprintf(format, args...))
	err := k.err
	k.err = nil
	return err
}

// last is what was asked last.
func (k *shelf) last() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.asked) == 0 {
		return ""
	}
	return k.asked[len(k.asked)-1]
}

func aStoredFile() file.File {
	return file.File{Session: "s1", Path: "notes.txt", Version: 2, Size: 5, SHA256: strings.Repeat("a", 64), Mode: 0o600, Modified: time.Unix(1, 0), Stored: time.Unix(2, 0), Origin: "b1"}
}

func (k *shelf) SyncSandbox(_ context.Context, id string, s live.Sync) (filesync.Result, error) {
	return filesync.Result{
		Uploaded: []string{"a"}, Conflicts: []filesync.Conflict{{Path: "c", Stored: aStoredFile()}}, Errors: []filesync.Failure{{Path: "d", Code: "quota", Message: "full"}}, Failed: 1, Duration: time.Second,
	}, k.note("sync %s %+v", id, s)
}

func (k *shelf) ResolveConflict(_ context.Context, id string, s live.Sync, path string, keep filesync.Winner) (filesync.Result, error) {
	return filesync.Result{}, k.note("resolve %s %q %s %s", id, s.Session, path, keep)
}

func (k *shelf) StoredFiles(_ context.Context, session, after string, limit int) ([]file.File, error) {
	return []file.File{aStoredFile()}, k.note("list %s %q %d", session, after, limit)
}

func (k *shelf) StoredUsage(context.Context, string) (file.Usage, filesync.Limits, error) {
	return file.Usage{Files: 1, Bytes: 5, Older: 7}, filesync.Limits{Bytes: 100, FileBytes: 10}, nil
}

// bytesBlob is a blob in memory.
type bytesBlob struct{ *bytes.Reader }

func (bytesBlob) Close() error { return nil }

func (k *shelf) OpenStored(_ context.Context, session, path string, version int64) (file.File, blobs.Blob, error) {
	return aStoredFile(), bytesBlob{bytes.NewReader([]byte("hello"))}, k.note("open %s %s %d", session, path, version)
}

func (k *shelf) PutStored(_ context.Context, session, path string, mode uint32, body io.Reader) (file.File, error) {
	text, err := io.ReadAll(body)
	if err != nil {
		return file.File{}, err
	}
	return aStoredFile(), k.note("put %s %s %04o %s", session, path, mode, text)
}

func (k *shelf) DeleteStored(_ context.Context, session, path string) error {
	return k.note("delete %s %s", session, path)
}

func (k *shelf) StoredVersions(_ context.Context, session, path string, limit int) ([]file.File, error) {
	gone := file.File{Session: session, Path: path, Version: 3, Deleted: true}
	return []file.File{gone, aStoredFile()}, k.note("versions %s %s %d", session, path, limit)
}

func (k *shelf) StoredDiff(_ context.Context, session, path string, from, to int64) (string, error) {
	return "--- a/<b>\n", k.note("diff %s %s %d %d", session, path, from, to)
}

func (k *shelf) DiffSandbox(_ context.Context, id, from, to string) (evidence.Comparison, error) {
	return evidence.Comparison{
		Differences: []evidence.Difference{{Path: "a\xff", Change: evidence.Added, Type: "file", Before: -1, After: 3, Why: evidence.BecauseBinary}, {Path: "b", Change: evidence.Deleted, Type: "file", Before: 0, After: -1, Diff: "diff"}},
		Counts:      map[evidence.ChangeKind]int{evidence.Added: 1, evidence.Deleted: 2}, Left: 1,
	}, k.note("compare %s %s %q", id, from, to)
}

// answered is a request and what came of it.
func answered(t *testing.T, s *httptest.Server, method, path, body string) (int, http.Header, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, s.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if strings.HasPrefix(body, "{") {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := s.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, res.Header, string(text)
}

// TestStoredFilesOverHTTP holds each route to what it asks of the keeper.
func TestStoredFilesOverHTTP(t *testing.T) {
	t.Parallel()
	k := &shelf{}
	s := serveKeeper(t, k)
	const base = "/api/v1/storage/s1"
	for _, tc := range []struct {
		method, path, body string
		status             int
		asked, holds       string
	}{
		{"GET", base, "", 200, `list s1 "" 100`, `"usage":{"files":1,"bytes":5,"old_bytes":7,"quota_bytes":100,"file_limit_bytes":10}`},
		{"GET", base + "?limit=7&cursor=a%2Fb", "", 200, `list s1 "a/b" 7`, `"origin":"b1"`},
		{"GET", base + "/content?path=notes.txt", "", 200, "open s1 notes.txt 0", "hello"},
		{"GET", base + "/content?path=notes.txt&version=1", "", 200, "open s1 notes.txt 1", "hello"},
		{"PUT", base + "/content?path=a/b&mode=0755", "text", 200, "put s1 a/b 0755 text", `"mode":"0600"`},
		{"PUT", base + "/content?path=a", "", 200, "put s1 a 0000 ", `"version":2`},
		{"DELETE", base + "/content?path=a", "", 204, "delete s1 a", ""},
		{"GET", base + "/versions?path=a", "", 200, "versions s1 a 100", `"sha256":null,"mode":null`},
		{"GET", base + "/diff?path=a&from=1", "", 200, "diff s1 a 1 0", "--- a/<b>\n"},
		{"POST", "/api/v1/sandboxes/b1/sync", "", 200, "sync b1 {Session: Root: Strategy: Continuous:false}", `"uploaded":["a"],"downloaded":[],"deleted":[],"conflicts":[{"path":"c"`},
		{"POST", "/api/v1/sandboxes/b1/sync", `{"session":"x","root":"/workspace/sub","strategy":"ask"}`, 200, "sync b1 {Session:x Root:/workspace/sub Strategy:ask Continuous:false}", `"errors":[{"path":"d","code":"quota","message":"full"}],"failed":1,"duration":1`},
		{"POST", "/api/v1/sandboxes/b1/sync/resolve", `{"path":"c","keep":"stored"}`, 200, `resolve b1 "" c stored`, `"conflicts":[]`},
		{"GET", "/api/v1/sandboxes/b1/diff?from=s1", "", 200, `compare b1 s1 ""`, `"added":1,"modified":0,"deleted":2,"changes":[{"path":"/workspace/a�","change":"added","type":"file","size_before":null,"size":3,"diff":null,"omitted":"binary"},{"path":"/workspace/b","change":"deleted","type":"file","size_before":0,"size":null,"diff":"diff","omitted":null}],"truncated":true`},
		{"GET", "/api/v1/sandboxes/b1/diff?from=s1&to=s2", "", 200, `compare b1 s1 "s2"`, `"to":"s2"`},
	} {
		status, header, text := answered(t, s, tc.method, tc.path, tc.body)
		if status != tc.status || k.last() != tc.asked || !strings.Contains(text, tc.holds) {
			t.Errorf("%s %s: %d %s\nasked %s", tc.method, tc.path, status, text, k.last())
		}
		if header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s %s may be taken for a page: %v", tc.method, tc.path, header)
		}
	}
}

// TestBadStorageRequests: what cannot be is refused by the door, by name, and
// never reaches the keeper.
func TestBadStorageRequests(t *testing.T) {
	t.Parallel()
	k := &shelf{}
	s := serveKeeper(t, k)
	const base = "/api/v1/storage/s1"
	for _, tc := range []struct{ method, path, body, names string }{
		{"GET", base + "?cursor=../x", "", "cursor"},
		{"GET", base + "?limit=0", "", "limit"},
		{"GET", base + "/content", "", "path"},
		{"GET", base + "/content?path=a&version=-1", "", "version"},
		{"PUT", base + "/content?path=a&mode=99999", "x", "mode"},
		{"PUT", base + "/content?path=a&mode=4755", "x", "mode"},
		{"GET", base + "/diff?path=a", "", "from"},
		{"GET", base + "/diff?path=a&from=0", "", "from"},
		{"GET", base + "/content?path=" + strings.Repeat("a", 1025), "", "path"},
		{"POST", "/api/v1/sandboxes/b1/sync", `{"nonsense":1}`, "nonsense"},
		{"POST", "/api/v1/sandboxes/b1/sync/resolve", `{"keep":"stored"}`, "path"},
		{"GET", "/api/v1/sandboxes/b1/diff", "", "from"},
		{"GET", "/api/v1/sandboxes/b1/diff?from=../x", "", "from"},
		{"GET", "/api/v1/sandboxes/b1/diff?from=s1&to=a%00b", "", "to"},
	} {
		status, _, text := answered(t, s, tc.method, tc.path, tc.body)
		if status != http.StatusUnprocessableEntity || !strings.Contains(text, tc.names) {
			t.Errorf("%s %s %s: %d %s", tc.method, tc.path, tc.body, status, text)
		}
	}
	if asked := k.last(); asked != "" {
		t.Errorf("the keeper was asked %s", asked)
	}
}

// TestStorageFaults: what the keeper refuses has the status of its kind.
func TestStorageFaults(t *testing.T) {
	t.Parallel()
	k := &shelf{}
	s := serveKeeper(t, k)
	for kind, want := range map[fault.Kind]int{fault.NotFound: 404, fault.TooLarge: 413, fault.Exhausted: 429, fault.Conflict: 409, fault.Gone: 410, fault.Unavailable: 503} {
		for _, path := range []string{"PUT /api/v1/storage/s1/content?path=a", "POST /api/v1/sandboxes/b1/sync", "GET /api/v1/sandboxes/b1/diff?from=s1"} {
			k.mu.Lock()
			k.err = fault.New(kind, "no").WithCode("why")
			k.mu.Unlock()
			method, path, _ := strings.Cut(path, " ")
			status, _, text := answered(t, s, method, path, "")
			var p struct{ Code string }
			if err := json.Unmarshal([]byte(text), &p); status != want || p.Code != "why" || err != nil {
				t.Errorf("%s with %s: %d %s", path, kind, status, text)
			}
		}
	}
}
