package language

import (
	"embed"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/aurea-dev/aurea/internal/fault"
)

//go:embed languages.json
var embedded embed.FS

// Registry is a checked set of languages. It does not change.
type Registry struct {
	all        []Language // by name
	byWord     map[string]int
	byExt      map[string]int
	byShebangs map[string]int
}

// Default is the registry that we ship.
func Default() (*Registry, error) { return Load("") }

// Load is the registry that we ship with the entries of an operator's file laid
// over it: an entry takes the place of that of the same name, whole. "" is no
// file.
func Load(file string) (*Registry, error) {
	shipped, err := embedded.ReadFile("languages.json")
	if err != nil {
		return nil, fmt.Errorf("read the languages: %w", err)
	}
	all, err := Parse(shipped)
	if err != nil {
		return nil, fmt.Errorf("read the languages: %w", err)
	}
	if file == "" {
		return New(all)
	}
	data, err := readFile(file)
	if err != nil {
		return nil, err
	}
	own, err := Parse(data)
	if err != nil {
		return nil, fmt.Errorf("read the languages of %s: %w", file, err)
	}
	r, err := New(merge(all, own))
	if err != nil {
		return nil, fmt.Errorf("read the languages of %s: %w", file, err)
	}
	return r, nil
}

func readFile(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fault.Field("languages", "cannot be read: %w", err)
	}
	defer func() { _ = f.Close() }()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, fault.Field("languages", "cannot be read: %w", err)
	}
	return data, nil
}

func merge(all, own []Language) []Language {
	merged := slices.DeleteFunc(slices.Clone(all), func(l Language) bool {
		return slices.ContainsFunc(own, func(o Language) bool { return o.Name == l.Name })
	})
	return append(merged, own...)
}

// New makes a registry of checked entries. No word, extension or shebang may
// stand for two of them.
func New(all []Language) (*Registry, error) {
	r := &Registry{all: slices.Clone(all), byWord: map[string]int{}, byExt: map[string]int{}, byShebangs: map[string]int{}}
	slices.SortFunc(r.all, func(a, b Language) int { return strings.Compare(a.Name, b.Name) })
	if len(r.all) > maxLanguages {
		return nil, fault.Field("languages", "has %d entries; at most %d are taken", len(r.all), maxLanguages)
	}
	for i, l := range r.all {
		if err := l.check(); err != nil {
			return nil, err
		}
		for _, of := range []struct {
			what  string
			words []string
			to    map[string]int
		}{{"word", l.words(), r.byWord}, {"extension", l.Extensions, r.byExt}, {"shebang", l.Shebangs, r.byShebangs}} {
			for _, w := range of.words {
				if other, taken := of.to[w]; taken {
					return nil, fault.Field("languages", "the %s %q stands for %s and for %s", of.what, w, r.all[other].Name, l.Name)
				}
				of.to[w] = i
			}
		}
	}
	return r, nil
}

// All are the languages, by name.
func (r *Registry) All() []Language { return slices.Clone(r.all) }

// Names are their names, in order.
func (r *Registry) Names() []string {
	names := make([]string, len(r.all))
	for i, l := range r.all {
		names[i] = l.Name
	}
	return names
}

// Lookup finds a language by its name or an alias, in any case.
func (r *Registry) Lookup(word string) (Language, bool) {
	return r.at(r.byWord, strings.ToLower(strings.TrimSpace(word)))
}

// Find is Lookup with a fault that lists what there is.
func (r *Registry) Find(word string) (Language, error) {
	if l, ok := r.Lookup(word); ok {
		return l, nil
	}
	return Language{}, fault.Field("language", "%q is not known here; use one of %s", clip(word), strings.Join(r.Names(), ", ")).WithCode("unknown_language")
}

// ForFile tells the language of a file, by its extension or else by the first
// line of its content.
func (r *Registry) ForFile(name string, content []byte) (Language, bool) {
	if l, ok := r.at(r.byExt, strings.ToLower(path.Ext(name))); ok {
		return l, true
	}
	return r.ForShebang(content)
}

// ForShebang tells the language of a script by its first line.
func (r *Registry) ForShebang(content []byte) (Language, bool) {
	name := interpreter(content)
	if l, ok := r.at(r.byShebangs, name); ok {
		return l, true
	}
	// python3.11 is a python3, python2.7 is none.
	if dot := strings.LastIndexByte(name, '.'); dot > 0 {
		return r.at(r.byShebangs, name[:dot])
	}
	return Language{}, false
}

func (r *Registry) at(index map[string]int, word string) (Language, bool) {
	i, ok := index[word]
	if !ok || word == "" {
		return Language{}, false
	}
	return r.all[i], true
}

// interpreter is the program that a first line names: that of "#!/usr/bin/x",
// "#!/usr/bin/env x" and "#!/usr/bin/env -S x -y" is x.
func interpreter(content []byte) string {
	const most = 256
	text := string(content[:min(len(content), most)])
	first, _, _ := strings.Cut(text, "\n")
	rest, ok := strings.CutPrefix(strings.TrimSuffix(first, "\r"), "#!")
	if !ok {
		return ""
	}
	words := strings.Fields(rest)
	if len(words) == 0 {
		return ""
	}
	if path.Base(words[0]) != "env" {
		return path.Base(words[0])
	}
	for _, w := range words[1:] {
		if !strings.HasPrefix(w, "-") && !strings.Contains(w, "=") {
			return path.Base(w)
		}
	}
	return ""
}

// clip keeps a text short where it is shown.
func clip(s string) string {
	const most = 100
	if len(s) <= most {
		return s
	}
	cut := most
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "…"
}
