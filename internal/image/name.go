package image

import (
	"strings"

	"github.com/google/go-containerregistry/pkg/name"

	"github.com/aurea-dev/aurea/internal/fault"
)

// HostName is the image that needs no download: the host's own programs.
const HostName = "host"

// hub is the registry of names that have none.
const hub = name.DefaultRegistry

// isDigest reports whether a text is a digest. Only what it lets through becomes
// a path.
func isDigest(text string) bool {
	hex, ok := strings.CutPrefix(text, "sha256:")
	return ok && len(hex) == 64 && strings.Trim(hex, "0123456789abcdef") == ""
}

// ParseName returns the one form under which the store knows a name: with a tag
// or a digest, and without what is understood: "python" is "python:latest".
func ParseName(text string) (string, error) {
	if text == HostName || isDigest(text) {
		return text, nil
	}
	ref, err := parseReference(text)
	if err != nil {
		return "", err
	}
	full := ref.Name()
	if rest, ok := strings.CutPrefix(full, hub+"/"); ok {
		full = strings.TrimPrefix(rest, "library/")
	}
	return full, nil
}

func parseReference(text string) (name.Reference, error) {
	ref, err := name.ParseReference(text)
	if err != nil || strings.Contains(text, "..") {
		return nil, fault.New(fault.Invalid, "%q is not an image name such as python:3.12 or registry.example/team/image@sha256:…", text).WithCode("bad_image_name")
	}
	return ref, nil
}

// ParseTag is ParseName for names that can be given to an image.
func ParseTag(text string) (string, error) {
	n, err := ParseName(text)
	if err != nil {
		return "", err
	}
	if n == HostName || n == HostName+":latest" {
		return "", fault.New(fault.Invalid, "%q is the host's own image; choose another name", text).WithCode("bad_image_name")
	}
	if strings.Contains(n, "sha256:") {
		return "", fault.New(fault.Invalid, "%q is a digest, which cannot be given; choose a name", text).WithCode("bad_image_name")
	}
	return n, nil
}

// hexOf is the part of a digest that can be a file name.
func hexOf(digest string) string { return strings.TrimPrefix(digest, "sha256:") }

// cutDigest takes a name with a digest apart.
func cutDigest(known string) (repository, digest string, ok bool) {
	repository, digest, ok = strings.Cut(known, "@")
	return repository, digest, ok && isDigest(digest)
}
