package semaphore

import (
	"context"
	"time"

	"github.com/headgate/headgate/core"
)

// Until returns when this process gives up a lease that is not renewed.
func (l *Lease) Until() time.Time { return l.holding.Until() }

// Enqueue asks for a slot once and does not wait. A request without a slot stays queued for one
// TTL.
func (s *Semaphore) Enqueue(ctx context.Context, r Request) (id string, err error) {
	o, err := made{s}.order(&r)
	if err != nil {
		return "", err
	}
	o.wanted.Waiters = 1_000_000
	_, err = s.hub.Leases.Acquire(ctx, o.scope, o.wanted)
	return o.wanted.ID, err
}

// Leave withdraws the request that Enqueue made, or makes the store forget a lease and notifies
// nobody.
func (s *Semaphore) Leave(ctx context.Context, key core.Key, id string) error {
	return s.hub.Leases.Release(ctx, s.scope(inCore.Outermost(key)), []string{id})
}
