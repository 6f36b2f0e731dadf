package outbound_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/outbound"
)

// mortal starts a Redis, and returns a Gate on it, what tells of its lost leases, and a func that kills
// the Redis and returns when the Gate knows.
func mortal(t *testing.T) (s *redistest.Server, g *core.Gate, lost <-chan struct{}, kill func()) {
	s = redistest.Start(t)
	losses, opened := make(chan struct{}, 100), make(chan struct{}, 100)
	g = gatetest.Redis(t, s.Client(t), core.Config{
		Timeout: gatetest.ShortTimeout,
		Observe: func(_ context.Context, e core.Event) {
			if l, ok := e.(*semaphore.LeaseEvent); ok && l.Kind == semaphore.LeaseLost {
				losses <- struct{}{}
			}
			if c, ok := e.(*core.ServerEvent); ok && c.Op == core.OpCircuitOpened {
				opened <- struct{}{}
			}
		},
	})
	return s, g, losses, func() {
		s.Kill()
		any := core.Charge{Policy: gatetest.Limited(t, "p", core.PerHour(1)), Key: gatetest.Key(t, "k"), Cost: core.NoCost}
		_, _ = g.Decide(t.Context(), any)
		<-opened
	}
}

// A stream goes on while Redis is down for longer than its lease lasts, and has a slot in Redis when that
// is back, whenever it began.
func TestOutageEndsNoStream(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"begun before", "begun during it", "Redis restarts at once"} {
		during, once := name == "begun during it", name == "Redis restarts at once"
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, g, lost, kill := mortal(t)
			more := make(chan struct{})
			u := stream(t, more)
			slot := slotOf(t, g, 1)
			slot.Semaphore = newSemaphore(t, g, semaphore.Config{TTL: time.Second})
			tr := transport(t, outbound.Config{Base: base(t), Gate: g, Slot: slot, MaxWait: time.Minute})
			key := gatetest.Must(outbound.ByCredential(request(t, t.Context(), u.URL)))(t)
			if during {
				kill()
			}
			res, err := tr.RoundTrip(request(t, t.Context(), u.URL))
			gatetest.NoError(t, err)
			if !during && !once {
				kill()
				<-lost
			}
			second := make(chan error, 1)
			if during { // another one waits for its place
				go func() {
					_, err := get(t, tr, u.URL)
					second <- err
				}()
				gatetest.Eventually(t, "it waits", func() bool { return tr.Waiting() == 1 })
			} else {
				second <- nil
			}
			s.Restart()
			if once {
				<-lost
			}
			held := func(queued bool) int {
				all, waiting, err := slot.Semaphore.Holders(t.Context(), key)
				if err != nil || queued != (waiting > 0) {
					return -1
				}
				return len(all)
			}
			gatetest.Eventually(t, "a slot is taken", func() bool { return held(during) == 1 })
			if n := u.count(); n != 1 {
				t.Errorf("%d requests run", n)
			}
			close(more)
			if text, err := io.ReadAll(res.Body); string(text) != "first\nsecond\n" || err != nil {
				t.Errorf("%q, %v", text, err)
			}
			_ = res.Body.Close()
			gatetest.NoError(t, <-second)
			gatetest.Eventually(t, "the slot is back", func() bool { return held(false) == 0 })
		})
	}
}

// A panic in a hook of the client, as a stream that has lost its slot takes another one, ends neither.
func TestStreamSurvivesPanics(t *testing.T) {
	t.Parallel()
	s, lost := redistest.Start(t), make(chan struct{})
	client := s.Client(t)
	var on atomic.Bool
	hit := make(chan struct{})
	client.AddHook(gatetest.OnScripts(func(_ context.Context, _ []redis.Cmder, send func() error) error {
		if !on.Load() {
			return send()
		}
		select {
		case <-lost:
			if on.Swap(false) {
				close(hit)
			}
		default:
		}
		panic("hook")
	}))
	g := gatetest.Redis(t, client, core.Config{Observe: func(_ context.Context, e core.Event) {
		if l, ok := e.(*semaphore.LeaseEvent); ok && l.Kind == semaphore.LeaseLost {
			close(lost)
		}
	}})
	more := make(chan struct{})
	u := stream(t, more)
	slot := slotOf(t, g, 1)
	slot.Semaphore = newSemaphore(t, g, semaphore.Config{TTL: time.Second})
	tr := transport(t, outbound.Config{Base: base(t), Gate: g, Slot: slot})
	res := roundTrip(t, tr, request(t, t.Context(), u.URL))
	on.Store(true)
	gatetest.Worked(t, s.Client(t).FlushAll(t.Context()).Err())
	<-hit
	gatetest.Eventually(t, "a slot is taken", func() bool { return holders(t, slot, u.URL) == 1 })
	close(more)
	if text, err := io.ReadAll(res.Body); string(text) != "first\nsecond\n" || err != nil {
		t.Errorf("%q, %v", text, err)
	}
}

