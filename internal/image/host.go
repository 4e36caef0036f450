package image

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/image/erofs"
)

// Host says what the host's image shows of the host.
type Host struct {
	// Top is where the host's tree begins: "/" but for tests.
	Top string
	// Trees are the folders that are taken whole; one that is a link stays one.
	Trees []string
	// Etc is what is taken of /etc, as patterns; a folder is taken whole.
	Etc []string
	// Without are patterns of what is left out of the trees.
	Without []string
	// Most is how many bytes are taken. Of a host that has more, the largest
	// folders below Large are left out, and named, until the rest fits.
	Most  int64
	Large []string
	// Signs are the files and folders, as patterns, whose change means that the
	// host's programs have changed.
	Signs []string
}

// DefaultHost takes the programs and what they need to run: no documentation,
// no sources, no kernels, no drivers, no desktop, no texts in languages other
// than English.
func DefaultHost() Host {
	return Host{
		Top:   "/",
		Trees: []string{"usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32"},
		Etc: []string{
			"alternatives", "ca-certificates.conf", "debian_version", "fonts", "java*", "ld.so.cache", "ld.so.conf", "ld.so.conf.d",
			"localtime", "lsb-release", "mime.types", "os-release", "perl", "pki/tls/cert.pem", "pki/tls/certs", "pki/ca-trust/extracted/pem",
			"protocols", "python3", "python3.*", "redhat-release", "services", "ssl/cert.pem", "ssl/certs", "ssl/openssl.cnf", "timezone",
		},
		Without: []string{
			"usr/src", "usr/games", "usr/local/etc", "usr/etc", "usr/lib/debug", "lib/debug", "usr/lib/firmware", "lib/firmware", "usr/lib/modules", "lib/modules",
			"usr/share/doc", "usr/share/doc-base", "usr/share/man", "usr/share/info", "usr/share/help", "usr/share/gtk-doc", "usr/share/lintian", "usr/share/bug",
			"usr/share/icons", "usr/share/backgrounds", "usr/share/sounds", "usr/share/wallpapers", "usr/share/applications", "usr/share/vim",
			"usr/local/share/man", "usr/local/share/doc", "usr/local/man", "usr/share/locale/[^e]*", "usr/share/locale/e[^n]*",
			"usr/lib/chromium", "usr/lib/firefox*", "usr/lib/libreoffice", "usr/lib/thunderbird", "usr/lib/*/dri", "usr/lib/dri",
		},
		Most:  4 << 30,
		Large: []string{"usr/lib/*", "usr/local/*", "usr/local/lib/*", "usr/share/*", "usr/libexec/*"},
		Signs: []string{
			"var/lib/dpkg/status", "var/lib/rpm/*", "usr/lib/sysimage/rpm/*", "lib/apk/db/installed", "var/lib/pacman/local",
			"etc/ld.so.cache", "etc/alternatives", "etc/ssl/certs", "etc/localtime", "usr/bin", "usr/sbin", "usr/lib", "usr/lib/*-linux-gnu", "usr/lib64", "usr/libexec", "usr/share",
			"usr/local", "usr/local/bin", "usr/local/lib", "usr/local/lib/*", "usr/local/lib/python*/*-packages", "usr/lib/python*/*-packages",
			"usr/lib/node_modules", "usr/local/lib/node_modules",
		},
	}
}

// state tells one state of the host's programs from another, in a moment.
func (h Host) state() (string, error) {
	sum := sha256.New()
	_, _ = fmt.Fprintf(sum, "%#v %q\n", h, rootForm)
	for _, pattern := range h.Signs {
		found, err := filepath.Glob(filepath.Join(h.Top, pattern))
		if err != nil {
			return "", fmt.Errorf("look at the host: %w", err)
		}
		for _, name := range found {
			var s unix.Stat_t
			if err := unix.Stat(name, &s); err != nil {
				continue // it went away: the folder above it has changed
			}
			_, _ = fmt.Fprintf(sum, "%q %d %d %d\n", name, s.Size, s.Mtim.Sec, s.Mtim.Nsec)
		}
	}
	return "sha256:" + hex.EncodeToString(sum.Sum(nil)), nil
}

// TakeHost takes the host's image, unless the one that is there shows the host
// as it is.
func (s *Store) TakeHost(ctx context.Context, progress Progress) (Record, error) {
	r, err := s.takeHost(ctx, progress)
	if err != nil {
		return Record{}, fmt.Errorf("take the host's image: %w", err)
	}
	return r, nil
}

