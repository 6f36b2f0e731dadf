package outbound_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/outbound"
)

// hosts makes an upstream for each host. Its responses tell the host, and come after a time.
func hosts(t *testing.T, took time.Duration, cfg outbound.Config, names ...string) (all []outbound.Upstream) {
	t.Helper()
	cfg.Base = roundTripper(func(r *http.Request) (*http.Response, error) {
		time.Sleep(took) // in the clock of a bubble
		return &http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader(r.Host))}, nil
	})
	for _, host := range names {
		all = append(all, outbound.Upstream{
			Name: host, Transport: transport(t, cfg),
			Rewrite: func(r *http.Request) { r.URL.Host, r.Host = host, host },
		})
	}
	return all
}

// inBubble runs f with a Gate in memory in a bubble.
func inBubble(t *testing.T, f func(t *testing.T, g *core.Gate)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		g := gatetest.Memory(t, core.Config{})
		f(t, g)
	})
}

// The error of a Pool names the upstream whose cooldown ends first, and a request that has the time for
// that one alone waits for it.
func TestPoolKnowsWhichCoolsFirst(t *testing.T) {
	for name, maxWait := range map[string]time.Duration{"in no time": 0, "for the first": 11950 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, g *core.Gate) {
				refusing := true
				refusal := outbound.Refusal{
					Reason: outbound.ReasonSlow, Scope: outbound.ScopeCredential, Wait: 12 * time.Second,
				}
				policy := gatetest.Limited(t, "p", core.PerHour(1000))
				ups := hosts(t, 100*time.Millisecond, outbound.Config{
					Gate: g, Rules: []outbound.Rule{{Policy: policy, Key: outbound.ByHost}},
					Read: func(*http.Response, []byte) (outbound.Refusal, bool) { return refusal, refusing },
				}, "east", "west")
				send := func(cfg outbound.PoolConfig) (string, error) {
					cfg.Upstreams = ups
					res, err := pool(t, cfg).RoundTrip(request(t, t.Context(), "http://example.com/"))
					if err != nil {
						return "", err
					}
					defer func() { _ = res.Body.Close() }()
					text, err := io.ReadAll(res.Body)
					return string(text), err
				}
				for range 20 {
					refusing = true
					gatetest.Must(send(outbound.PoolConfig{Retry: outbound.Retry{Max: 1}}))(t)
					refusing = false
					host, err := send(outbound.PoolConfig{MaxWait: maxWait})
					var busy *outbound.PoolBusyError
					if errors.As(err, &busy) {
						host = busy.First
					}
					if host != "east" || (err == nil) != (maxWait > 0) {
						t.Errorf("%q, %v", host, err)
					}
					time.Sleep(time.Minute) // in the clock of a bubble
				}
			})
		})
	}
}

