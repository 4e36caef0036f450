package watchman_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aurea-dev/aurea/internal/audit"
	"github.com/aurea-dev/aurea/internal/event"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/manifest"
	"github.com/aurea-dev/aurea/internal/store"
	"github.com/aurea-dev/aurea/internal/trigger"
	"github.com/aurea-dev/aurea/internal/webhook"
)

// receiver is who is called by hooks.
type receiver struct {
	*httptest.Server
	mu    sync.Mutex
	calls []string // path, event and outcome of each
	ids   map[string]int
	bad   []string // calls that were not signed as they should be
	// answer says what is answered; nil is 200.
	answer http.HandlerFunc
}

func newReceiver(t *testing.T, secret []byte) *receiver {
	t.Helper()
	r := &receiver{ids: map[string]int{}}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		var told struct{ Type, Firing, Outcome string }
		err := json.Unmarshal(body, &told)
		h := req.Header
		r.mu.Lock()
		if err != nil || h.Get("X-Aurea-Signature") != webhook.Sign(secret, h.Get("X-Aurea-Timestamp"), body) || h.Get("X-Aurea-Event") != told.Type || told.Firing == "" {
			r.bad = append(r.bad, fmt.Sprint(h, string(body)))
		}
		r.calls = append(r.calls, strings.TrimSpace(req.URL.Path+" "+told.Type+" "+told.Outcome))
		r.ids[h.Get("X-Aurea-Delivery")]++
		answer := r.answer
		r.mu.Unlock()
		if answer != nil {
			answer(w, req)
		}
	}))
	t.Cleanup(func() {
		r.Close()
		if len(r.bad) > 0 {
			t.Errorf("calls that are not as they should be: %v", r.bad)
		}
	})
	return r
}

func (r *receiver) reply(h http.HandlerFunc) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = h
}

func (r *receiver) got() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(r.calls, ", ")
}

func say(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// hooked gives a trigger all hooks of a receiver.
func hooked(r *receiver, x *trigger.Trigger) {
	x.Plan.Hooks = trigger.Hooks{PreKill: r.URL + "/canary/pre", Cleanup: r.URL + "/canary/clean", Notify: r.URL + "/canary/tell", Timeout: 20 * time.Second}
}

func (s *stage) deliver() {
	for s.Deliver(system()) {
	}
}

func TestHooksAreCalled(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, db store.Store) {
		s := newStage(t, db)
		r := newReceiver(t, s.hooks.Secret)
		s.rule(trigger.TimeLimit, 5, func(x *trigger.Trigger) { hooked(r, x) })
		w := s.start()
		r.reply(func(http.ResponseWriter, *http.Request) {
			if x := s.worker(w); x.State != manifest.Running {
				t.Errorf("the hook was asked when the worker was %s", x.State)
			}
		})
		s.look(5)
		r.reply(nil)
		if f := s.want(trigger.Killed)[0]; f.PreKill != trigger.Allowed {
			t.Errorf("the hook said %q", f.PreKill)
		}
		s.restart() // what is to be told is told by the next
		s.deliver()
		const want = "/canary/pre trigger.pre_kill, /canary/tell trigger.fired, /canary/clean trigger.cleanup killed, /canary/tell trigger.ended killed"
		got := strings.Split(r.got(), ", ")
		for _, one := range strings.Split(want, ", ") {
			if !strings.Contains(r.got(), one) {
				t.Errorf("nobody was told %q; the calls are %q", one, got)
			}
		}
		s.pass(24 * time.Hour)
		s.deliver()
		if len(strings.Split(r.got(), ", ")) != 4 || len(r.ids) != 4 {
			t.Errorf("the calls are %q with %v", r.got(), r.ids)
		}
		s.noCanary()
	})
}

// noCanary demands that the addresses of hooks are in no record and no event.
func (s *stage) noCanary() {
	s.Helper()
	err := s.db.View(context.Background(), func(tx store.Tx) error {
		records, err := tx.Audit().List(context.Background(), audit.Filter{}, 1000)
		if err != nil {
			return err
		}
		events, err := tx.Events().List(context.Background(), event.Filter{}, 1000)
		text, _ := json.Marshal([]any{records, events})
		if len(records) == 0 || len(events) == 0 || strings.Contains(string(text), "canary") {
			s.Errorf("the address of a hook is in %s", text)
		}
		return err
	})
	if err != nil {
		s.Fatal(err)
	}
}

