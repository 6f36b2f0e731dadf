package outbound_test

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/outbound"
)

// An operator who knows the key that cools lifts the cooldown, as headgate unblock does.
func TestCooldownIsABlockToLift(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		r := newRig(t, outbound.Config{Gate: gatetest.Redis(t, s.Client(t), core.Config{Prefix: s.Prefix}), MaxWait: time.Second})
		r.push(refuse(429, "", "Retry-After", "3600"))
		r.want("", 429)
		r.busy("", "cooldown")
		operator := gatetest.Redis(t, s.Client(t), core.Config{Prefix: s.Prefix})
		p := gatetest.Limited(t, "cooldown", core.Block{Strikes: 1, Within: time.Second, For: time.Second})
		list := core.Must(core.NewBlocklist(operator, p))
		want := (<-r.cooled).Key
		blocked := 0
		for b, err := range list.All(t.Context()) {
			if blocked++; err != nil || b.Key.String() != want.String() {
				t.Errorf("%v is blocked, %v, want %v", b.Key, err, want)
			}
		}
		if blocked != 1 {
			t.Errorf("%d keys are blocked", blocked)
		}
		if err := operator.Reset(t.Context(), core.Charge{Policy: p, Key: want}); err != nil {
			t.Fatal(err)
		}
		gatetest.Eventually(t, "the cooldown is lifted", func() bool {
			_, err := get(t, r.tr, r.URL)
			return err == nil
		})
	})
}

// A process heeds a cooldown that it has begun, or learnt of, while Redis is away, and one that begins
// then.
func TestCooldownOutlivesRedis(t *testing.T) {
	s := redistest.Start(t)
	var all []*rig
	for range 3 {
		all = append(all, newRig(t, outbound.Config{Gate: gatetest.Redis(t, s.Client(t), core.Config{Timeout: gatetest.ShortTimeout})}))
		all[len(all)-1].URL = all[0].URL
	}
	hour := refuse(429, "", "Retry-After", "3600")
	all[0].push(hour)
	all[0].want("", 429)
	all[1].busy("", "cooldown")
	s.Kill()
	all[0].busy("", "cooldown")
	all[1].busy("", "cooldown")
	all[0].push(hour)
	all[2].want("", 429)
	if busy := all[2].busy("", "cooldown"); busy.After < 50*time.Minute || busy.Cause == nil {
		t.Errorf("%+v", busy)
	}
}

