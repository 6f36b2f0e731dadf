package core_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/redistest"
)

// settles tells a test of each attempt to settle, and counts them.
func settles(told chan error) core.Config {
	return core.Config{Timeout: busyTimeout, Observe: func(_ context.Context, e core.Event) {
		if isOp(e, core.OpSettle) {
			told <- e.(*core.ReservationEvent).Err
		}
	}}
}

// A Settle whose reply is lost has counted. What is held is sent again, and counts once. What is not held
// is not settled again, because nothing tells whether it was.
func TestUnheldChargesAreSettledOnce(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		g, loses, told := losingGate(t, s)
		held, key := heldFor(t, time.Hour), newKey(t, "k")
		refunded, raised := limited(t, "refunded", frozen(10)), limited(t, "raised", frozen(10))
		postpaid := newPolicy(t, core.PolicyConfig{Name: "postpaid", Algorithm: frozen(10), Hold: time.Hour})
		decide(t, g, core.Charge{Policy: refunded, Key: key, Cost: 4}) // somebody else's
		r := charge(t, g, core.Charge{Policy: held, Key: key, Cost: 4}, core.Charge{Policy: refunded, Key: key, Cost: 2},
			core.Charge{Policy: raised, Key: key, Cost: 1}, core.Charge{Policy: postpaid, Key: key, Cost: core.NoCost})
		loses.Store(true)
		if err := r.Settle(t.Context(), 3, 0, 4, 3); !errors.Is(err, errReplyLost) {
			t.Error(err)
		}
		if err := <-told; !errors.Is(err, errReplyLost) {
			t.Errorf("the failure was not told: %v", err)
		}
		worked(t, <-told)
		for p, want := range map[*core.Policy]int64{held: 3, refunded: 4, raised: 4, postpaid: 3} {
			if n := used(t, g, p, key); n != want {
				t.Errorf("%s: %d units are in use, want %d", p.Name(), n, want)
			}
		}
	})
}

// A panic in a hook of the client is a failure of a renewal, which is tried again.
func TestRenewalSurvivesPanics(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	client := s.Client(t)
	var on atomic.Bool
	hit := make(chan struct{}, 100)
	client.AddHook(onScripts(func(_ context.Context, _ []redis.Cmder, send func() error) error {
		if on.Load() {
			hit <- struct{}{}
			panic("hook")
		}
		return send()
	}))
	g := redisGate(t, client, core.Config{})
	p, key := heldFor(t, 3*time.Second), newKey(t, "k")
	r := charge(t, g, core.Charge{Policy: p, Key: key, Cost: 4})
	on.Store(true)
	<-hit
	on.Store(false)
	settle(t, r, 3)
	wantUsed(t, g, p, key, 3)
}

// losingGate returns a Gate whose client loses the reply to the next script when loses is set. The Gate
// tells of each attempt to settle.
func losingGate(t *testing.T, s *redistest.Server) (g *core.Gate, loses *atomic.Bool, told chan error) {
	t.Helper()
	told, loses = make(chan error, 100), new(atomic.Bool)
	client := s.Client(t)
	client.AddHook(onScripts(func(_ context.Context, cmds []redis.Cmder, send func() error) error {
		err := send()
		if err == nil && loses.Swap(false) {
			return fail(cmds, errReplyLost)
		}
		return err
	}))
	cfg := settles(told)
	cfg.Prefix = s.Prefix
	return redisGate(t, client, cfg), loses, told
}

var errReplyLost = errors.New("the reply was lost")
