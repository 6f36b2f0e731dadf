package outbound_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/outbound"
	"github.com/redis/go-redis/v9"
)

// What a refusal concerns, and what it does not.
func TestScopeOfCooldown(t *testing.T) {
	const (
		cooling = "cooldown"
		spent   = "spent"
	)
	for _, c := range []struct {
		name     string
		answer   func(http.ResponseWriter)
		rule     string // under which the refused model has no room
		others   bool   // another model of the account has none either
		from, to time.Duration
	}{
		{"seconds", refuse(429, "", "Retry-After", "5"), cooling, false, 4 * time.Second, 5 * time.Second},
		{"overloaded server", refuse(503, "", "Retry-After", "5"), cooling, true, 4 * time.Second, 5 * time.Second},
		{"no wait", refuse(429, "{}"), cooling, false, time.Millisecond, time.Second},
		{"no money", refuse(402, "{}"), spent, true, 59 * time.Second, time.Minute},
	} {
		t.Run(c.name, func(t *testing.T) {
			eachGate(t, func(t *testing.T, g *core.Gate) {
				cfg := outbound.Config{Gate: g, Meter: byPath{}}
				if c.rule == spent {
					cfg.MaxWait = time.Hour // nothing waits for an account that is spent
				}
				r := newRig(t, cfg)
				r.push(c.answer)
				if status, err := get(t, r.tr, r.URL+"/a"); err != nil || status == http.StatusOK {
					t.Fatal(status, err)
				}
				cfg.Base = base(t)
				first, replica := r.tr, transport(t, cfg)
				for _, r.tr = range []*outbound.Transport{replica, first} {
					if busy := r.busy("/a", c.rule); busy.After < c.from || busy.After > c.to || busy.Spent != (c.rule == spent) || busy.At.IsZero() {
						t.Errorf("%+v", busy)
					}
					if c.others {
						r.busy("/b", c.rule)
					} else {
						r.want("/b", 200)
					}
				}
				other := request(t, t.Context(), r.URL+"/a")
				other.Header.Set("Authorization", "Bearer another account")
				if res, err := first.RoundTrip(other); err != nil {
					t.Error(err)
				} else {
					_ = res.Body.Close()
				}
			})
		})
	}
}

// Waits that nobody has told grow from refusal to refusal, by a status or in a stream that began well.
// They begin again after a request that the upstream has taken, also if it answers that by an error of
// the client, and not after an error of the server.
func TestGuessedWaitsGrow(t *testing.T) {
	const inStream = 0 // a response of 200 whose stream has an error
	for status, ends := range map[int]bool{
		200: true, 301: true, 401: true, 403: true, 404: true, 422: true, 500: false, 502: false, 503: false, inStream: false,
	} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var answer int
				var all []time.Duration
				tr := transport(t, outbound.Config{
					Gate: gatetest.Memory(t, core.Config{}), Backoff: outbound.Backoff{First: time.Second, Most: 5 * time.Second},
					Base: roundTripper(func(*http.Request) (*http.Response, error) {
						if answer == inStream {
							text := "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"rate_limit_error\"}}\n\n"
							header := http.Header{"Content-Type": {"text/event-stream; charset=utf-8"}}
							return &http.Response{StatusCode: 200, Header: header, Body: io.NopCloser(strings.NewReader(text))}, nil
						}
						return &http.Response{StatusCode: answer, Body: http.NoBody}, nil
					}),
					Observe: func(_ context.Context, e core.Event) {
						if e, ok := e.(*outbound.CooldownEvent); ok {
							if e.Err != nil || !e.Guessed || e.Spent || e.Status != 429 || e.Key == (core.Key{}) || e.EventName() != "cooldown" {
								t.Errorf("%+v", e)
							}
							all = append(all, e.For)
						}
					},
				})
				for _, answer = range []int{429, 429, status, 429, 429} {
					last := time.Duration(0)
					if len(all) > 0 {
						last = all[len(all)-1]
					}
					time.Sleep(last + time.Millisecond)
					gatetest.Must(get(t, tr, "http://example.com/"))(t)
					synctest.Wait() // what ends the backoff does so in the background
				}
				want := []time.Duration{1, 2, 4, 5}
				if ends {
					want = []time.Duration{1, 2, 1, 2}
				} else if status == inStream {
					want = []time.Duration{1, 2, 4, 5, 5}
				}
				for i := range want {
					want[i] *= time.Second
				}
				if !slices.Equal(all, want) {
					t.Errorf("the cooldowns are %v, want %v", all, want)
				}
			})
		})
	}
}