// cooldownsOf sends requests at once, each of which is refused after another time, and returns the
// cooldowns that begin.
func cooldownsOf(t *testing.T, cfg outbound.Config, header http.Header, after ...time.Duration) (all []time.Duration) {
	synctest.Test(t, func(t *testing.T) {
		g, err := core.NewMemory(core.Config{})
		if err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		next := slices.Values(after)
		waits := make(chan time.Duration, len(after))
		for wait := range next {
			waits <- wait
		}
		cfg.Gate = g
		cfg.Base = roundTripper(func(*http.Request) (*http.Response, error) {
			time.Sleep(<-waits)
			return &http.Response{StatusCode: 429, Header: header, Body: http.NoBody}, nil
		})
		cfg.Observe = func(_ context.Context, e core.Event) {
			if e, ok := e.(*outbound.CooldownEvent); ok {
				mu.Lock()
				defer mu.Unlock()
				all = append(all, e.For)
			}
		}
		tr := transport(t, cfg)
		var sent sync.WaitGroup
		for range after {
			sent.Go(func() { _, _ = get(t, tr, "http://example.com/") })
		}
		sent.Wait()
		if err := g.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
	return all
}

// Refusals of requests that were sent before a cooldown are of the same overload, and begin no other one.
func TestRefusalsSentTogetherAreOne(t *testing.T) {
	all := cooldownsOf(t, outbound.Config{}, nil, 10*time.Millisecond, 12*time.Millisecond, 15*time.Millisecond,
		1200*time.Millisecond, 3500*time.Millisecond)
	if len(all) != 3 || all[0] != time.Second || slices.Max(all) > time.Second {
		t.Errorf("the cooldowns are %v, want one of a second, and two that found it", all)
	}
}

// Longest bounds a cooldown.
func TestLongestBoundsCooldowns(t *testing.T) {
	for _, wait := range []string{"31536000", "3600"} {
		all := cooldownsOf(t, outbound.Config{Longest: 10 * time.Minute}, http.Header{"Retry-After": {wait}}, 0)
		if len(all) != 1 || all[0] != 10*time.Minute {
			t.Errorf("the cooldowns after %s are %v", wait, all)
		}
	}
	if _, err := outbound.New(outbound.Config{Gate: gatetest.Memory(t, core.Config{}), Longest: -1}); err == nil ||
		!strings.Contains(err.Error(), "Longest is -1ns") {
		t.Error(err)
	}
}

// Read reads a response before the Transport does.
func TestRead(t *testing.T) {
	read := func(res *http.Response, head []byte) (outbound.Refusal, bool) {
		switch {
		case strings.Contains(string(head), "lock_timeout"):
			return outbound.Refusal{}, true
		case strings.Contains(string(head), "search is busy"):
			return outbound.Refusal{Reason: outbound.ReasonLoaded, Scope: outbound.ScopeRoute, Wait: time.Hour}, true
		case strings.Contains(string(head), "too long"):
			return outbound.Refusal{Reason: outbound.ReasonSlow, Scope: outbound.ScopeRequest, Wait: time.Hour}, true
		case res.Header.Get("X-Quota") == "0":
			return outbound.Refusal{Reason: outbound.ReasonSpent, Scope: outbound.ScopeCredential}, true
		}
		return outbound.Refusal{}, false
	}
	for name, c := range map[string]struct {
		answer               func(http.ResponseWriter)
		same, route, account string // what then denies the same request, one of its route, one of its account
	}{
		"none":       {refuse(429, "lock_timeout", "Retry-After", "60"), "", "", ""},
		"route":      {refuse(503, "search is busy"), "cooldown", "cooldown", ""},
		"request":    {refuse(400, "too long"), "", "", ""},
		"credential": {refuse(200, "ok", "X-Quota", "0"), "spent", "spent", "spent"},
		"built in":   {refuse(429, "", "Retry-After", "60"), "cooldown", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, outbound.Config{
				Meter: byPath{}, Read: read, Route: func(r *http.Request) string { return r.URL.Query().Get("route") },
			})
			r.push(c.answer)
			if _, err := get(t, r.tr, r.URL+"/m?route=search"); err != nil {
				t.Fatal(err)
			}
			for path, rule := range map[string]string{"/m?route=search": c.same, "/n?route=search": c.route, "/n?route=x": c.account, "/n": c.account} {
				if rule == "" {
					r.want(path, 200)
				} else {
					r.busy(path, rule)
				}
			}
		})
	}
}

// A request is sent again whatever status Read knows a refusal by.
func TestReadOfAnyStatusIsRetried(t *testing.T) {
	for _, status := range []int{http.StatusOK, http.StatusTeapot, http.StatusTooManyRequests} {
		r := newRig(t, outbound.Config{
			Retry: outbound.Retry{Max: 1}, MaxWait: time.Minute,
			Read: func(res *http.Response, _ []byte) (outbound.Refusal, bool) {
				return outbound.Refusal{Reason: outbound.ReasonSlow, Wait: time.Millisecond}, res.Header.Get("X-Slow") != ""
			},
		})
		r.push(refuse(status, "later", "X-Slow", "1"), refuse(http.StatusCreated, "done"))
		r.want("", http.StatusCreated)
	}
}

// A process that stood still asks again for what it has reserved, and does not send it all at once.
func TestOverdueReservationsAskAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, err := core.NewMemory(core.Config{})
		if err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		sent := make(map[time.Time]int)
		tr := transport(t, outbound.Config{
			Gate: g, MaxWait: time.Minute,
			Base: roundTripper(func(*http.Request) (*http.Response, error) {
				mu.Lock()
				defer mu.Unlock()
				sent[time.Now()]++
				return &http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader("ok"))}, nil
			}),
			Rules: []outbound.Rule{{
				Policy: gatetest.Limited(t, "a", core.TokenBucket{Rate: 10, Per: time.Second, Burst: 1}), Key: outbound.ByHost,
			}},
			Observe: func(_ context.Context, e core.Event) {
				if _, ok := e.(*outbound.WaitEvent); ok {
					time.Sleep(3 * time.Second) // the process stands still
				}
			},
		})
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				if _, err := get(t, tr, "http://example.com/"); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		for at, n := range sent {
			if n > 1 {
				t.Errorf("%d requests were sent at %v", n, at)
			}
		}
		if err := g.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