func (s *Store) takeHost(ctx context.Context, progress Progress) (Record, error) {
	use, err := s.using(ctx)
	if err != nil {
		return Record{}, err
	}
	defer use.release()
	l, err := takeLock(ctx, filepath.Join(s.config.Dir, "locks", "host"), true)
	if err != nil {
		return Record{}, err
	}
	defer l.release()
	state, err := s.config.Host.state()
	if err != nil {
		return Record{}, err
	}
	if r, ok, err := s.hostRecord(); err != nil || ok && r.Host == state {
		return r, err
	}
	s.config.Logger.Info("taking an image of the host's own programs; this happens once, and again when they change")
	started := time.Now()
	r, err := s.copyHost(ctx, s.sayProgress(progress))
	if err != nil {
		return Record{}, err
	}
	r.Host, r.Source, r.Architecture = state, "the host", s.config.Architecture
	r.Added = time.Now().UTC().Truncate(time.Second)
	s.config.Logger.Info("took the host's image", "digest", r.Digest, "bytes", r.Size, "left_out", r.LeftCount, "took", time.Since(started).Round(time.Millisecond))
	if err := s.change(ctx, func(i *index) error {
		i.Images[r.Digest] = r
		i.Names[HostName] = r.Digest
		return nil
	}); err != nil {
		return Record{}, err
	}
	return r, s.dropHosts(ctx, r.Digest)
}

// sayProgress also writes into the log how far it has come, a few times: whoever
// starts Aurea for the first time waits for this.
func (s *Store) sayProgress(progress Progress) Progress {
	const parts = 5
	var said atomic.Int64
	return func(step Step) {
		progress.tell(step)
		now := parts * step.Done / max(step.Total, 1)
		if last := said.Load(); now > last && said.CompareAndSwap(last, now) {
			s.config.Logger.Info("taking the host's image", "percent", 100*step.Done/max(step.Total, 1), "bytes", step.Done, "of", step.Total)
		}
	}
}

// hostRecord returns the host's image that is there, with its root.
func (s *Store) hostRecord() (Record, bool, error) {
	i, err := s.readIndex()
	if err != nil {
		return Record{}, false, err
	}
	r, ok := i.Images[i.Names[HostName]]
	if !ok {
		return Record{}, false, nil
	}
	there, err := s.hasRoot(r.Digest)
	return r, there, err
}

// copyHost writes the root of the host's image.
func (s *Store) copyHost(ctx context.Context, progress Progress) (Record, error) {
	f, err := s.aside()
	if err != nil {
		return Record{}, err
	}
	defer f.drop()
	v, err := s.config.Host.survey(ctx, s.config.Bounds)
	if err != nil {
		return Record{}, err
	}
	w := erofs.NewWriter(f.File)
	if err := v.copy(ctx, w, progress); err != nil {
		return Record{}, err
	}
	if err := v.writeEtc(w); err != nil {
		return Record{}, err
	}
	digest := v.digest()
	if err := finishRoot(f, v.tree, w, s.rootPath(digest)); err != nil {
		return Record{}, err
	}
	return Record{Digest: digest, Size: v.total, Left: v.tree.left, LeftCount: v.tree.leftN}, nil
}

// view is the host as it is found.
type view struct {
	host  Host
	tree  *tree
	total int64
	files []*hostFile
	// byInode finds files that have several names.
	byInode map[inode]*hostFile
	// without is what is left out by rule.
	without map[string]bool
}

type inode struct{ dev, ino uint64 }

// hostFile is a file to copy.
type hostFile struct {
	path string
	node *erofs.Node
	size int64
	sum  [sha256.Size]byte
}

// survey walks the host's trees.
func (h Host) survey(ctx context.Context, b Bounds) (*view, error) {
	b.Steps *= 4 // nobody hostile made this tree
	v := &view{host: h, tree: newTree(b), byInode: map[inode]*hostFile{}, without: map[string]bool{}}
	for _, pattern := range h.Without {
		found, err := filepath.Glob(filepath.Join(h.Top, pattern))
		if err != nil {
			return nil, fmt.Errorf("look at the host: %w", err)
		}
		for _, name := range found {
			v.without[name] = true
		}
	}
	for _, name := range h.Trees {
		if err := v.take(ctx, name); err != nil {
			return nil, err
		}
	}
	v.tree.root.Entries["etc"] = erofs.NewFolder(0o755)
	for _, pattern := range h.Etc {
		found, err := filepath.Glob(filepath.Join(h.Top, "etc", pattern))
		if err != nil {
			return nil, fmt.Errorf("look at the host: %w", err)
		}
		for _, name := range found {
			if err := v.take(ctx, strings.TrimPrefix(name, strings.TrimSuffix(h.Top, "/")+"/")); err != nil {
				return nil, err
			}
		}
	}
	v.fit()
	return v, nil
}