// Requests that wait for a cooldown go on spread over the first second after it.
func TestResumptionIsSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const waiters = 40
		var mu sync.Mutex
		var sent []time.Time
		tr := transport(t, outbound.Config{
			Gate: gatetest.Memory(t, core.Config{}), MaxWait: time.Minute,
			Base: roundTripper(func(*http.Request) (*http.Response, error) {
				mu.Lock()
				defer mu.Unlock()
				if sent = append(sent, time.Now()); len(sent) == 1 {
					return &http.Response{StatusCode: 429, Header: http.Header{"Retry-After": {"1"}}, Body: http.NoBody}, nil
				}
				return &http.Response{StatusCode: 200, Body: http.NoBody}, nil
			}),
		})
		var all sync.WaitGroup
		for i := range waiters + 1 {
			all.Go(func() { _, _ = get(t, tr, "http://example.com/") })
			if synctest.Wait(); tr.Waiting() != i {
				t.Errorf("%d wait", tr.Waiting())
			}
		}
		all.Wait()
		end := sent[0].Add(time.Second)
		if first, last := sent[1].Sub(end), sent[waiters].Sub(end); first < 0 || last > 900*time.Millisecond || last-first < 300*time.Millisecond {
			t.Errorf("sent from %v to %v after the end", first, last)
		}
	})
}

// Policies and slots decide by their failure modes while Redis is dead.
func TestFailureModes(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	g := gatetest.Redis(t, s.Client(t), core.Config{Timeout: gatetest.ShortTimeout, Replicas: 4})
	s.Kill()
	u := stream(t, nil)
	for _, c := range []struct {
		mode core.FailureMode
		sent int
	}{{core.FailLocal, 2}, {core.FailOpen, 10}, {core.FailClosed, 0}} {
		name := c.mode.String()
		policy := gatetest.Policy(t, core.PolicyConfig{Name: name, Algorithm: gatetest.Frozen(8), OnFailure: c.mode})
		slot := slotOf(t, g, 8)
		slot.Semaphore = newSemaphore(t, g, semaphore.Config{Name: name, OnFailure: c.mode})
		for _, cfg := range []outbound.Config{
			{Rules: []outbound.Rule{{Policy: policy, Key: outbound.ByHost}}}, {Slot: slot},
		} {
			cfg.Base, cfg.Gate = base(t), g
			tr := transport(t, cfg)
			sent := 0
			for range 10 {
				res, err := tr.RoundTrip(request(t, t.Context(), u.URL))
				if err == nil {
					defer func() { _ = res.Body.Close() }()
					sent++
					continue
				}
				busy := wantBusy(t, err, name)
				if c.mode == core.FailClosed && (busy.Cause == nil || busy.After <= 0) {
					t.Errorf("%v: %+v", c.mode, busy)
				}
			}
			gatetest.Equal(t, sent, c.sent, "%v: sent", c.mode)
		}
	}
}

// A process that asks more than it can send has no room under its rules. Nothing cools.
func TestOverloadIsNoCooldown(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Client(t)
	client.AddHook(gatetest.OnScripts(func(ctx context.Context, cmds []redis.Cmder, _ func() error) error {
		<-ctx.Done()
		return gatetest.Fail(cmds, ctx.Err())
	}))
	tr := transport(t, outbound.Config{
		Gate:  gatetest.Redis(t, client, core.Config{Timeout: gatetest.ShortTimeout}),
		Rules: []outbound.Rule{{Policy: gatetest.Limited(t, "requests", gatetest.Frozen(8)), Key: outbound.ByHost}},
	})
	_, err := tr.RoundTrip(request(t, t.Context(), "http://example.com/"))
	if busy := wantBusy(t, err, "requests"); !errors.Is(busy, core.ErrOverloaded) {
		t.Error(err)
	}
}

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
		gatetest.Equal(t, blocked, 1, "keys are blocked")
		gatetest.NoError(t, operator.Reset(t.Context(), core.Charge{Policy: p, Key: want}))
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
	if e := <-all[2].cooled; e.For < 50*time.Minute || e.Err == nil {
		t.Errorf("a cooldown that Redis does not know: %+v", e)
	}
	if busy := all[2].busy("", "cooldown"); busy.After < 50*time.Minute || busy.Cause == nil {
		t.Errorf("%+v", busy)
	}
}

// refusal429 is a refusal that comes after a time, and tells a wait unless that is empty.
type refusal429 struct {
	after time.Duration
	wait  string
}

// cooldownsOf sends requests at once, each of which is refused, and returns the cooldowns that begin.
func cooldownsOf(t *testing.T, cfg outbound.Config, refusals ...refusal429) (all []time.Duration) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		next := make(chan refusal429, len(refusals))
		for _, r := range refusals {
			next <- r
		}
		cfg.Gate = gatetest.Memory(t, core.Config{})
		cfg.Base = roundTripper(func(*http.Request) (*http.Response, error) {
			r := <-next
			time.Sleep(r.after)
			return &http.Response{StatusCode: 429, Header: http.Header{"Retry-After": {r.wait}}, Body: http.NoBody}, nil
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
		for range refusals {
			sent.Go(func() { _, _ = get(t, tr, "http://example.com/") })
		}
		sent.Wait()
	})
	return all
}