// A request of a Pool whose upstreams have all slots in use goes to the one that has a free slot
// first, and fails when its time is over.
func TestPoolWaitsForTheFirstSlot(t *testing.T) {
	const slow = 300 * time.Millisecond
	for name, c := range map[string]struct {
		maxWait time.Duration
		frees   string // the upstream that ends a request after 300 ms
		want    string // or none
		from    time.Duration
	}{
		"west is free":           {2 * time.Second, "west", "west", slow},
		"east is free":           {2 * time.Second, "east", "east", slow},
		"west, with a long wait": {time.Minute, "west", "west", slow},
		"none is free":           {2 * time.Second, "", "", 2 * time.Second},
		"west is free too late":  {200 * time.Millisecond, "west", "", 200 * time.Millisecond},
		"it may not wait":        {0, "west", "", 0},
		"within a turn":          {10 * time.Millisecond, "", "", 10 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, g *core.Gate) {
				ups := hosts(t, 0, outbound.Config{Gate: g, Slot: slotOf(t, g, 1)}, "east", "west")
				p := pool(t, outbound.PoolConfig{Upstreams: ups, MaxWait: c.maxWait})
				send := func() (host string, body io.Closer, err error) {
					res, err := p.RoundTrip(request(t, t.Context(), "http://example.com/"))
					if err != nil {
						return "", nil, err
					}
					text := make([]byte, len("east"))
					_, err = res.Body.Read(text)
					return string(text), res.Body, err
				}
				var held []io.Closer
				for range ups {
					host, body, err := send()
					gatetest.NoError(t, err)
					if host == c.frees {
						time.AfterFunc(slow, func() { _ = body.Close() })
					} else {
						held = append(held, body)
					}
				}
				began := time.Now()
				got, body, err := send()
				var busy *outbound.PoolBusyError
				if got != c.want || got == "" && (!errors.As(err, &busy) || len(busy.Busy) != 2) {
					t.Errorf("%q, %v, want %q", got, err, c.want)
				}
				late := 200 * time.Millisecond // a turn, in which it waits for a slot of the other
				if c.want == "" {
					late = 0
				}
				if took := time.Since(began); took < c.from || took > c.from+late {
					t.Errorf("after %v, want %v", took, c.from)
				}
				if err == nil {
					held = append(held, body)
				}
				for _, b := range held {
					_ = b.Close()
				}
				time.Sleep(time.Second) // the other one is closed
			})
		})
	}
}

// Requests that come together spread over upstreams of one size, and the last one is done about when one
// queue for all upstreams would let it.
func TestPoolSpreadsRequestsThatComeTogether(t *testing.T) {
	const second, ms = time.Second, time.Millisecond
	bucket := core.TokenBucket{Rate: 1, Per: second, Burst: 1}
	for name, c := range map[string]struct {
		rule    core.Algorithm
		slot    int64
		waiters int           // that the queue of a slot takes
		took    time.Duration // by a request
		each    time.Duration // an upstream begins a request after that time
	}{
		"a bucket":             {rule: bucket, each: second},
		"a fast bucket":        {rule: core.TokenBucket{Rate: 100, Per: second, Burst: 1}, each: 10 * ms},
		"a leaky bucket":       {rule: core.LeakyBucket{Rate: 1, Per: second, Capacity: 100}, each: second},
		"a window":             {rule: core.FixedWindow{Limit: 1, Window: second}, each: second},
		"a log":                {rule: core.SlidingLog{Windows: []core.Window{{Limit: 1, Width: second}}}, each: second},
		"a slot, short":        {slot: 1, took: 30 * ms, each: 30 * ms},
		"a slot, long":         {slot: 1, took: second, each: second},
		"a slot, short queues": {slot: 1, waiters: 1, took: second, each: second},
		"slots":                {slot: 2, took: 400 * ms, each: 200 * ms},
		"a bucket and a slot":  {rule: bucket, slot: 1, took: 300 * ms, each: second},
		"a bucket and slots":   {rule: bucket, slot: 4, took: 300 * ms, each: second},
		"a bucket, and a slot for longer": {
			rule: bucket, slot: 1, took: 2 * second, each: 2 * second,
		},
	} {
		for _, names := range []string{"ab", "abc"} {
			for _, n := range []int{8, 12, 40} {
				t.Run(fmt.Sprintf("%s/%d at %s", name, n, names), func(t *testing.T) {
					inBubble(t, func(t *testing.T, g *core.Gate) {
						cfg := outbound.Config{Gate: g}
						if c.rule != nil {
							rule := outbound.Rule{Policy: gatetest.Limited(t, "rule", c.rule), Key: outbound.ByHost}
							cfg.Rules = append(cfg.Rules, rule)
						}
						if c.slot > 0 {
							cfg.Slot = slotOf(t, g, c.slot)
							cfg.Slot.Semaphore = newSemaphore(t, g, semaphore.Config{MaxWaiters: c.waiters})
						}
						ups := hosts(t, c.took, cfg, strings.Split(names, "")...)
						p := pool(t, outbound.PoolConfig{Upstreams: ups, MaxWait: time.Hour})
						var mu sync.Mutex
						got := make(map[string]int)
						start := time.Now()
						var all sync.WaitGroup
						for range n {
							all.Go(func() {
								text, err := ask(t, p, "http://example.com/", "")
								gatetest.Worked(t, err)
								mu.Lock()
								defer mu.Unlock()
								got[text]++
							})
						}
						all.Wait()
						most, spare := (n+len(names)-1)/len(names), 1
						if c.slot > 0 { // one may have room for 100 ms while others wait at another one
							spare += int(100 * ms / c.each)
						}
						for host, k := range got {
							if k < n/len(names)-spare || k > most+spare {
								t.Errorf("%s: %d of %d: %v", host, k, n, got)
							}
						}
						if took := time.Since(start); took > c.each*time.Duration(most+1)+100*ms {
							t.Errorf("took %v: %v", took, got)
						}
					})
				})
			}
		}
	}
}

// Requests that wait while all upstreams cool go to all of them.
func TestPoolSpreadsRequestsAfterCooldowns(t *testing.T) {
	inBubble(t, func(t *testing.T, g *core.Gate) {
		var mu sync.Mutex
		got := make(map[string]int)
		ups := hosts(t, 0, outbound.Config{Gate: g}, "a", "b")
		for i := range ups {
			ups[i].Transport = transport(t, outbound.Config{Gate: g, Base: roundTripper(func(r *http.Request) (*http.Response, error) {
				mu.Lock()
				defer mu.Unlock()
				if got[r.Host]++; got[r.Host] == 1 {
					return &http.Response{StatusCode: 429, Header: http.Header{"Retry-After": {"2"}}, Body: http.NoBody}, nil
				}
				return &http.Response{StatusCode: 200, Body: http.NoBody}, nil
			})})
		}
		p := pool(t, outbound.PoolConfig{Upstreams: ups, MaxWait: time.Minute, Retry: outbound.Retry{Max: 2}})
		var all sync.WaitGroup
		for i := range 40 {
			all.Go(func() { gatetest.Must(ask(t, p, "http://example.com/", ""))(t) })
			if i == 0 {
				time.Sleep(time.Second) // in the clock of a bubble, while both cool
			}
		}
		all.Wait()
		if got["a"] < 10 || got["b"] < 10 {
			t.Errorf("requests went to %v", got)
		}
	})
}

// A request waits as long as it may, although an upstream has had room by the time that the others have
// been asked, and although nobody knows when a slot of another is free.
func TestPoolWaitsWhileItAsks(t *testing.T) {
	for name, rates := range map[string][]int64{"a slot": {500, 0}, "rules": {500, 100, 10}} { // 0 is a slot
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, g *core.Gate) {
				slow := false
				var all []outbound.Upstream
				for i, rate := range rates {
					cfg := outbound.Config{Gate: g}
					if rate == 0 {
						cfg.Slot = slotOf(t, g, 1)
					} else {
						limit := core.TokenBucket{Rate: rate, Per: time.Second, Burst: 1}
						cfg.Rules = []outbound.Rule{{Policy: gatetest.Limited(t, "fast", limit), Key: outbound.ByHost}}
					}
					u := hosts(t, 0, cfg, fmt.Sprint("host", i))[0]
					rewrite := u.Rewrite
					u.Rewrite = func(r *http.Request) {
						rewrite(r)
						if slow {
							time.Sleep(time.Duration(7*i) * time.Millisecond) // a round trip, in the clock of the bubble
						}
					}
					all = append(all, u)
				}
				p := pool(t, outbound.PoolConfig{Upstreams: all, MaxWait: time.Minute})
				for i := range len(rates) + 1 {
					slow = i == len(rates) // every upstream is busy then
					res := gatetest.Must(p.RoundTrip(request(t, t.Context(), "http://example.com/")))(t)
					defer res.Body.Close()
				}
			})
		})
	}
}
