package nethttp_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/keyfunc"
)

// counted is a guard of 10 requests that never refill.
func counted(t *testing.T, change ...func(*nethttp.Config)) *nethttp.Guard {
	t.Helper()
	cfg := nethttp.Config{
		Gate:  gatetest.Memory(t, core.Config{}),
		Rules: rules(t, core.PolicyConfig{Name: "p", Algorithm: core.TokenBucket{Burst: 10}}),
	}
	for _, f := range change {
		f(&cfg)
	}
	return guard(t, cfg)
}

func TestSkipIsASwitch(t *testing.T) {
	var off atomic.Bool
	seen := 0
	g := counted(t, func(cfg *nethttp.Config) {
		cfg.Skip = func(*http.Request) bool { return off.Load() }
		cfg.Observe = observed(func(*nethttp.Admission) { seen++ })
	})
	h := g.Handler(http.HandlerFunc(ok))
	for _, c := range []struct {
		off  bool
		want string
	}{{false, `"p";r=9`}, {true, ""}, {false, `"p";r=8`}} {
		off.Store(c.off)
		if r := get(h); r.StatusCode != 200 || r.Header.Get("RateLimit") != c.want {
			t.Errorf("off %v: %d, %v", c.off, r.StatusCode, r.Header)
		}
	}
	if seen != 2 {
		t.Errorf("%d observed", seen)
	}
}

// adapters_test.TestConformance skips a preflight.
func TestPreflights(t *testing.T) {
	for _, c := range []struct {
		name, method, origin, asked string
		want                        bool
	}{
		{"a preflight", http.MethodOptions, "https://example.com", "DELETE", true},
		{"OPTIONS alone", http.MethodOptions, "", "", false},
		{"no origin", http.MethodOptions, "", "DELETE", false},
		{"what it asks for", http.MethodDelete, "https://example.com", "DELETE", false},
	} {
		r := forged(func(r *http.Request) {
			r.Method = c.method
			r.Header.Set("Origin", c.origin)
			r.Header.Set("Access-Control-Request-Method", c.asked)
		})
		if got := nethttp.IsPreflight(r); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

// A Guard decides every request that it is given. Mounted twice, with another between, it charges
// twice and takes two slots.
func TestMountedTwice(t *testing.T) {
	gate := memory(t, newClock())
	g, s := chat(t, gate)
	other := counted(t)
	h := g.Handler(other.Handler(g.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		holders(t, s, "acme", 2)
		if a := nethttp.AdmissionFromContext(r.Context()); a == nil || a.Decision().At(0).Policy.Name() != "requests" {
			t.Errorf("the admission is %+v", a)
		}
	}))))
	for _, want := range []string{`"requests";r=9 | "p";r=9 | "requests";r=8`, `"requests";r=7 | "p";r=8 | "requests";r=6`} {
		r := get(h, as("acme", "ann"))
		if got := strings.Join(r.Header.Values("RateLimit"), " | "); got != want {
			t.Errorf("RateLimit %s, want %s", got, want)
		}
	}
	holders(t, s, "acme", 0)
}

// own is a Dialect that nethttp does not have.
type own struct{ nethttp.None }

func (own) Status(status int) int {
	if status == http.StatusServiceUnavailable {
		return 529
	}
	return status
}

func (own) WriteRefusal(w http.ResponseWriter, _ *http.Request, a *nethttp.Admission) {
	w.Header().Set("Content-Type", "text/x-own")
	w.WriteHeader(a.Status())
	fmt.Fprintf(w, "%s: %s\n", a.StatusText(), a.Detail())
}

