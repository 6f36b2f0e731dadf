package keeper

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/breaker"
	"github.com/headgate/headgate/internal/lease"
	"github.com/headgate/headgate/internal/request"
)

// renewing is a store that renews what it granted at that time, or fails until another.
type renewing struct {
	request.LeaseStore
	granted, fails time.Time
	ttl            time.Duration
	attempts       int
	rounds         []int // the scopes of each RenewAll
	silent         int   // so many of them get no answer
}

func (s *renewing) Renew(_ context.Context, _ string, _ int64, ids []string) ([]int64, error) {
	s.attempts++
	if time.Now().Before(s.fails) {
		return nil, context.DeadlineExceeded
	}
	left := make([]int64, len(ids))
	if time.Since(s.granted) < s.ttl {
		left[0] = s.ttl.Microseconds()
	}
	return left, nil
}

func (s *renewing) RenewAll(ctx context.Context, all []*request.Renewal) {
	s.rounds = append(s.rounds, len(all))
	if len(s.rounds) <= s.silent {
		at, _ := ctx.Deadline()
		time.Sleep(time.Until(at) / 2) // in a bubble
		for _, r := range all {
			r.Err = context.DeadlineExceeded
		}
		return
	}
	for _, r := range all {
		r.Left, r.Err = s.Renew(ctx, r.Scope, r.Micros, r.IDs)
	}
}

func (s *renewing) Release(context.Context, string, []string) ([]int64, error) {
	return []int64{1}, nil
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
				k := New(Config{Tasks: new(breaker.Tasks)})
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
			k := New(Config{Tasks: new(breaker.Tasks)})
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
			if len(store.rounds) > 5 || store.rounds[silent] != scopes {
				t.Errorf("calls for %v scopes", store.rounds)
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			_ = k.Close(ctx)
		})
	}
}