func TestAHookAborts(t *testing.T) {
	t.Parallel()
	s := newStage(t, openSQLite(t))
	r := newReceiver(t, s.hooks.Secret)
	s.rule(trigger.TimeLimit, 5, func(x *trigger.Trigger) { hooked(r, x); x.Plan.Cooldown = 10 * time.Second })
	w := s.start()
	r.reply(say(http.StatusOK, `{"abort":true,"reason":"a backup\nruns\u0007 `+strings.Repeat("x", 9000)+`"}`))
	s.look(6)
	f := s.want(trigger.Failed)[0]
	if f.PreKill != trigger.Aborted || len(f.Detail) > trigger.MaxText || !strings.HasPrefix(f.Detail, "the pre_kill hook aborted it: a backup runs ") || s.worker(w).State != manifest.Running {
		t.Errorf("it came to %+v, and the worker is %s", f, s.worker(w).State)
	}
	r.reply(say(http.StatusOK, `{"abort":false}`))
	s.look(8)
	s.want(trigger.Failed)
	s.look(2) // it is still in breach, and is asked again after the cooldown
	if f := s.want(trigger.Failed, trigger.Killed)[0]; f.PreKill != trigger.Allowed {
		t.Errorf("it came to %+v", f)
	}
	s.deliver()
	for _, one := range []string{"/canary/tell trigger.ended failed", "/canary/tell trigger.ended killed", "/canary/clean trigger.cleanup killed"} {
		if n := strings.Count(r.got(), one); n != 1 {
			t.Errorf("%q was told %d times: %q", one, n, r.got())
		}
	}
}

// TestAHookThatDoesNotAnswerAbortsNothing: what comes from there is not trusted to
// keep anybody alive, unless it says so in plain words.
func TestAHookThatDoesNotAnswerAbortsNothing(t *testing.T) {
	t.Parallel()
	for what, answer := range map[string]http.HandlerFunc{
		"an error":          say(http.StatusInternalServerError, `{"abort":true}`),
		"no JSON":           say(http.StatusOK, "abort"),
		"a list":            say(http.StatusOK, `[{"abort":true}]`),
		"a word for yes":    say(http.StatusOK, `{"abort":"true"}`),
		"half of an answer": say(http.StatusOK, `{"abort":true,`),
		"more than is read": say(http.StatusOK, `{"reason":"`+strings.Repeat("x", 1<<20)+`","abort":true}`),
		"nothing":           say(http.StatusOK, ""),
		"a redirect": func(w http.ResponseWriter, req *http.Request) {
			http.Redirect(w, req, "/abort", http.StatusTemporaryRedirect)
		},
		"no answer in time":   func(_ http.ResponseWriter, req *http.Request) { <-req.Context().Done() },
		"a connection is cut": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, openSQLite(t))
			r := newReceiver(t, s.hooks.Secret)
			r.reply(answer)
			s.rule(trigger.TimeLimit, 5, func(x *trigger.Trigger) {
				hooked(r, x)
				if what == "no answer in time" {
					x.Plan.Hooks.Timeout = 10 * time.Millisecond
				}
			})
			w := s.start()
			s.look(6)
			if f := s.want(trigger.Killed)[0]; s.worker(w).State != manifest.Ended || f.PreKill == trigger.Aborted {
				t.Errorf("it came to %+v", f)
			}
		})
	}
}

// TestAHookHasNoMoreTimeThanItHas: one that was not asked in time, because the
// manager was away, is not asked any more.
func TestAHookHasNoMoreTimeThanItHas(t *testing.T) {
	t.Parallel()
	s := newStage(t, openSQLite(t))
	r := newReceiver(t, s.hooks.Secret)
	manual := s.rule(trigger.Manual, 0, func(x *trigger.Trigger) { hooked(r, x) })
	w := s.start()
	if _, err := s.Fire(boss(), w.ID(), manual.ID, nil, "now"); err != nil {
		t.Fatal(err)
	}
	s.restart()
	s.pass(20 * time.Second)
	s.look(1)
	if f := s.want(trigger.Killed)[0]; f.PreKill != trigger.Unanswered || strings.Contains(r.got(), "pre_kill") {
		t.Errorf("it came to %+v after %q", f, r.got())
	}
}

// TestAnAbortOutlivesACrash: a manager that is killed between the answer of the
// hook and the end of the firing has not forgotten the answer.
func TestAnAbortOutlivesACrash(t *testing.T) {
	t.Parallel()
	s := newStage(t, openSQLite(t))
	r := newReceiver(t, s.hooks.Secret)
	manual := s.rule(trigger.Manual, 0, func(x *trigger.Trigger) { hooked(r, x) })
	w := s.start()
	fired, err := s.Fire(boss(), w.ID(), manual.ID, nil, "now")
	if err != nil {
		t.Fatal(err)
	}
	fired.Firing.PreKill = trigger.Aborted
	if err := s.Store.Update(t.Context(), func(tx store.Tx) error { return tx.Firings().Put(t.Context(), fired.Firing) }); err != nil {
		t.Fatal(err)
	}
	s.restart()
	s.look(1)
	if f := s.want(trigger.Failed)[0]; f.PreKill != trigger.Aborted || s.worker(w).State != manifest.Running {
		t.Errorf("it came to %+v, and the worker is %s", f, s.worker(w).State)
	}
}

