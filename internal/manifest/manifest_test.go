package manifest_test

import (
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/manifest"
)

func TestTheStateHasOneForm(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"": "{}", "null": "{}", "{}": "{}", ` { "b" : [ 1.0 , 1e2, {"z":1,"y":null} ], "a" : "<é&\u00e9" } `: `{"a":"<é&é","b":[1.0,1e2,{"y":null,"z":1}]}`,
	} {
		got, err := manifest.CanonicalState(json.RawMessage(in))
		if err != nil || string(got) != want {
			t.Errorf("%s becomes %s: %v", in, got, err)
		}
	}
	for _, bad := range []string{"[]", `"x"`, "1", `{"a":1,"a":1}`, `{"a":{"b":1,"b":2}}`, `{"a":1}x`, `{"a":1}{}`, "{", `{"a"}`, "{\"a\":\"\xff\"}", strings.Repeat(`{"a":`, 100) + "1" + strings.Repeat("}", 100)} {
		if got, err := manifest.CanonicalState(json.RawMessage(bad)); !fault.Is(err, fault.Invalid) {
			t.Errorf("%q becomes %s: %v", bad, got, err)
		}
	}
	if _, err := manifest.CanonicalState(json.RawMessage(`{"a":"` + strings.Repeat("x", manifest.MaxSnapshot) + `"}`)); !fault.Is(err, fault.TooLarge) {
		t.Errorf("one that is too large: %v", err)
	}
}

