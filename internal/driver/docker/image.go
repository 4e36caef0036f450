package docker

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/guest"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// image is what we need to know of an image of the engine's.
type image struct {
	id            string
	env           []string
	passwd, group string // the image's own files
}

// imageName is what may reach the engine's API as a name.
var imageName = regexp.MustCompile(`^[a-z0-9]([a-zA-Z0-9._/:@-]{0,253}[a-zA-Z0-9])?$`)

// findImage finds an image by its name in the engine. Nothing is pulled.
func (d *Driver) findImage(ctx context.Context, name string) (image, error) {
	if name == "" {
		name = d.config.Image
	}
	switch {
	case name == "":
		return image{}, fault.Field("image", "the docker driver has no default image; name one, or set SANDBOX_IMAGE")
	case !imageName.MatchString(name) || strings.Contains(name, ".."):
		return image{}, fault.Field("image", "%q is not the name of an image", name)
	}
	result, err := d.api.ImageInspect(ctx, name)
	if to, ok := d.config.Aliases[name]; ok && errdefs.IsNotFound(err) {
		if to == "default" {
			to = d.config.Image
		}
		if to != "" && to != name {
			name = to
			result, err = d.api.ImageInspect(ctx, name)
		}
	}
	if errdefs.IsNotFound(err) {
		return image{}, fault.New(fault.NotFound, "the Docker Engine has no image %q; get it with: docker pull %s", name, name)
	}
	if err != nil {
		return image{}, engineFault("look for the image", err)
	}
	d.mu.Lock()
	found, ok := d.images[result.ID]
	d.mu.Unlock()
	if ok {
		return found, nil
	}
	found = image{id: result.ID}
	if result.Config != nil {
		if len(result.Config.Volumes) > 0 {
			// The engine would make a volume for each: on its disk, unbounded.
			return image{}, fault.Field("image", "%q asks for volumes, whose size this driver cannot bound", name)
		}
		found.env = result.Config.Env
	}
	if err := d.look(ctx, &found); err != nil {
		return image{}, err
	}
	d.mu.Lock()
	d.images[found.id] = found
	d.mu.Unlock()
	return found, nil
}

// look reads the image's users, through a container that is never started.
func (d *Driver) look(ctx context.Context, i *image) error {
	suffix, err := sandbox.NewID()
	if err != nil {
		return err
	}
	name := "aurea-" + d.id + "-look-" + suffix
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), engineTime)
	defer cancel()
	_, err = d.api.ContainerCreate(ctx, client.ContainerCreateOptions{
		Name: name,
		Config: &container.Config{
			Image: i.id, Entrypoint: []string{guestPath},
			Labels: map[string]string{labelState: d.id, labelLook: ""},
		},
		HostConfig: &container.HostConfig{NetworkMode: "none", LogConfig: container.LogConfig{Type: "none"}},
	})
	if err != nil {
		return engineFault("look into the image", err)
	}
	i.passwd, err = d.readText(ctx, name, "/etc/passwd")
	if err == nil {
		i.group, err = d.readText(ctx, name, "/etc/group")
	}
	return errors.Join(err, d.removeContainer(ctx, name))
}

// readText reads a small file of a container. One that is missing, or is no
// file, is empty.
func (d *Driver) readText(ctx context.Context, name, path string) (string, error) {
	result, err := d.api.CopyFromContainer(ctx, name, client.CopyFromContainerOptions{SourcePath: path})
	if errdefs.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", engineFault("read "+path+" of the image", err)
	}
	defer func() { _ = result.Content.Close() }()
	const largest = 1 << 20
	archive := tar.NewReader(io.LimitReader(result.Content, largest))
	header, err := archive.Next()
	if err != nil {
		return "", fault.New(fault.Invalid, "read %s of the image: %w", path, err)
	}
	if header.Typeflag != tar.TypeReg {
		return "", nil
	}
	body, err := io.ReadAll(archive)
	if err != nil {
		return "", fault.New(fault.Invalid, "read %s of the image: %w", path, err)
	}
	return string(body), nil
}

// sweepLooks removes what an earlier process left of look.
func (d *Driver) sweepLooks(ctx context.Context) error {
	left, err := d.containers(ctx, labelLook)
	if err != nil {
		return err
	}
	for _, c := range left {
		if err := d.removeContainer(ctx, c.ID); err != nil {
			return err
		}
	}
	return nil
}

// guestUser is the guest's own user, whom no command runs as.
const guestUser = "aurea"

func etcNames() []string { return []string{"passwd", "group", "hosts", "hostname", "resolv.conf"} }

// etcFiles are the files of /etc that are ours: the image's users with ours
// among them, and nothing of the host's names and servers.
func etcFiles(i image, r record) map[string]string {
	return map[string]string{
		"passwd": accounts(i.passwd, r, func(name string, id uint32, home, shell string) string {
			return fmt.Sprintf("%s:x:%d:%d:%s:%s:%s\n", name, id, id, name, home, shell)
		}),
		"group": accounts(i.group, r, func(name string, id uint32, _, _ string) string {
			return fmt.Sprintf("%s:x:%d:\n", name, id)
		}),
		"hosts":       "127.0.0.1 localhost sandbox\n::1 localhost\n",
		"hostname":    "sandbox\n",
		"resolv.conf": "",
	}
}

// accounts puts our two in front of the lines of passwd or group, where they
// are found first, and drops lines that would be the same or make no sense.
func accounts(text string, r record, line func(name string, id uint32, home, shell string) string) string {
	const longest, most = 1024, 4096
	var b strings.Builder
	b.WriteString(line(guest.DefaultUser, r.User, guest.Workspace, "/bin/sh"))
	b.WriteString(line(guestUser, r.Guest, "/", "/bin/false"))
	ours := []string{guest.DefaultUser, guestUser, fmt.Sprint(r.User), fmt.Sprint(r.Guest)}
	n := 0
	for entry := range strings.Lines(text) {
		entry = strings.TrimRight(entry, "\r\n")
		fields := strings.Split(entry, ":")
		if len(entry) > longest || len(fields) < 3 || strings.ContainsRune(entry, 0) {
			continue
		}
		if fields[0] == ours[0] || fields[0] == ours[1] || fields[2] == ours[2] || fields[2] == ours[3] {
			continue
		}
		if n++; n > most {
			break
		}
		b.WriteString(entry + "\n")
	}
	return b.String()
}