func TestWhatAHookIsToldIsToldAgain(t *testing.T) {
	t.Parallel()
	s := newStage(t, openSQLite(t))
	r := newReceiver(t, s.hooks.Secret)
	manual := s.rule(trigger.Manual, 0, func(x *trigger.Trigger) {
		x.Plan.Hooks.Notify = r.URL + "/canary/tell"
		x.Plan.Strategy = trigger.Suspend
	})
	w := s.start()
	r.reply(say(http.StatusBadGateway, "later"))
	if _, err := s.Fire(boss(), w.ID(), manual.ID, nil, "now"); err != nil {
		t.Fatal(err)
	}
	s.deliver()
	s.deliver() // its time has not come again
	if got := r.got(); got != "/canary/tell trigger.fired" {
		t.Errorf("the calls are %q", got)
	}
	for range 20 {
		s.pass(time.Hour)
		s.deliver()
	}
	if n := strings.Count(r.got(), "trigger.fired"); n != webhook.Tries {
		t.Errorf("it was told %d times, and then given up", n)
	}
	if len(r.ids) != 1 {
		t.Errorf("it has the ids %v, want the same each time", r.ids)
	}
	s.noCanary()
}

// TestHooksGoWhereTheyMay holds that the rules of webhooks are those of hooks too.
func TestHooksGoWhereTheyMay(t *testing.T) {
	t.Parallel()
	s := newStage(t, openSQLite(t))
	s.hooks.Private = false
	s.restart()
	rule := func(h trigger.Hooks) (trigger.Trigger, error) {
		x := trigger.Trigger{Kind: trigger.Manual, Severity: manifest.Low, Enabled: true, Plan: trigger.DefaultPlan()}
		h.Timeout = trigger.DefaultHookTimeout
		x.Plan.Hooks = h
		return s.AddTrigger(boss(), x)
	}
	fine, err := rule(trigger.Hooks{PreKill: "https://example.org/a", Cleanup: "https://example.org/b", Notify: "https://example.org/c"})
	if err != nil {
		t.Fatal(err)
	}
	for _, address := range []string{"http://example.org/", "https://127.0.0.1/", "https://169.254.169.254/latest", "https://[::1]/", "x", "https://u:p@example.org/", "https://example.org/" + strings.Repeat("x", 3000), "https://example.org/\n"} {
		for _, h := range []trigger.Hooks{{PreKill: address}, {Cleanup: address}, {Notify: address}} {
			if _, err := rule(h); !fault.Is(err, fault.Invalid) {
				t.Errorf("%.60q was let through: %v", address, err)
			}
			_, err := s.ChangeTrigger(boss(), fine.ID, func(x *trigger.Trigger) error {
				h.Timeout = time.Second
				x.Plan.Hooks = h
				return nil
			})
			if !fault.Is(err, fault.Invalid) {
				t.Errorf("%.60q was let through by a change: %v", address, err)
			}
		}
	}
	for _, d := range []time.Duration{0, -1, 31 * time.Second} {
		_, err := s.ChangeTrigger(boss(), fine.ID, func(x *trigger.Trigger) error { x.Plan.Hooks.Timeout = d; return nil })
		if !fault.Is(err, fault.Invalid) {
			t.Errorf("a time of %s was let through: %v", d, err)
		}
	}
	s.hooks.Secret = nil
	s.restart()
	if _, err := rule(trigger.Hooks{Notify: "https://example.org/a"}); fault.CodeOf(err) != "bad_webhook" {
		t.Errorf("without a secret: %v", err)
	}
}

// TestTriggersLeaveAloneWhatASwitchHasFrozen: freezing can be undone, so nothing is
// ended by itself meanwhile; what somebody wants done by hand is done.
func TestTriggersLeaveAloneWhatASwitchHasFrozen(t *testing.T) {
	t.Parallel()
	s := newStage(t, openSQLite(t))
	s.rule(trigger.TimeLimit, 5, func(x *trigger.Trigger) { x.Plan.Strategy = trigger.Graceful })
	manual := s.rule(trigger.Manual, 0, func(x *trigger.Trigger) { x.Plan.Cooldown = 0 })
	w, other := s.start(), s.start()
	s.exec(w, "sleep")
	s.look(4)
	s.engage(true)
	s.look(100)
	s.want()
	if _, err := s.Fire(boss(), other.ID(), manual.ID, nil, "this one"); err != nil {
		t.Fatal(err)
	}
	s.look(1)
	if s.want(trigger.Killed); s.worker(other).State != manifest.Ended {
		t.Error("what somebody wanted was not done")
	}
	s.engage(false)
	s.look(1)
	s.want(trigger.Killed, "") // its work was asked to stop
	s.engage(true)
	s.look(300)
	s.want(trigger.Killed, "")
	s.engage(false)
	s.look(10)
	s.want(trigger.Killed, "") // it has time to, of which none has passed
	s.look(30)
	if f := s.want(trigger.Killed, trigger.Killed)[0]; !f.Escalated || f.Worker != w.ID() {
		t.Errorf("it came to %+v", f)
	}
}