// Refusals of requests that were sent before a cooldown are of the same overload, and begin no other one.
// Of waits that servers tell the one that ends last holds. Longest bounds it.
func TestCooldownsOfRequestsSentTogether(t *testing.T) {
	const ms = time.Millisecond
	longest := outbound.Config{Longest: 10 * time.Minute}
	for name, c := range map[string]struct {
		cfg      outbound.Config
		refusals []refusal429
		want     []time.Duration
	}{
		"guessed": {refusals: []refusal429{{after: 10 * ms}, {after: 12 * ms}, {after: 15 * ms}, {after: 1200 * ms}, {after: 3500 * ms}}, want: []time.Duration{1000 * ms, 998 * ms, 995 * ms}},
		"told":    {refusals: []refusal429{{10 * ms, "2"}, {20 * ms, "60"}, {30 * ms, "1"}}, want: []time.Duration{2000 * ms, 60_000 * ms, 59_990 * ms}},
		"an hour": {longest, []refusal429{{0, "3600"}}, []time.Duration{10 * time.Minute}},
	} {
		t.Run(name, func(t *testing.T) {
			if all := cooldownsOf(t, c.cfg, c.refusals...); !slices.Equal(all, c.want) {
				t.Errorf("the cooldowns are %v, want %v", all, c.want)
			}
		})
	}
}

// Read reads a response before the Transport does.
func TestRead(t *testing.T) {
	for _, c := range []struct {
		says                 *outbound.Refusal // Read, unless it does not know
		answer               func(http.ResponseWriter)
		same, route, account string // what then denies the same request, one of its route, one of its account
	}{
		{&outbound.Refusal{}, refuse(429, "x", "Retry-After", "60"), "", "", ""},
		{&outbound.Refusal{Reason: outbound.ReasonLoaded, Scope: outbound.ScopeRoute, Wait: time.Hour}, refuse(503, "x"), "cooldown", "cooldown", ""},
		{&outbound.Refusal{Reason: outbound.ReasonSlow, Scope: outbound.ScopeRequest, Wait: time.Hour}, refuse(400, "x"), "", "", ""},
		{&outbound.Refusal{Reason: outbound.ReasonSpent, Scope: outbound.ScopeCredential}, refuse(200, ""), "spent", "spent", "spent"},
		{nil, refuse(429, "x", "Retry-After", "60"), "cooldown", "", ""},
	} {
		name := "unknown"
		if c.says != nil {
			name = fmt.Sprintf("%v of the %v", c.says.Reason, c.says.Scope)
		}
		t.Run(name, func(t *testing.T) {
			responses := 0
			r := newRig(t, outbound.Config{
				Meter: byPath{}, Route: func(r *http.Request) string { return r.URL.Query().Get("route") },
				Read: func(res *http.Response, head []byte) (outbound.Refusal, bool) {
					if responses++; responses > 1 || c.says == nil {
						return outbound.Refusal{}, false
					}
					if string(head) != "x" && res.StatusCode != http.StatusOK {
						t.Errorf("the head is %q", head)
					}
					return *c.says, true
				},
			})
			r.push(c.answer)
			gatetest.Must(get(t, r.tr, r.URL+"/m?route=search"))(t)
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
	for _, status := range []int{http.StatusOK, http.StatusTeapot, 420, http.StatusTooManyRequests} {
		r := newRig(t, outbound.Config{
			Retry: outbound.Retry{Max: 1}, MaxWait: time.Minute,
			Read: func(res *http.Response, head []byte) (outbound.Refusal, bool) {
				if slow := res.Header.Get("X-Slow") != ""; slow && status >= 400 && string(head) != "later" {
					t.Errorf("the head of a %d is %q", status, head)
				}
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
		g := gatetest.Memory(t, core.Config{})
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
	})
}

// A panic in a hook of the client, as a replica learns in the background that the upstream takes requests
// again, ends no more than that.
func TestCooldownSurvivesPanics(t *testing.T) {
	client := redistest.Start(t).Client(t)
	var on atomic.Bool
	hit := make(chan struct{})
	client.AddHook(gatetest.OnScripts(func(_ context.Context, _ []redis.Cmder, send func() error) error {
		if on.Swap(false) {
			close(hit)
			panic("hook")
		}
		return send()
	}))
	g := gatetest.Redis(t, client, core.Config{})
	answers := []int{429, 200}
	tr := transport(t, outbound.Config{
		Gate: g, Backoff: outbound.Backoff{First: time.Millisecond, Most: time.Millisecond}, MaxWait: time.Minute,
		Base: roundTripper(func(*http.Request) (*http.Response, error) {
			status := answers[0]
			answers = answers[1:]
			on.Store(status == 200)
			return &http.Response{StatusCode: status, Body: http.NoBody}, nil
		}),
	})
	for range 2 {
		gatetest.Must(get(t, tr, "http://example.com/"))(t)
	}
	<-hit
}
