package policy

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestKeysAreNarrowed(t *testing.T) {
	t.Parallel()
	now := time.Now()
	k, secret := NewKey(Operator, "n", now)
	if !strings.HasPrefix(secret, "aurea_operator_") || HashKey(secret) != k.Hash || strings.Contains(k.ID, secret) {
		t.Errorf("%q of %q", k.ID, secret)
	}
	if c := k.Caller(); c.ID != k.ID || c.Actor() != k.ID || !c.SeesAll() || !c.May(Stop) {
		t.Errorf("a key that is not narrowed: %+v", c)
	}
	k.Scope = Scope{Actions: []Action{Read, Stop, Manage}}
	if c := k.Caller(); c.ID != k.ID || !c.SeesAll() || !c.May(Read) || !c.May(Stop) || c.May(Submit) || c.May(Manage) {
		t.Errorf("narrowed to actions: %+v", c)
	}
	k.Scope = Scope{Owner: "team"}
	if c := k.Caller(); c.ID != "team" || c.Actor() != k.ID || c.SeesAll() || !c.May(Submit) || c.May(Stop) || c.May(Work) {
		t.Errorf("narrowed to an owner: %+v", c)
	}
}

func TestKeysEnd(t *testing.T) {
	t.Parallel()
	now := time.Now()
	k, _ := NewKey(Viewer, "", now)
	if !k.Good(now) {
		t.Error("a new key is not good")
	}
	k.ExpiresAt = now.Add(time.Second)
	if !k.Good(now) || k.Good(k.ExpiresAt) {
		t.Error("a key does not end when it expires")
	}
	k.ExpiresAt, k.RevokedAt = time.Time{}, now
	if k.Good(now) {
		t.Error("a revoked key is good")
	}
}

func TestKeyRequests(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for name, c := range map[string]struct {
		req  KeyRequest
		want string // in the error; "" for none
	}{
		"plain":         {KeyRequest{Kind: Viewer, Name: "ünï"}, ""},
		"all":           {KeyRequest{Kind: Operator, ExpiresAt: now.Add(1), Scope: Scope{Actions: []Action{Read, Submit}, Owner: "a.b-c_1"}}, ""},
		"no kind":       {KeyRequest{}, "kind"},
		"local":         {KeyRequest{Kind: Local}, "kind"},
		"sandbox":       {KeyRequest{Kind: Sandbox}, "token"},
		"long name":     {KeyRequest{Kind: Viewer, Name: strings.Repeat("x", 101)}, "name"},
		"odd name":      {KeyRequest{Kind: Viewer, Name: "a\nb"}, "name"},
		"broken name":   {KeyRequest{Kind: Viewer, Name: "\xff"}, "name"},
		"over":          {KeyRequest{Kind: Viewer, ExpiresAt: now}, "expires_at"},
		"odd owner":     {KeyRequest{Kind: Viewer, Scope: Scope{Owner: "a/b"}}, "owner"},
		"system":        {KeyRequest{Kind: Viewer, Scope: Scope{Owner: "system"}}, "owner"},
		"more":          {KeyRequest{Kind: Viewer, Scope: Scope{Actions: []Action{Submit}}}, "actions[0]"},
		"twice":         {KeyRequest{Kind: Viewer, Scope: Scope{Actions: []Action{Read, Read}}}, "actions[1]"},
		"for an owner":  {KeyRequest{Kind: Admin, Scope: Scope{Owner: "x", Actions: []Action{Manage}}}, "actions[0]"},
		"a project":     {KeyRequest{Kind: Operator, Scope: Scope{Project: 7, Actions: []Action{Read}}}, ""},
		"below zero":    {KeyRequest{Kind: Operator, Scope: Scope{Project: -1}}, "project_id"},
		"in a project":  {KeyRequest{Kind: Admin, Scope: Scope{Project: 7, Actions: []Action{Stop}}}, "actions[0]"},
		"unheard of it": {KeyRequest{Kind: Admin, Scope: Scope{Actions: []Action{"fly"}}}, "actions[0]"},
	} {
		err := c.req.Check(now)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestNobodyGrantsMore shows who makes which keys.
func TestNobodyGrantsMore(t *testing.T) {
	t.Parallel()
	every := []Kind{Admin, Director, Operator, Auditor, Viewer, Bridge, Worker}
	for kind, want := range map[Kind][]Kind{
		Local: every, Admin: every, Director: {Director, Operator, Auditor, Viewer, Bridge}, Operator: nil, Auditor: nil, Viewer: nil, Bridge: nil, Worker: nil, Sandbox: nil,
	} {
		for _, k := range every {
			if got := (Caller{Kind: kind}).MayGrant(k); got != slices.Contains(want, k) {
				t.Errorf("%s makes a key of kind %s: %v", kind, k, got)
			}
			if (Caller{Kind: kind, Scope: &Scope{Actions: []Action{Manage}}}).MayGrant(k) {
				t.Errorf("a narrowed %s makes a key of kind %s", kind, k)
			}
		}
	}
}