func TestRefusalForms(t *testing.T) {
	noKey := func(*http.Request) (string, error) { return "", keyfunc.ErrNoKey }
	for _, c := range []struct {
		name    string
		dialect nethttp.Dialect
		limit   core.Algorithm
		key     keyfunc.Func
		status  int
		kind    string
		body    string
	}{
		{"plain", nethttp.Draft11{Refusal: nethttp.Refusal{PlainText: true}}, core.DenyAll{}, keyfunc.RemoteIP(), 403, "text/plain; charset=utf-8",
			"No request is allowed by policy \"p\".\n"},
		{"plain, no key", nethttp.Draft11{Refusal: nethttp.Refusal{PlainText: true}}, core.DenyAll{}, noKey, 400, "text/plain; charset=utf-8",
			"The request lacks the key of its rate limit.\n"},
		{"a Dialect of its own", own{}, core.DenyAll{}, keyfunc.RemoteIP(), 403, "text/x-own",
			"Forbidden: No request is allowed by policy \"p\".\n"},
		{"a Dialect of its own, a failing key", own{}, core.DenyAll{}, func(*http.Request) (string, error) { return "", io.ErrUnexpectedEOF }, 500, "text/x-own",
			"Internal Server Error: \n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := counted(t, func(cfg *nethttp.Config) {
				cfg.Dialect = c.dialect
				cfg.Rules[0].Policy = policy(t, core.PolicyConfig{Name: "p", Algorithm: c.limit})
				cfg.Rules[0].Key = c.key
			})
			r := get(g.Handler(http.HandlerFunc(ok)))
			if got := body(t, r); r.StatusCode != c.status || got != c.body || r.Header.Get("Content-Type") != c.kind {
				t.Errorf("%d, %s: %s", r.StatusCode, r.Header.Get("Content-Type"), got)
			}
		})
	}
}

// A request is delayed until its rules have room, up to MaxDelay.
func TestMaxDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s *semaphore.Semaphore
		defer func() {
			gatetest.Worked(t, s.Gate().Close(t.Context()))
		}()
		g := counted(t, func(cfg *nethttp.Config) {
			cfg.MaxDelay = 2 * time.Second
			cfg.Rules[0].Policy = policy(t, core.PolicyConfig{Name: "p", Algorithm: core.TokenBucket{Rate: 1, Per: time.Second, Burst: 1}})
			s = newSemaphore(t, cfg.Gate, semaphore.Config{})
			cfg.Slot = &nethttp.Slot{Semaphore: s, Caps: []nethttp.Cap{{Key: keyfunc.RemoteIP(), Limit: 1}}}
		})
		h := g.Handler(http.HandlerFunc(ok))
		start := time.Now()
		statuses := make(chan int, 10)
		for i, gone := range []bool{false, true, false, false} {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go func() {
				r := get(h, func(r *http.Request) { *r = *r.WithContext(ctx) })
				if want := []time.Duration{0, 0, 2 * time.Second, 0}[i]; r.StatusCode == 200 && time.Since(start) != want {
					t.Errorf("request %d after %v, want %v", i, time.Since(start), want)
				}
				statuses <- r.StatusCode
			}()
			synctest.Wait()
			if gone {
				defer cancel()
				go func() {
					time.Sleep(500 * time.Millisecond)
					cancel()
				}()
			}
		}
		for _, want := range []int{200, 429, 503, 200} {
			if got := <-statuses; got != want {
				t.Errorf("status %d, want %d", got, want)
			}
		}
		// The slot is taken after the delay, and a request that finds none is not charged.
		time.Sleep(time.Minute)
		key := core.Must(core.NewKey("192.0.2.1"))
		held := gatetest.Must(s.Acquire(t.Context(), semaphore.Request{Caps: []semaphore.Cap{{Key: key, Limit: 1}}}))(t)
		if r := get(h); r.StatusCode != 429 || !strings.Contains(body(t, r), "concurrent") {
			t.Errorf("status %d", r.StatusCode)
		}
		gatetest.Worked(t, held.Release(t.Context()))
		start = time.Now()
		if r := get(h); r.StatusCode != 200 || time.Since(start) != 0 {
			t.Errorf("status %d after %v", r.StatusCode, time.Since(start))
		}
	})
}

// Observe is given an event with the request and the outcome, in the request's context.
func TestObserveReceivesAdmissionEvents(t *testing.T) {
	var events []string
	g := counted(t, func(cfg *nethttp.Config) {
		cfg.Rules[0].Policy = policy(t, core.PolicyConfig{Name: "p", Algorithm: core.TokenBucket{Burst: 1}})
		cfg.Observe = func(ctx context.Context, e core.Event) {
			a := e.(*nethttp.AdmissionEvent)
			if a.Request.Context() != ctx {
				t.Error("another context")
			}
			events = append(events, fmt.Sprint(e.EventName(), " ", a.Admission.Status()))
		}
	})
	for range 2 {
		get(g.Handler(http.HandlerFunc(ok)))
	}
	if !slices.Equal(events, []string{"admit 0", "admit 429"}) {
		t.Errorf("%q", events)
	}
}