// take takes a file or a folder, with all that is in it.
func (v *view) take(ctx context.Context, name string) error {
	full := filepath.Join(v.host.Top, name)
	var s unix.Stat_t
	if err := unix.Lstat(full, &s); errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return fmt.Errorf("look at the host: %w", err)
	}
	parts := strings.Split(name, "/")
	folder, err := v.tree.folder(parts[:len(parts)-1], true)
	if err != nil {
		return err
	}
	return v.walk(ctx, full, folder, parts[len(parts)-1], s.Dev, len(parts))
}

// walk takes one thing. Of the host only that is taken which any of its users
// could read: what is in an image is read by everybody.
func (v *view) walk(ctx context.Context, full string, in *erofs.Node, name string, dev uint64, depth int) error {
	if v.without[full] {
		return nil // by rule, and too many to name
	}
	var s unix.Stat_t
	if err := unix.Lstat(full, &s); err != nil {
		v.tree.leave(full, "it went away")
		return nil
	}
	if err := v.tree.count(len(name)); err != nil {
		return err
	}
	n := &erofs.Node{Mode: uint16(s.Mode & (unix.S_IFMT | 0o1777)), UID: s.Uid, GID: s.Gid, Mtime: max(s.Mtim.Sec, 0), MtimeNs: uint32(s.Mtim.Nsec)}
	switch s.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		return v.walkFolder(ctx, full, in, name, n, s, dev, depth)
	case unix.S_IFLNK:
		target, err := os.Readlink(full)
		if err != nil {
			v.tree.leave(full, "it went away")
			return nil
		}
		n.Target = target
	case unix.S_IFREG:
		if s.Mode&0o004 == 0 {
			v.tree.leave(full, "not everybody may read it")
			return nil
		}
		if f := v.byInode[inode{s.Dev, s.Ino}]; f != nil {
			n = f.node
			break
		}
		f := &hostFile{path: full, node: n, size: s.Size}
		v.files = append(v.files, f)
		v.total += s.Size
		if s.Nlink > 1 {
			v.byInode[inode{s.Dev, s.Ino}] = f
		}
	default:
		v.tree.leave(full, "neither a file nor a folder nor a link")
		return nil
	}
	in.Entries[name] = n
	return nil
}

