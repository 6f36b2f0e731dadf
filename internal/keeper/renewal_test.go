package keeper

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/breaker"
	"github.com/headgate/headgate/internal/lease"
	"github.com/headgate/headgate/internal/request"
)

// renewing is a store that renews what it granted at that time, or fails until another.
type renewing struct {
	request.LeaseStore
	granted, fails time.Time
	ttl            time.Duration
	mu             sync.Mutex
	attempts       int
	rounds         []int // the scopes of each RenewAll
	silent         int   // so many of them get no answer
}

func (s *renewing) Renew(_ context.Context, _ string, _ int64, ids []string) ([]int64, error) {
	s.mu.Lock()
	s.attempts++
	s.mu.Unlock()
	if time.Now().Before(s.fails) {
		return nil, context.DeadlineExceeded
	}
	left := make([]int64, len(ids))
	if time.Since(s.granted) < s.ttl {
		left[0] = s.ttl.Microseconds()
	}
	return left, nil
}

func (s *renewing) RenewAll(ctx context.Context, all []*request.Renewal, _ bool) {
	s.mu.Lock()
	s.rounds = append(s.rounds, len(all))
	silent := len(s.rounds) <= s.silent
	s.mu.Unlock()
	if silent {
		at, _ := ctx.Deadline()
		time.Sleep(time.Until(at)) // in a bubble
		for _, r := range all {
			r.Err = context.DeadlineExceeded
		}
		return
	}
	for _, r := range all {
		r.Left, r.Err = s.Renew(ctx, r.Scope, r.Micros, r.IDs)
	}
}

func (s *renewing) Release(context.Context, string, []string) error {
	return nil
}

// A process that stood still asks the store about leases that it could not renew, as long as the store
// may have them. One that runs gives them up a tenth earlier.
func TestStandstillEndsNoLease(t *testing.T) {
	const ttl = 10 * time.Second
	for name, test := range map[string]struct {
		stands   time.Duration // the process
		fails    time.Duration // the store
		lost     bool
		attempts int // at least
	}{
		"shorter than the lease":               {stands: ttl * 93 / 100, attempts: 1},
		"longer than the lease":                {stands: ttl * 101 / 100, lost: true},
		"and the store fails for a moment":     {stands: ttl * 91 / 100, fails: ttl * 93 / 100, attempts: 2},
		"no standstill, and the store is dead": {fails: ttl * 93 / 100, lost: true, attempts: 3},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := New(Config{Tasks: breaker.NewTasks()})
				began := time.Now()
				store := &renewing{granted: began, fails: began.Add(test.fails), ttl: ttl}
				h := NewHolding(Spec{ID: "id", TTL: ttl, Store: store, Notify: func(Notice) {}})
				h.Granted(lease.Message{Left: ttl.Microseconds()}, began)
				k.Hold(h)
				if test.stands > 0 {
					k.mu.Lock()
					k.timer.Stop()
					k.mu.Unlock()
					time.Sleep(test.stands)
					k.look()
				}
				time.Sleep(time.Until(began.Add(ttl + time.Second)))
				synctest.Wait()
				lost := false
				select {
				case <-h.Gone():
					lost = true
				default:
				}
				store.mu.Lock()
				defer store.mu.Unlock()
				if lost != test.lost || store.attempts < test.attempts {
					t.Errorf("lost %v after %d renewals", lost, store.attempts)
				}
				ctx, cancel := context.WithCancel(t.Context())
				cancel()
				_ = k.Close(ctx)
			})
		})
	}
}