func FuzzCanonicalState(f *testing.F) {
	for _, seed := range []string{"{}", `{"a":[1,2,{"b":null}]}`, `{"a":1,"a":2}`, `{"\u0061":1,"a":2}`, "{\"\xff\":1}", `{"a":1e400}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		once, err := manifest.CanonicalState(raw)
		if err != nil {
			return
		}
		twice, err := manifest.CanonicalState(once)
		if err != nil && !fault.Is(err, fault.TooLarge) || err == nil && string(twice) != string(once) {
			t.Errorf("%s becomes %s and then %s: %v", raw, once, twice, err)
		}
		if !json.Valid(once) {
			t.Errorf("%s becomes %s", raw, once)
		}
	})
}

func sample() (manifest.Manifest, manifest.Terms) {
	at := time.Date(2031, 1, 2, 3, 4, 5, 678000, time.UTC)
	return manifest.Manifest{
		WorkerID: "0a1b2c3d", ParentID: "aaaaaaaa", Depth: 1, IssuedAt: at, State: json.RawMessage(`{"a":"x"}`),
		Resources: manifest.Resources{CPULimit: 0.25, MemoryLimitMB: 64, Network: manifest.DefaultNetwork()},
	}, manifest.Terms{Contract: "c", Owner: "o", Until: at.Add(time.Minute)}
}

func TestASignatureBindsEverything(t *testing.T) {
	t.Parallel()
	key, err := manifest.NewKey(make([]byte, ed25519.SeedSize))
	if err != nil {
		t.Fatal(err)
	}
	public := key.Public(time.Now())
	m, terms := sample()
	m.Signature = key.Sign(&m, terms)
	if !public.Verify(&m, terms) {
		t.Fatal("a good one is refused")
	}
	for name, change := range map[string]func(m *manifest.Manifest, t *manifest.Terms){
		"worker":     func(m *manifest.Manifest, _ *manifest.Terms) { m.WorkerID = "0a1b2c3e" },
		"parent":     func(m *manifest.Manifest, _ *manifest.Terms) { m.ParentID = "" },
		"depth":      func(m *manifest.Manifest, _ *manifest.Terms) { m.Depth = 0 },
		"state":      func(m *manifest.Manifest, _ *manifest.Terms) { m.State = json.RawMessage(`{"a":"y"}`) },
		"normal":     func(m *manifest.Manifest, _ *manifest.Terms) { m.State = json.RawMessage(`{"a":"x\u0301"}`) },
		"issued":     func(m *manifest.Manifest, _ *manifest.Terms) { m.IssuedAt = m.IssuedAt.Add(1) },
		"cpu":        func(m *manifest.Manifest, _ *manifest.Terms) { m.Resources.CPULimit = math.Nextafter(0.25, 1) },
		"memory":     func(m *manifest.Manifest, _ *manifest.Terms) { m.Resources.MemoryLimitMB++ },
		"controller": func(m *manifest.Manifest, _ *manifest.Terms) { m.Resources.Network.AllowController = false },
		"external":   func(m *manifest.Manifest, _ *manifest.Terms) { m.Resources.Network.AllowExternal = true },
		"contract":   func(_ *manifest.Manifest, t *manifest.Terms) { t.Contract = "d" },
		"owner":      func(_ *manifest.Manifest, t *manifest.Terms) { t.Owner = "p" },
		"until":      func(_ *manifest.Manifest, t *manifest.Terms) { t.Until = t.Until.Add(time.Hour) },
		"shifted":    func(_ *manifest.Manifest, t *manifest.Terms) { t.Contract, t.Owner = "c\"\nowner=\"o", "" },
		"no form": func(m *manifest.Manifest, _ *manifest.Terms) {
			m.Signature = strings.TrimPrefix(m.Signature, "ed25519-v1.")
		},
		"a tail":    func(m *manifest.Manifest, _ *manifest.Terms) { m.Signature += "." },
		"a newline": func(m *manifest.Manifest, _ *manifest.Terms) { m.Signature += "\n" },
	} {
		x, y := m, terms
		change(&x, &y)
		if public.Verify(&x, y) {
			t.Errorf("a change of %s is not seen", name)
		}
	}
	for i := range m.Signature {
		x := m
		x.Signature = m.Signature[:i] + string(m.Signature[i]^1) + m.Signature[i+1:]
		if public.Verify(&x, terms) {
			t.Errorf("a flipped bit at %d of the signature is not seen", i)
		}
	}
	public.RevokedAt = time.Now()
	if public.Verify(&m, terms) {
		t.Error("a revoked key is good")
	}
}

func TestContractsAreChecked(t *testing.T) {
	t.Parallel()
	if n := len(manifest.Templates()); n != 8 {
		t.Errorf("there are %d templates", n)
	}
	for _, c := range append(manifest.Templates(), manifest.Default()) {
		if err := c.Check(); err != nil {
			t.Errorf("%s: %v", c.Name, err)
		}
	}
	for name, change := range map[string]func(c *manifest.Contract){
		"name":       func(c *manifest.Contract) { c.Name = "A b" },
		"depth":      func(c *manifest.Contract) { c.MaxDepth = -1 },
		"replicas":   func(c *manifest.Contract) { c.MaxReplicas = 0 },
		"cooldown":   func(c *manifest.Contract) { c.Cooldown = -1 },
		"expiration": func(c *manifest.Contract) { c.Expiration = -1 },
		"condition":  func(c *manifest.Contract) { c.Stop = []manifest.StopCondition{{Name: "x"}} },
		"threshold": func(c *manifest.Contract) {
			c.Stop = []manifest.StopCondition{{Name: manifest.HighMemory, Threshold: math.NaN()}}
		},
		"processors":  func(c *manifest.Contract) { c.Resources.CPULimit = math.NaN() },
		"none":        func(c *manifest.Contract) { c.Resources.CPULimit = 0 },
		"too few":     func(c *manifest.Contract) { c.Resources.CPULimit = 0.0001 },
		"no memory":   func(c *manifest.Contract) { c.Resources.MemoryLimitMB = 0 },
		"much memory": func(c *manifest.Contract) { c.Resources.MemoryLimitMB = math.MaxInt64 },
	} {
		c := manifest.Default()
		change(&c)
		if err := c.Check(); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestStopConditions(t *testing.T) {
	t.Parallel()
	c := manifest.Default()
	c.MaxDepth, c.MaxReplicas, c.Stop = 5, 10, manifest.Conditions()
	for _, x := range []struct {
		depth, active int
		memory        int64
		want          string
	}{
		{3, 8, 512, ""}, {4, 9, 1024, manifest.DepthUtilization}, {3, 9, 1024, manifest.QuotaPressure}, {3, 8, 513, manifest.HighMemory},
	} {
		m := manifest.Manifest{Depth: x.depth, Resources: manifest.Resources{MemoryLimitMB: x.memory}}
		if got := c.Evaluate(&m, x.active); got != x.want {
			t.Errorf("%+v: %q", x, got)
		}
	}
}

func TestLineageFindsOrphansCyclesAndBadDepths(t *testing.T) {
	t.Parallel()
	w := func(id, parent string, depth int, state manifest.State) manifest.Worker {
		return manifest.Worker{Manifest: manifest.Manifest{WorkerID: id, ParentID: parent, Depth: depth}, State: state}
	}
	l := manifest.Trace([]manifest.Worker{
		w("root", "", 0, manifest.Running), w("child", "root", 1, manifest.Running), w("deep", "child", 5, manifest.Running),
		w("dead", "root", 1, manifest.Ended), w("orphan", "dead", 2, manifest.Running), w("lost", "nobody", 1, manifest.Running), w("old", "nobody", 1, manifest.Ended),
		w("a", "b", 1, manifest.Running), w("b", "c", 2, manifest.Running), w("c", "a", 3, manifest.Running), w("tail", "a", 2, manifest.Running), w("self", "self", 1, manifest.Ended),
	})
	if got := fmt.Sprint(l.Orphans, l.Cycles, l.BadDepths); got != "[lost orphan] [a b c self] [deep]" {
		t.Errorf("found %s", got)
	}
	if text, err := json.Marshal(l); err != nil || len(text) == 0 {
		t.Errorf("the tree cannot be written: %v", err)
	}
}

func TestMovesOfAWorker(t *testing.T) {
	t.Parallel()
	legal := 0
	for _, from := range manifest.States() {
		for _, to := range manifest.States() {
			got, err := from.To(to)
			if err == nil {
				legal++
			}
			if err == nil && got != to || err != nil && (got != from || !fault.Is(err, fault.Conflict)) {
				t.Errorf("%s to %s: %s, %v", from, to, got, err)
			}
		}
	}
	if legal != 8 {
		t.Errorf("%d moves are legal", legal)
	}
}
