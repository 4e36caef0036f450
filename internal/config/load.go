package config

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/knadh/koanf/parsers/yaml"
	"github.com/knadh/koanf/providers/env/v2"
	"github.com/knadh/koanf/providers/file"
	"github.com/knadh/koanf/v2"

	"github.com/aurea-dev/aurea/internal/fault"
)

// fileVariable names the variable that names the file.
const fileVariable = "AUREA_CONFIG"

// Sources is where settings are looked for.
type Sources struct {
	Role    Role              // "" reads the settings of every role
	Flags   map[string]string // flags that were given, by name without dashes
	File    string            // from --config; AUREA_CONFIG when empty
	Environ []string          // as os.Environ gives it
	Root    bool              // whether we run as root, which decides where data lives
}

// FromProcess returns the sources of this process.
func FromProcess(role Role, file string, flags map[string]string) Sources {
	own := os.Environ() //nolint:forbidigo // this is the place where it is read
	return Sources{Role: role, Flags: flags, File: file, Environ: own, Root: os.Geteuid() == 0}
}

// Load reads, layers and checks the settings that the role reads. Its error is
// one line for people. An empty variable counts as not set, unless the setting
// says otherwise.
func Load(src Sources) (*Config, error) {
	c := &Config{origins: map[string]Origin{}}
	vars := environment(src.Environ)
	if src.Role != Client {
		notes, err := refuse(vars)
		if err != nil {
			return nil, err
		}
		c.notes = notes
	}
	layers, err := src.layers(vars)
	if err != nil {
		return nil, err
	}
	all := koanf.New(".")
	for _, l := range layers {
		if err := all.Load(l, nil); err != nil {
			return nil, fmt.Errorf("layer settings: %w", err)
		}
		for key := range l.values {
			c.origins[key] = l.origin(key)
		}
	}
	raw := all.Raw()
	for _, s := range settings() {
		if !s.forRole(src.Role) { // what is not ours to read cannot hinder us
			raw[s.key], c.origins[s.key] = layers[0].values[s.key], FromDefault
		}
		if err := s.at(c).Set(fmt.Sprint(raw[s.key])); err != nil {
			return nil, fault.Field(s.blame(c.origins[s.key]), "%w", err).WithCode("bad_setting")
		}
	}
	if err := c.Validate(src.Role); err != nil {
		return nil, err
	}
	return c, nil
}

// blame names the setting the way in which it was set.
func (s setting) blame(o Origin) string {
	switch o {
	case FromFile:
		return s.key + " (in the file)"
	case FromDefault:
		return s.names()
	}
	_, name, _ := strings.Cut(string(o), " ")
	return name
}

// layer is a koanf provider over a flat map that remembers where each value
// came from.
type layer struct {
	values map[string]any
	from   map[string]Origin
	all    Origin
}

func (l layer) origin(key string) Origin {
	if o, ok := l.from[key]; ok {
		return o
	}
	return l.all
}

// Read returns the values.
func (l layer) Read() (map[string]any, error) { return maps.Clone(l.values), nil }

// ReadBytes is never called: koanf asks for bytes only to parse them.
func (l layer) ReadBytes() ([]byte, error) { return nil, errors.ErrUnsupported }

// layers returns the weakest first.
func (src Sources) layers(vars map[string]string) ([]layer, error) {
	fromFile, err := src.fileLayer(vars)
	if err != nil {
		return nil, err
	}
	fromEnv, err := src.envLayer()
	if err != nil {
		return nil, err
	}
	fromFlags := layer{values: map[string]any{}, from: map[string]Origin{}}
	for _, s := range settings() {
		if text, ok := src.Flags[s.flag]; ok && s.flag != "" {
			fromFlags.values[s.key] = text
			fromFlags.from[s.key] = Origin("flag --" + s.flag)
		}
	}
	fromDefaults := src.defaults(vars)
	// The base of sandboxes follows the data folder, wherever that came from.
	for _, l := range []layer{fromFile, fromEnv, fromFlags} {
		if data, ok := l.values["data"]; ok {
			fromDefaults.values["sandbox_base"] = filepath.Join(fmt.Sprint(data), "sandbox")
		}
	}
	return []layer{fromDefaults, fromFile, fromEnv, fromFlags}, nil
}

func (src Sources) defaults(vars map[string]string) layer {
	l := layer{values: map[string]any{}, all: FromDefault}
	for _, s := range settings() {
		l.values[s.key] = s.init
	}
	data := "/var/lib/aurea"
	if !src.Root {
		state := vars["XDG_STATE_HOME"]
		if !filepath.IsAbs(state) {
			state = filepath.Join(vars["HOME"], ".local", "state")
		}
		data = filepath.Join(state, "aurea")
	}
	l.values["data"] = data
	l.values["sandbox_base"] = filepath.Join(data, "sandbox")
	return l
}