func (v *view) walkFolder(ctx context.Context, full string, in *erofs.Node, name string, n *erofs.Node, s unix.Stat_t, dev uint64, depth int) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	switch {
	case s.Mode&0o005 != 0o005:
		v.tree.leave(full, "not everybody may read it")
		return nil
	case s.Dev != dev:
		v.tree.leave(full, "something else is mounted there")
		return nil
	case depth > v.tree.bounds.Depth:
		return tooMuch("folders of the host lie more than %d deep", v.tree.bounds.Depth)
	}
	n.Entries = map[string]*erofs.Node{}
	in.Entries[name] = n
	list, err := os.ReadDir(full)
	if err != nil {
		v.tree.leave(full, "it went away")
		return nil
	}
	for _, e := range list {
		if err := v.walk(ctx, filepath.Join(full, e.Name()), n, e.Name(), dev, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// fit leaves out the largest folders, until the rest may be taken.
func (v *view) fit() {
	if v.host.Most <= 0 || v.total <= v.host.Most {
		return
	}
	sizes := map[string]int64{}
	for _, f := range v.files {
		if folder := v.largeFolder(f.path); folder != "" {
			sizes[folder] += f.size
		}
	}
	names := slices.SortedFunc(maps.Keys(sizes), func(a, b string) int {
		if sizes[a] != sizes[b] {
			return int(min(max(sizes[b]-sizes[a], -1), 1))
		}
		return strings.Compare(a, b)
	})
	for _, name := range names {
		if v.total <= v.host.Most {
			break
		}
		v.drop(name)
		v.tree.leave("/"+name, fmt.Sprintf("the host has more than %d bytes of programs, and these are %d", v.host.Most, sizes[name]))
	}
}

// largeFolder is the folder below one of Large's that a file is in. Libraries
// that everything needs are not among them.
func (v *view) largeFolder(name string) string {
	rel := strings.TrimPrefix(name, strings.TrimSuffix(v.host.Top, "/")+"/")
	parts := strings.Split(rel, "/")
	best := ""
	for _, pattern := range v.host.Large {
		n := strings.Count(pattern, "/") + 1
		if len(parts) <= n {
			continue
		}
		folder := path.Join(parts[:n]...)
		if ok, _ := path.Match(pattern, folder); ok && !slices.Contains(v.host.Large, folder+"/*") && !strings.Contains(folder, "-linux-gnu") && len(folder) > len(best) {
			best = folder
		}
	}
	return best
}

func (v *view) drop(name string) {
	parts := strings.Split(name, "/")
	if folder, err := v.tree.folder(parts[:len(parts)-1], false); err == nil && folder != nil {
		delete(folder.Entries, parts[len(parts)-1])
	}
	below := filepath.Join(v.host.Top, name) + "/"
	v.files = slices.DeleteFunc(v.files, func(f *hostFile) bool {
		gone := strings.HasPrefix(f.path, below)
		if gone {
			v.total -= f.size
		}
		return gone
	})
}

// digest names what the image shows: every path with its rights and content.
func (v *view) digest() string {
	sums := make(map[*erofs.Node][sha256.Size]byte, len(v.files))
	for _, f := range v.files {
		sums[f.node] = f.sum
	}
	all := sha256.New()
	digestTree(all, "", v.tree.root, sums)
	return "sha256:" + hex.EncodeToString(all.Sum(nil))
}

func digestTree(to hash.Hash, name string, n *erofs.Node, sums map[*erofs.Node][sha256.Size]byte) {
	_, _ = fmt.Fprintf(to, "%q %o %d %d %d %d %q %x\n", name, n.Mode, n.UID, n.GID, n.Mtime, n.Data.Size, n.Target, sums[n])
	for _, child := range slices.Sorted(maps.Keys(n.Entries)) {
		digestTree(to, name+"/"+child, n.Entries[child], sums)
	}
}

// writeEtc writes the files of /etc that are not the host's: they name nobody
// and nothing of it.
func (v *view) writeEtc(w *erofs.Writer) error {
	etc := v.tree.root.Entries["etc"]
	for name, content := range map[string]string{
		"passwd":        "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n",
		"group":         "root:x:0:\nnogroup:x:65534:\n",
		"hosts":         "127.0.0.1 localhost sandbox\n::1 localhost\n",
		"hostname":      "sandbox\n",
		"resolv.conf":   "",
		"nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
	} {
		data, err := w.Append(strings.NewReader(content), int64(len(content)))
		if err != nil {
			return fmt.Errorf("write /etc/%s: %w", name, err)
		}
		etc.Entries[name] = &erofs.Node{Mode: erofs.Regular | 0o644, Data: data}
	}
	for _, name := range []string{"run", "root", "home", "var"} {
		v.tree.root.Entries[name] = erofs.NewFolder(0o755)
	}
	v.tree.root.Entries["var"].Entries["tmp"] = erofs.NewFolder(0o1777)
	return nil
}

// copyFile copies a file into its place, and takes its digest on the way. A
// file that has changed since it was found makes the view untrue.
func copyFile(f *hostFile, w *erofs.Writer, buffer []byte) error {
	in, err := os.OpenFile(f.path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return fault.New(fault.Unavailable, "the host changes while its image is taken: %w", err)
	}
	defer func() { _ = in.Close() }()
	sum := sha256.New()
	n, err := io.CopyBuffer(io.MultiWriter(w.Into(f.node.Data), sum), onlyReader{io.LimitReader(in, f.size)}, buffer)
	if err != nil {
		return fmt.Errorf("copy %s: %w", f.path, err)
	}
	if n != f.size {
		return fault.New(fault.Unavailable, "the host changes while its image is taken: %s had %d bytes and has %d", f.path, f.size, n)
	}
	sum.Sum(f.sum[:0])
	return nil
}

// onlyReader hides what else a reader can do, so that the buffer is used.
type onlyReader struct{ io.Reader }
