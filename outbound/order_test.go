package outbound_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/outbound"
)

// recorder is a Base that notes the numbers of requests in the order in which they are sent.
type recorder struct {
	http.RoundTripper
	mu    sync.Mutex
	order []string
	times []time.Time
}

func (r *recorder) RoundTrip(req *http.Request) (*http.Response, error) {
	r.mu.Lock()
	r.order, r.times = append(r.order, req.Header.Get("X-Number")), append(r.times, time.Now())
	r.mu.Unlock()
	return r.RoundTripper.RoundTrip(req)
}

func (r *recorder) sent() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.order)
}

// numbered sends a request with a number, and closes the response.
func numbered(t *testing.T, tr http.RoundTripper, url string, number rune) {
	r := request(t, t.Context(), url)
	r.Header.Set("X-Number", string(number))
	res, err := tr.RoundTrip(r)
	if err != nil {
		t.Error(err)
		return
	}
	_ = res.Body.Close()
}

// overtaken returns by how many later ones a request was overtaken at most.
func overtaken(order []string) (most int) {
	for i, one := range order {
		n := 0
		for _, earlier := range order[:i] {
			if earlier > one {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}

// Requests wait in their order, for whatever they wait.
func TestWaitsInOrder(t *testing.T) {
	t.Parallel()
	const waiters = 12
	rule := func(t *testing.T, a core.Algorithm) outbound.Rule {
		return outbound.Rule{Policy: gatetest.Limited(t, "a", a), Key: outbound.ByCredential}
	}
	for name, configure := range map[string]func(t *testing.T, g *core.Gate, cfg *outbound.Config){
		"token bucket": func(t *testing.T, _ *core.Gate, cfg *outbound.Config) {
			cfg.Rules = []outbound.Rule{rule(t, core.TokenBucket{Rate: 20, Per: time.Second, Burst: 1})}
		},
		"window": func(t *testing.T, _ *core.Gate, cfg *outbound.Config) {
			cfg.Rules = []outbound.Rule{rule(t, core.FixedWindow{Limit: 3, Window: 200 * time.Millisecond, FromFirst: true})}
		},
		"slot": func(t *testing.T, g *core.Gate, cfg *outbound.Config) { cfg.Slot = slotOf(t, g, 1) },
		"slot and bucket": func(t *testing.T, g *core.Gate, cfg *outbound.Config) {
			cfg.Slot = slotOf(t, g, 2)
			cfg.Rules = []outbound.Rule{rule(t, core.TokenBucket{Rate: 20, Per: time.Second, Burst: 1})}
		},
		"slot and window": func(t *testing.T, g *core.Gate, cfg *outbound.Config) {
			cfg.Slot = slotOf(t, g, 2)
			cfg.Rules = []outbound.Rule{rule(t, core.FixedWindow{Limit: 3, Window: 200 * time.Millisecond, FromFirst: true})}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eachGate(t, func(t *testing.T, g *core.Gate) {
				cfg := outbound.Config{Gate: g, MaxWait: time.Minute}
				configure(t, g, &cfg)
				calmly(t, func() error {
					hold := make(chan struct{})
					u := serve(t, func(http.ResponseWriter, *http.Request) { <-hold })
					sent := &recorder{RoundTripper: base(t)}
					cfg.Base = sent
					tr := transport(t, cfg)
					var done sync.WaitGroup
					for i := range waiters {
						done.Go(func() { numbered(t, tr, u.URL, 'A'+rune(i)) })
						gatetest.Eventually(t, "the request was sent or waits", func() bool { return sent.sent()+tr.Waiting() >= i+1 })
					}
					close(hold)
					done.Wait()
					// Requests that have room at the same time are sent by goroutines of their own.
					if late := overtaken(sent.order); late > 2 {
						return fmt.Errorf("a request was overtaken by %d: %v", late, sent.order)
					}
					return nil
				})
			})
		})
	}
}

// A request that waits for a slot keeps no one that has a slot out of the line of a rule.
func TestSlotsAndLinesBlockNoOne(t *testing.T) {
	t.Parallel()
	eachGate(t, func(t *testing.T, g *core.Gate) {
		t.Parallel()
		u := serve(t, func(http.ResponseWriter, *http.Request) {
			time.Sleep(10 * time.Millisecond) // slots are held for a while
		})
		tr := transport(t, outbound.Config{
			Base: base(t), Gate: g, MaxWait: 20 * time.Second, Slot: slotOf(t, g, 2),
			Rules: []outbound.Rule{{
				Policy: gatetest.Limited(t, "a", core.SlidingWindow{Limit: 10, Window: 100 * time.Millisecond, Buckets: 10}),
				Key:    outbound.ByCredential,
			}},
		})
		var done sync.WaitGroup
		for i := range 20 {
			done.Go(func() {
				for range 4 {
					numbered(t, tr, u.URL, 'A'+rune(i))
				}
			})
		}
		done.Wait()
	})
}

// Requests of several replicas wait for a bucket in one order: none is sent before its place in that.
func TestReplicasWaitInOneOrder(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	u := serve(t, nil)
	const replicas, each, pause = 4, 6, 50 * time.Millisecond
	var gates []*core.Gate
	for range replicas {
		gates = append(gates, gatetest.Redis(t, s.Client(t), core.Config{}))
	}
	calmly(t, func() error { // a process that stood still for long gives its places up
		sent := &recorder{RoundTripper: base(t)}
		var all []*outbound.Transport
		bucket := gatetest.Limited(t, rand.Text(), core.TokenBucket{Rate: 1, Per: pause, Burst: 1})
		for _, g := range gates {
			all = append(all, transport(t, outbound.Config{
				Base: sent, Gate: g, MaxWait: time.Minute, Rules: []outbound.Rule{{Policy: bucket, Key: outbound.ByHost}},
			}))
		}
		start := time.Now()
		var done sync.WaitGroup
		for i := range replicas * each {
			tr := all[i%replicas]
			done.Go(func() { numbered(t, tr, u.URL, 'A'+rune(i)) })
			gatetest.Eventually(t, "the request was sent or waits", func() bool {
				n := sent.sent()
				for _, tr := range all {
					n += tr.Waiting()
				}
				return n >= i+1
			})
		}
		done.Wait()
		for i, number := range sent.order {
			place := time.Duration(number[0] - 'A')
			if after := sent.times[i].Sub(start); after < place*pause {
				return fmt.Errorf("%s was sent after %v, before its place: %v", number, after, sent.order)
			}
		}
		return nil
	})
}

// A request that gives up gives its units, its slot and its place in the line back.
func TestGivingUpGivesBack(t *testing.T) {
	t.Parallel()
	for name, algorithm := range map[string]core.Algorithm{
		"token bucket": core.TokenBucket{Rate: 1, Per: time.Minute, Burst: 1},
		"window":       core.FixedWindow{Limit: 1, Window: time.Minute, FromFirst: true},
	} {
		t.Run(name, func(t *testing.T) {
			eachGate(t, func(t *testing.T, g *core.Gate) {
				u, slot := serve(t, nil), slotOf(t, g, 5)
				policy := gatetest.Limited(t, "a", algorithm)
				tr := transport(t, outbound.Config{
					Base: base(t), Gate: g, Slot: slot, MaxWait: time.Hour,
					Rules: []outbound.Rule{{Policy: policy, Key: outbound.ByHost}},
				})
				gatetest.Must(get(t, tr, u.URL))(t)
				key, _ := outbound.ByHost(request(t, t.Context(), u.URL))
				used := func() int64 {
					return standing(t, g, policy, key).Used
				}
				gatetest.Eventually(t, "the slot is free", func() bool { return holders(t, slot, u.URL) == 0 })
				before := used()
				ctxs := make(chan func(), 4)
				var done sync.WaitGroup
				for i := range 4 {
					ctx, cancel := context.WithCancel(t.Context())
					ctxs <- cancel
					done.Go(func() {
						body := newCloser("text")
						r := request(t, ctx, u.URL)
						r.Body = body
						if _, err := tr.RoundTrip(r); err == nil || ctx.Err() == nil {
							t.Error(err, ctx.Err())
						}
						if !body.closed.Load() {
							t.Error("the body is open")
						}
					})
					gatetest.Eventually(t, "the request waits", func() bool { return tr.Waiting() == i+1 })
				}
				for range 4 {
					(<-ctxs)()
				}
				done.Wait()
				gatetest.Equal(t, tr.Waiting(), 0, "still wait")
				gatetest.Eventually(t, "everything is given back", func() bool {
					return used() == before && holders(t, slot, u.URL) == 0
				})
			})
		})
	}
}

// Under a leaky bucket requests keep their distance, whether they wait or not.
func TestLeakyBucketSpacesRequests(t *testing.T) {
	t.Parallel()
	eachGate(t, func(t *testing.T, g *core.Gate) {
		t.Parallel()
		u := serve(t, nil)
		for i, slot := range []*outbound.Slot{nil, slotOf(t, g, 10)} {
			policy := gatetest.Limited(t, fmt.Sprint("a", i), core.LeakyBucket{Rate: 10, Per: time.Second, Capacity: 100})
			cfg := outbound.Config{Base: base(t), Gate: g, Slot: slot, Rules: []outbound.Rule{{Policy: policy, Key: outbound.ByHost}}}
			now := transport(t, cfg)
			cfg.MaxWait = time.Minute
			later := transport(t, cfg)
			start := time.Now()
			gatetest.Must(get(t, now, u.URL))(t)
			_, err := get(t, now, u.URL)
			if time.Since(start) < 100*time.Millisecond { // otherwise it has room again
				if busy := wantBusy(t, err, policy.Name()); busy.After > 100*time.Millisecond {
					t.Errorf("%+v", busy)
				}
			}
			for range 3 {
				gatetest.Must(get(t, later, u.URL))(t)
			}
			if took := time.Since(start); took < 300*time.Millisecond {
				t.Errorf("4 requests at 10 a second within %v", took)
			}
		}
	})
}

// Calls of Redis before a request is sent: at most one, and none where the refusal is known.
func TestRoundTrips(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	g := gatetest.Redis(t, s.Client(t), core.Config{})
	var calls []int64
	count := func() int64 { return s.Calls(t, "evalsha", "eval") }
	a := new(answers)
	u := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		calls = append(calls, count())
		a.ServeHTTP(w, nil)
	})
	policies := func() (rules []outbound.Rule) {
		for _, name := range []string{"requests", "tokens", "day"} {
			rules = append(rules, outbound.Rule{Policy: gatetest.Limited(t, name, core.TokenBucket{Rate: 1000, Per: time.Minute, Burst: 20}), Key: outbound.ByModel})
		}
		return append(rules, outbound.Rule{Policy: gatetest.Limited(t, "window", core.AnyMinute(20)), Key: outbound.ByCredential})
	}
	slot := slotOf(t, g, 2)
	for name, cfg := range map[string]outbound.Config{
		"rules":         {Rules: policies()},
		"slot":          {Slot: slot},
		"rules+slot":    {Rules: policies(), Slot: slot},
		"patient":       {Rules: policies(), Slot: slot, MaxWait: time.Minute},
		"patient-rules": {Rules: policies(), MaxWait: time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			cfg.Base, cfg.Gate, cfg.Meter = base(t), g, byPath{}
			tr := transport(t, cfg)
			quiet := func() (n int64) { // what is given back in the background counts too
				t.Helper()
				gatetest.Eventually(t, "nothing is given back any more", func() bool {
					free := holders(t, slot, u.URL) == 0 // asks Redis too
					before := count()
					time.Sleep(100 * time.Millisecond) // what is given back in the background comes within
					n = count()
					return n == before && free
				})
				return n
			}
			send := func() (before, during int64) {
				t.Helper()
				before, calls = quiet(), nil
				gatetest.Must(get(t, tr, u.URL+"/"+name))(t)
				return before, calls[0]
			}
			send() // loads the scripts
			for range 3 {
				if before, during := send(); during != before+1 {
					t.Errorf("%d calls of Redis before a request is sent", during-before)
				}
			}
			calmly(t, func() error { // a Gate may forget a key, because another one has the same place
				name += "x"
				a.push(refuse(429, "", "Retry-After", "60"))
				send()
				before := quiet()
				for i := range 10 {
					if i == 1 { // the first one has learnt of it
						before = quiet()
					}
					ctx, cancel := context.WithTimeout(t.Context(), 50*time.Second)
					_, err := tr.RoundTrip(request(t, ctx, u.URL+"/"+name))
					cancel()
					wantBusy(t, err, "cooldown")
				}
				if n := count() - before; n > 0 {
					return fmt.Errorf("%d calls of Redis for a refusal that is known", n)
				}
				return nil
			})
		})
	}
}