// Leases of all scopes that are due at about the same time are renewed by one call. One that has no
// answer leaves time for another.
func TestRenewalsShareACall(t *testing.T) {
	const ttl, scopes = 10 * time.Second, 8
	for _, silent := range []int{0, 1} {
		synctest.Test(t, func(t *testing.T) {
			k := New(Config{Tasks: breaker.NewTasks()})
			began := time.Now()
			store := &renewing{granted: began, ttl: ttl, silent: silent}
			var held []*Holding
			for i := range scopes {
				id := fmt.Sprint(i)
				h := NewHolding(Spec{ID: id, Scope: id, TTL: ttl, Store: store, Notify: func(Notice) {}})
				h.Granted(lease.Message{Left: ttl.Microseconds()}, began)
				k.Hold(h)
				held = append(held, h)
			}
			time.Sleep(ttl * 95 / 100)
			synctest.Wait()
			for _, h := range held {
				select {
				case <-h.Gone():
					t.Error("a lease is lost")
				default:
				}
			}
			store.mu.Lock()
			defer store.mu.Unlock()
			if len(store.rounds) > 5 || store.rounds[silent] != scopes {
				t.Errorf("calls for %v scopes", store.rounds)
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			_ = k.Close(ctx)
		})
	}
}

// slowLink is a store behind a slow link, on which a renewal has to connect first, as the client or as
// a connection of its own does. It notes how many renewals are on their way.
type slowLink struct {
	request.LeaseStore
	trip       time.Duration // a round trip
	pool, own  int           // round trips until a renewal is answered
	mu         sync.Mutex
	ends       time.Time // the lease, in the store
	micros     int64
	flying     int
	mostFlying int
}

func (s *slowLink) RenewAll(ctx context.Context, all []*request.Renewal, again bool) {
	s.flies(1)
	defer s.flies(-1)
	trips := s.pool
	if again {
		trips = s.own
	}
	at, _ := ctx.Deadline()
	if took := s.trip * time.Duration(trips); took < time.Until(at) {
		time.Sleep(took - s.trip/2) // in a bubble
		left := s.renew()
		time.Sleep(s.trip / 2) // in a bubble
		for _, r := range all {
			r.Left = []int64{left}
		}
		return
	}
	time.Sleep(time.Until(at)) // in a bubble
	for _, r := range all {
		r.Err = context.DeadlineExceeded
	}
}

func (s *slowLink) flies(by int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.flying += by
	s.mostFlying = max(s.mostFlying, s.flying)
}

func (s *slowLink) renew() (left int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Now().Before(s.ends) {
		s.ends, left = time.Now().Add(time.Duration(s.micros)*time.Microsecond), s.micros
	}
	return left
}

func (s *slowLink) Release(context.Context, string, []string) error {
	return nil
}

// A lease is renewed over a link whose round trip takes a fifth of its TTL, though each renewal makes a
// new connection, in several round trips.
func TestLeaseSurvivesASlowLink(t *testing.T) {
	const ttl = 6 * time.Second
	for name, test := range map[string]struct {
		trip      time.Duration
		pool, own int
		lost      bool
	}{
		"warm connections":              {trip: ttl / 5, pool: 1, own: 2},
		"the client greets in one trip": {trip: ttl / 5, pool: 2, own: 2},
		"in three":                      {trip: ttl / 5, pool: 4, own: 2},
		"in three, a tenth of the TTL":  {trip: ttl / 10, pool: 4, own: 2},
		"the pool's connection is dead": {trip: ttl / 5, pool: 1000, own: 2},
		"all connections are dead":      {trip: ttl / 5, pool: 1000, own: 1000, lost: true},
	} {
		t.Run(name, func(t *testing.T) {
			for range 20 { // the jitter of a renewal
				synctest.Test(t, func(t *testing.T) {
					k := New(Config{Tasks: breaker.NewTasks()})
					began := time.Now()
					store := &slowLink{
						trip: test.trip, pool: test.pool, own: test.own, ends: began.Add(ttl), micros: ttl.Microseconds(),
					}
					h := NewHolding(Spec{ID: "id", TTL: ttl, Store: store, Notify: func(Notice) {}})
					h.Granted(lease.Message{Left: ttl.Microseconds()}, began)
					k.Hold(h)
					time.Sleep(4 * ttl)
					synctest.Wait()
					lost := false
					select {
					case <-h.Gone():
						lost = true
					default:
					}
					ctx, cancel := context.WithCancel(t.Context())
					cancel()
					_ = k.Close(ctx)
					time.Sleep(ttl)
					store.mu.Lock()
					defer store.mu.Unlock()
					if lost != test.lost || store.mostFlying > maxAsking {
						t.Errorf("lost %v, %d renewals at a time", lost, store.mostFlying)
					}
				})
			}
		})
	}
}

// releasing is a store whose releases fail with an error of that time.
type releasing struct {
	request.LeaseStore
	err      func() error
	attempts int
}

func (s *releasing) Release(context.Context, string, []string) error {
	s.attempts++
	return s.err()
}

// A slot is given back when a server goes on that stood still for longer than the lease: it may have
// the acquire to run. A server that answers with an error is asked until the lease would have ended.
func TestSlotIsGivenBackAfterOutage(t *testing.T) {
	const ttl = 10 * time.Second
	tests := map[string]struct {
		fault       error
		outage      time.Duration
		first, last time.Duration // the last release is sent between these
	}{
		"silence":             {context.DeadlineExceeded, time.Minute, time.Minute, time.Minute + ttl},
		"a closed connection": {redis.ErrClosed, time.Minute, time.Minute, time.Minute + ttl},
		"silence for ever":    {context.DeadlineExceeded, time.Hour, 6 * ttl, 8 * ttl},
		"no permission":       {noPermission("NOPERM"), time.Minute, ttl / 2, ttl},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := New(Config{Tasks: breaker.NewTasks()})
				began := time.Now()
				last := began
				store := &releasing{err: func() error {
					last = time.Now()
					if last.Sub(began) < tt.outage {
						return tt.fault
					}
					return nil
				}}
				k.Abandon(store, "{k}", "id", ttl)
				time.Sleep(tt.outage + 2*ttl)
				synctest.Wait()
				if took := last.Sub(began); took < tt.first || took > tt.last {
					t.Errorf("the last release was sent after %v, want %v to %v", took, tt.first, tt.last)
				}
				if store.attempts > 60 {
					t.Errorf("%d releases were sent", store.attempts)
				}
				if err := k.Close(t.Context()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

type noPermission string

func (e noPermission) Error() string { return string(e) }
func (e noPermission) RedisError()   {}

// Callers leave a server to the holders when its circuit closes. A release that failed is sent again then, and
// not before.
func TestHoldersComeFirstWhenACircuitCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		open := true
		k := New(Config{Tasks: breaker.NewTasks(), Server: func(context.Context, string) (string, bool) { return "a", !open }})
		store := &releasing{err: func() error {
			if open {
				return context.DeadlineExceeded
			}
			return nil
		}}
		want := func(when string, attempts int, settles time.Duration) {
			t.Helper()
			synctest.Wait()
			if got := k.Settles(t.Context(), "{k}"); got != settles || store.attempts != attempts {
				t.Errorf("%s: settles for %v, %d releases", when, got, store.attempts)
			}
		}
		k.Abandon(store, "{k}", "id", time.Hour)
		want("before it opens", 1, 0)
		k.Fails("a")
		time.Sleep(time.Minute)
		want("while it is open", 1, 0)
		open = false
		want("just before it is told", 1, settling)
		k.Answers("a")
		want("closed", 2, settling)
		time.Sleep(settling)
		want("over", 2, 0)
		k.Fails("b")
		want("another server", 2, 0)
	})
}

// panicking is a store that has forgotten a lease, and panics when a slot is asked for.
type panicking struct{ renewing }

func (*panicking) Acquire(context.Context, string, lease.Request) (lease.Grant, error) { panic("hook") }

// A lease that a panic keeps from being adopted is lost.
func TestAdoptionSurvivesPanics(t *testing.T) {
	const ttl = 10 * time.Second
	synctest.Test(t, func(t *testing.T) {
		k := New(Config{Tasks: breaker.NewTasks()})
		kinds := make(chan Kind, 1)
		h := NewHolding(Spec{ID: "id", TTL: ttl, Store: new(panicking), Adopt: true, Notify: func(n Notice) { kinds <- n.Kind }})
		h.Granted(lease.Message{Left: ttl.Microseconds()}, time.Now())
		k.Hold(h)
		<-h.Gone()
		if kind := <-kinds; kind != Lost {
			t.Errorf("told %v", kind)
		}
		_ = k.Close(t.Context())
	})
}