// envLayer reads the variables of settings, and the aliases that stand for
// them where those are not set.
func (src Sources) envLayer() (layer, error) {
	l := layer{values: map[string]any{}, from: map[string]Origin{}}
	byEnv, byAlias := map[string]setting{}, map[string]variable{}
	for _, s := range settings() {
		byEnv[s.env] = s
	}
	for _, v := range variables() {
		if v.standing == Alias {
			byAlias[v.name] = v
		}
	}
	var wrong error
	k := koanf.New(".")
	provider := env.Provider("", env.Opt{
		EnvironFunc: func() []string { return src.Environ },
		TransformFunc: func(name, value string) (string, any) {
			if s, ok := byEnv[name]; value == "" && (!ok || !s.empty) {
				return "", nil
			} else if ok {
				l.from[s.key] = Origin("environment " + name)
				return s.key, value
			}
			v, ok := byAlias[name]
			if !ok || environment(src.Environ)[v.of] != "" {
				return "", nil
			}
			value, err := v.convert(value)
			if err != nil {
				wrong = fault.Field(name, "%w", err).WithCode("bad_setting")
			}
			l.from[byEnv[v.of].key] = Origin("environment " + name)
			return byEnv[v.of].key, value
		},
	})
	if err := k.Load(provider, nil); err != nil {
		return layer{}, fmt.Errorf("read the environment: %w", err)
	}
	l.values = k.Raw()
	return l, wrong
}

// fileLayer reads the file, if one is named. There is no default place, so
// that a file which somebody forgot never has an effect.
func (src Sources) fileLayer(vars map[string]string) (layer, error) {
	l := layer{values: map[string]any{}, all: FromFile}
	path := src.File
	if path == "" {
		path = vars[fileVariable]
	}
	if path == "" {
		return l, nil
	}
	k := koanf.New("\x00") // no key is split: names of roles may hold dots
	if err := k.Load(file.Provider(path), yaml.Parser()); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return l, fault.New(fault.Invalid, "read the settings file %s: it does not exist", path).WithCode("bad_setting")
		}
		return l, fault.New(fault.Invalid, "read the settings file %s: %s", path, oneLine(err)).WithCode("bad_setting")
	}
	for key, v := range k.Raw() {
		s, ok := settingByKey(key)
		if !ok || s.quiet {
			return l, fault.New(fault.Invalid, "settings file %s: unknown key %q%s", path, clip(key), nearest(key)).WithCode("unknown_key")
		}
		text, err := flatten(v)
		if err != nil {
			return l, fault.New(fault.Invalid, "settings file %s: %s: %w", path, key, err).WithCode("bad_setting")
		}
		l.values[key] = text
	}
	return l, nil
}

// flatten writes a value of the file the way a variable would hold it.
func flatten(v any) (string, error) {
	switch v := v.(type) {
	case nil:
		return "", errors.New("has no value")
	case map[string]any:
		var pairs []string
		for _, name := range slices.Sorted(maps.Keys(v)) {
			to, isText := v[name].(string)
			if n, isNumber := v[name].(int); isNumber {
				to, isText = strconv.Itoa(n), true
			}
			if !isText || strings.ContainsAny(name+to, ",=") {
				return "", errors.New("must be a map from names to names or whole numbers, without commas and equals signs")
			}
			pairs = append(pairs, name+"="+to)
		}
		return strings.Join(pairs, ","), nil
	case []any:
		var words []string
		for _, e := range v {
			word, isText := e.(string)
			if !isText || strings.Contains(word, ",") {
				return "", errors.New("must be a list of names without commas")
			}
			words = append(words, word)
		}
		return strings.Join(words, ","), nil
	}
	return fmt.Sprint(v), nil
}

// refuse looks for variables that must not be set.
func refuse(vars map[string]string) (notes []string, err error) {
	for _, name := range slices.Sorted(maps.Keys(vars)) {
		if strings.HasPrefix(name, ownPrefix) && !known(name) {
			return nil, fault.Field(name, "is not a setting%s; unset it to start", nearest(strings.ToLower(strings.TrimPrefix(name, ownPrefix)))).WithCode("unknown_setting")
		}
		for _, v := range variables() {
			if v.standing != Refused || !v.matches(name) {
				continue
			}
			if !v.noted {
				return nil, fault.Field(name, "is set but refused: %s; unset it to start", v.reason).WithCode("refused_setting")
			}
			notes = append(notes, fmt.Sprintf("%s is set and has no effect: %s", name, v.reason))
		}
	}
	return notes, nil
}

// ownPrefix is that of variables which mean something to nobody but us, so
// that one which we do not know is a mistake.
const ownPrefix = "AUREA_"

// known reports whether a variable of ours is one that some role reads.
func known(name string) bool {
	return name == fileVariable || slices.ContainsFunc(settings(), func(s setting) bool { return s.env == name })
}

// environment returns the variables that are set to something.
func environment(environ []string) map[string]string {
	vars := map[string]string{}
	for _, e := range environ {
		if name, value, ok := strings.Cut(e, "="); ok && value != "" {
			vars[name] = value
		}
	}
	return vars
}

// nearest offers the key that was probably meant.
func nearest(key string) string {
	best, least := "", 3
	for _, s := range settings() {
		if d := distance(key, s.key); !s.quiet && d < least {
			best, least = s.key, d
		}
	}
	if best == "" {
		return "; `aurea config show` lists the keys"
	}
	return fmt.Sprintf("; did you mean %q?", best)
}

// distance counts the edits between two words.
func distance(a, b string) int {
	if len(a) > 64 {
		return len(a)
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		above := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := above
			if a[i] != b[j] {
				cost = 1 + min(above, row[j], row[j+1])
			}
			above, row[j+1] = row[j+1], cost
		}
	}
	return row[len(b)]
}

func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }
