package build_test

import (
	"strings"
	"testing"

	"github.com/aurea-dev/aurea/internal/build"
	"github.com/aurea-dev/aurea/internal/fault"
)

func TestCheck(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]build.Order{
		"nothing asked":     {},
		"a name":            {Name: "node-expo", Tag: "registry.example/x:1", Args: map[string]string{"BASE": "debian:bookworm", "EMPTY": ""}},
		"a path in context": {Uploaded: true, Tag: "x", Dockerfile: "deep/down/Dockerfile.dev"},
	} {
		if err := o.Check(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	many := map[string]string{}
	for i := range 65 {
		many[strings.Repeat("A", i+1)] = ""
	}
	for name, o := range map[string]build.Order{
		"both":                 {Name: "x", Uploaded: true},
		"a climbing name":      {Name: "../x"},
		"a name of dots":       {Name: "a..b"},
		"a long name":          {Name: strings.Repeat("x", 65)},
		"a long tag":           {Tag: strings.Repeat("x", 257)},
		"many args":            {Args: many},
		"a strange arg":        {Args: map[string]string{"A B": ""}},
		"a value of two lines": {Args: map[string]string{"A": "x\ny"}},
		"a path without":       {Dockerfile: "Dockerfile"},
		"a climbing path":      {Uploaded: true, Dockerfile: "../Dockerfile"},
		"a path from the root": {Uploaded: true, Dockerfile: "/Dockerfile"},
		"an empty part":        {Uploaded: true, Dockerfile: "a//b"},
	} {
		if err := o.Check(); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
