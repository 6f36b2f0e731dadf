package semaphore_test

import (
	"context"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/redistest"
)

const (
	longTimeout  = gatetest.LongTimeout
	busyTimeout  = gatetest.BusyTimeout
	shortTimeout = gatetest.ShortTimeout
)

var (
	eachGate   = gatetest.Each
	memoryGate = gatetest.Memory
	redisGate  = gatetest.Redis
	newKey     = gatetest.Key
	newPolicy  = gatetest.Policy
	limited    = gatetest.Limited
	frozen     = gatetest.Frozen
	decide     = gatetest.Decide
	peek       = gatetest.Peek
	eventually = gatetest.Eventually
	long       = gatetest.Long
	show       = gatetest.Show
	onNodes    = gatetest.OnNodes
	viaRedis   = gatetest.ViaRedis
	onScripts  = gatetest.OnScripts
	fail       = gatetest.Fail
	noError    = gatetest.NoError
	worked     = gatetest.Worked
	others     = gatetest.Others
)

func TestMain(m *testing.M) { redistest.Main(m) }

// heldFor is a policy whose reservations expire.
func heldFor(t testing.TB, hold time.Duration) *core.Policy {
	t.Helper()
	return newPolicy(t, core.PolicyConfig{Name: "held", Algorithm: frozen(10), Hold: hold})
}

// used returns how many units of a key are used.
func used(t testing.TB, g *core.Gate, p *core.Policy, key core.Key) int64 {
	t.Helper()
	d := peek(t, g, core.Charge{Policy: p, Key: key, Cost: core.NoCost})
	return d.At(0).Used
}

func wantUsed(t testing.TB, g *core.Gate, p *core.Policy, key core.Key, want int64) {
	t.Helper()
	if n := used(t, g, p, key); n != want {
		t.Errorf("%d units of %s are in use, want %d", n, p.Name(), want)
	}
}

func settle(t testing.TB, r *core.Reservation, actual ...int64) {
	t.Helper()
	worked(t, r.Settle(t.Context(), actual...))
}

// isOp reports whether an event is of an operation.
func isOp(e core.Event, op core.Op) bool { return e.EventName() == op.String() }

// queue acquires in the background, and returns once the caller waits or has its slot.
func queue(
	t *testing.T, ctx context.Context, s *semaphore.Semaphore, caps ...semaphore.Cap,
) <-chan *semaphore.Lease {
	t.Helper()
	leases, queued := make(chan *semaphore.Lease, 1), make(chan struct{}, 100)
	go func() {
		l, err := s.Acquire(ctx, semaphore.Request{
			Caps: caps, MaxWait: longTimeout, OnQueue: func(int) { queued <- struct{}{} },
		})
		if err != nil && ctx.Err() == nil {
			t.Error(err)
		}
		leases <- l
		queued <- struct{}{} // also if it was not queued
	}()
	<-queued
	return leases
}