// A request that fails in an outage keeps spent what its process could spend, and not its whole estimate.
func TestOutageChargesNoMoreThanTheShare(t *testing.T) {
	t.Parallel()
	for name, limit := range map[string]core.Algorithm{
		"bucket": gatetest.Frozen(100),
		"log":    core.SlidingLog{Windows: []core.Window{{Limit: 100, Width: time.Hour}, {Limit: 1000, Width: 2 * time.Hour}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, settled := redistest.Start(t), make(chan error, 1)
			g := gatetest.Redis(t, s.Client(t), core.Config{
				Timeout: gatetest.ShortTimeout, Replicas: 10,
				Observe: func(_ context.Context, e core.Event) {
					if e, ok := e.(*core.ReservationEvent); ok {
						settled <- e.Err
					}
				},
			})
			policy, broken := gatetest.Limited(t, "a", limit), errors.New("broken")
			tr := transport(t, outbound.Config{
				Gate: g, Base: roundTripper(func(*http.Request) (*http.Response, error) { return nil, broken }),
				Rules: []outbound.Rule{{
					Policy: policy, Key: outbound.ByHost, Clamp: true, Cost: func(*http.Request) int64 { return 5000 },
				}},
			})
			s.Kill()
			if _, err := get(t, tr, "http://example.com/"); !errors.Is(err, broken) {
				t.Fatal(err)
			}
			gatetest.NoError(t, <-settled)
			key, _ := outbound.ByHost(request(t, t.Context(), "http://example.com/"))
			d := gatetest.Must(g.Peek(t.Context(), core.Charge{Policy: policy, Key: key, Cost: core.NoCost}))(t)
			if r := d.At(0); r.Used != 10 || r.Source != core.SourceLocal {
				t.Errorf("%d are used, as %v says", r.Used, r.Source)
			}
		})
	}
}

// A request that has a reservation in a Redis that fails meanwhile is decided anew when it is due: by the
// failure mode, or by the Redis that has forgotten it.
func TestReservationEndsWithItsRedis(t *testing.T) {
	t.Parallel()
	for name, restarts := range map[string]bool{"Redis is down": false, "Redis has restarted": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, g, _, kill := mortal(t)
			u := serve(t, nil)
			policy := gatetest.Policy(t, core.PolicyConfig{
				Name: "requests", OnFailure: core.FailClosed, Algorithm: core.TokenBucket{Rate: 1, Per: 3 * time.Second, Burst: 1},
			})
			tr := transport(t, outbound.Config{
				Base: base(t), Gate: g, MaxWait: 4 * time.Second,
				Rules: []outbound.Rule{{Policy: policy, Key: outbound.ByHost}},
			})
			gatetest.Must(get(t, tr, u.URL))(t)
			result := make(chan error, 1)
			ask := func() {
				_, err := get(t, tr, u.URL)
				result <- err
			}
			go ask()
			gatetest.Eventually(t, "it waits", func() bool {
				select {
				case <-result: // a busy machine took so long that there was room
					go ask()
				default:
				}
				return tr.Waiting() == 1
			})
			kill()
			if restarts {
				s.Restart()
			}
			err := <-result
			if restarts {
				key, _ := outbound.ByHost(request(t, t.Context(), u.URL))
				if r := standing(t, g, policy, key); err != nil || r.Remaining != 0 {
					t.Errorf("%v, and %d are left", err, r.Remaining)
				}
			} else if !errors.Is(err, outbound.ErrBusy) {
				t.Errorf("it was sent: %v", err)
			}
		})
	}
}
