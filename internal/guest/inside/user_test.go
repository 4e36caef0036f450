package inside

import (
	"os"
	"path/filepath"
	"testing"
)

func TestUsersAreThoseOfTheFileAsItIs(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "passwd")
	l := users{file: file}
	if _, err := l.find("ada"); err == nil {
		t.Error("a user of a file that is not there")
	}
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".new", file); err != nil { // another file, whatever the clock says
			t.Fatal(err)
		}
	}
	write("ada:x:4001:4002::/:/bin/sh\nbroken\nbob:x:many:1::/:/bin/sh\n")
	for range 2 {
		for _, name := range []string{"ada", "4001"} {
			if u, err := l.find(name); err != nil || u != (user{4001, 4002}) {
				t.Errorf("%s is %+v, %v", name, u, err)
			}
		}
	}
	for name, want := range map[string]user{"4001:7": {4001, 7}, "4009": {4009, 4009}} {
		if u, err := l.find(name); err != nil || u != want {
			t.Errorf("%s is %+v, %v", name, u, err)
		}
	}
	for _, name := range []string{"bob", "eve", "", "4001:x"} {
		if u, err := l.find(name); err == nil {
			t.Errorf("%q is %+v", name, u)
		}
	}
	write("ada:x:4003:4004::/:/bin/sh\n")
	if u, err := l.find("ada"); err != nil || u != (user{4003, 4004}) {
		t.Errorf("after the change ada is %+v, %v", u, err)
	}
}
