package image

import (
	"bytes"
	"fmt"
	"io"
	"strings"

	"github.com/aurea-dev/aurea/internal/image/erofs"
)

// The users of every root: code runs as the first, the guest as the second.
const (
	sandboxUser = "sandbox"
	sandboxID   = 1000
	guestUser   = "aurea"
	guestID     = 65533
)

// maxAccounts is how large a list of users or groups may be that is added to:
// half of what the guest reads of it.
const maxAccounts = 512 << 10

// bytesKeeper keeps bytes of files, and gives them back.
type bytesKeeper interface {
	keeper
	From(d erofs.Data) io.Reader
}

// furnish adds what a sandbox needs to a root, whatever the image has in its
// place: the workspace, a /tmp, and folders to mount over, also for the guest.
// Who changes it gives rootForm another name.
func (t *tree) furnish(into bytesKeeper) error {
	t.root.Mode |= 0o555 // everybody gets in

	for _, name := range []string{".aurea", "proc", "dev", "sys"} {
		t.root.Entries[name] = erofs.NewFolder(0o755)
	}
	workspace := t.ownFolder("workspace")
	workspace.Mode = erofs.Folder | 0o755
	workspace.UID, workspace.GID = sandboxID, sandboxID
	tmp := t.ownFolder("tmp")
	tmp.Mode = erofs.Folder | 0o1777
	tmp.UID, tmp.GID = 0, 0
	return t.addUsers(into)
}

// ownFolder returns the folder of that name at the top, in place of whatever
// else is there.
func (t *tree) ownFolder(name string) *erofs.Node {
	if n := t.root.Entries[name]; n != nil && n.IsFolder() {
		return n
	}
	n := erofs.NewFolder(0o755)
	t.root.Entries[name] = n
	return n
}

// addUsers makes the names of our users known. What the image says of others
// stays.
func (t *tree) addUsers(into bytesKeeper) error {
	if etc, err := t.folder([]string{"etc"}, false); err != nil || etc == nil {
		t.root.Entries["etc"] = erofs.NewFolder(0o755)
	}
	for file, lines := range map[string][]string{
		"passwd": {
			fmt.Sprintf("%s:x:%d:%d:sandbox:/workspace:/bin/sh", sandboxUser, sandboxID, sandboxID),
			fmt.Sprintf("%s:x:%d:%d:guest:/:/bin/false", guestUser, guestID, guestID),
		},
		"group": {
			fmt.Sprintf("%s:x:%d:", sandboxUser, sandboxID),
			fmt.Sprintf("%s:x:%d:", guestUser, guestID),
		},
	} {
		if err := t.addAccounts(file, lines, into); err != nil {
			return fmt.Errorf("add users to /etc/%s: %w", file, err)
		}
	}
	return nil
}

func (t *tree) addAccounts(file string, lines []string, into bytesKeeper) error {
	folder, name, old, err := t.find([]string{"etc", file})
	if err != nil || old == nil || !old.IsRegular() || old.Data.Size > maxAccounts || folder == nil {
		// What is there cannot be such a list: it is replaced by one.
		if folder, err = t.folder([]string{"etc"}, true); err != nil {
			return err
		}
		name, old = file, &erofs.Node{Mode: erofs.Regular | 0o644}
	}
	was, err := io.ReadAll(into.From(old.Data))
	if err != nil {
		return err
	}
	now := withAccounts(was, lines)
	data, err := into.Append(bytes.NewReader(now), int64(len(now)))
	if err != nil {
		return err
	}
	folder.Entries[name] = &erofs.Node{
		Mode: old.Mode | 0o444, UID: old.UID, GID: old.GID, Mtime: old.Mtime, MtimeNs: old.MtimeNs, Data: data,
	}
	return nil
}

// withAccounts appends the lines whose names are missing. A name that the image
// gives to another number is said before it: the first line counts, and nobody
// may choose as whom our code runs.
func withAccounts(was []byte, lines []string) []byte {
	var before, after []string
	for _, line := range lines {
		name, numbers := account(line)
		switch found := numbersOf(was, name); found {
		case numbers:
		case "":
			after = append(after, line)
		default:
			before = append(before, line)
		}
	}
	var out bytes.Buffer
	for _, line := range before {
		out.WriteString(line + "\n")
	}
	out.Write(was)
	if len(was) > 0 && was[len(was)-1] != '\n' {
		out.WriteByte('\n')
	}
	for _, line := range after {
		out.WriteString(line + "\n")
	}
	return out.Bytes()
}

// account takes a line of a list of users or groups apart: the name, and the
// numbers that matter. A user has two of them.
func account(line string) (name, numbers string) {
	const user = 7
	fields := strings.Split(strings.TrimSpace(line), ":")
	switch {
	case len(fields) >= user:
		return fields[0], fields[2] + ":" + fields[3]
	case len(fields) > 2:
		return fields[0], fields[2]
	}
	return fields[0], "?"
}

// numbersOf returns the numbers that a list gives to a name, or "" if the name
// is not in it.
func numbersOf(list []byte, name string) string {
	for line := range strings.Lines(string(list)) {
		if found, numbers := account(line); found == name {
			return numbers
		}
	}
	return ""
}
