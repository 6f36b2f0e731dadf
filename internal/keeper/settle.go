package keeper

import (
	"context"
	"maps"
	"math"
	"time"

	"github.com/headgate/headgate/internal/breaker"
)

// settling is how long callers that can wait leave a server that may be empty to the holders of all
// processes: each finds within a breaker.Pause that the server answers again, and then has as long to renew.
const settling = 2 * breaker.Pause

// Settles returns how long a caller that can wait leaves the server of an outermost part to the holders of
// all processes, who take their slots again if it has forgotten them. It is 0 while the server fails.
func (k *Keeper) Settles(ctx context.Context, outermost string) time.Duration {
	k.mu.Lock()
	none := len(k.settled) == 0
	k.mu.Unlock()
	if none {
		return 0
	}
	server, answers := k.Server(ctx, outermost)
	if !answers {
		return 0
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return min(time.Until(k.settled[server]), settling)
}

// Asks reports whether the server of an outermost part is asked. That in memory is.
func (k *Keeper) Asks(ctx context.Context, outermost string) bool {
	if k.Server == nil {
		return true
	}
	_, asked := k.Server(ctx, outermost)
	return asked
}

// Fails notes that the circuit of a server has opened, and has all waiters ask, because their failure modes
// decide.
func (k *Keeper) Fails(server string) {
	k.broken(server, math.MaxInt64)
	k.Wake()
}

// Answers notes that the circuit of a server has closed: the server may have begun again, and empty.
func (k *Keeper) Answers(server string) {
	k.mu.Lock()
	delete(k.settled, server)
	k.settle(server, settling)
	close(k.answers)
	k.answers = make(chan struct{})
	k.mu.Unlock()
	k.RenewAll()
}

// Broke returns when a server, or a connection on which the Keeper listens, failed last.
func (k *Keeper) Broke() time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.broke
}

// broken notes that a server, or a connection on which the Keeper listened there, broke: callers leave the
// server to the holders from now on, for that time.
func (k *Keeper) broken(server string, rest time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.broke = time.Now()
	k.settle(server, rest)
}

// back renews all leases if a connection broke before the one on which the Keeper listens now.
func (k *Keeper) back(server string) {
	k.mu.Lock()
	again := !k.broke.IsZero()
	if again {
		k.settle(server, settling)
	}
	k.mu.Unlock()
	if again {
		k.RenewAll()
	}
}

// settle has callers leave a server to the holders for that time, or longer. The lock is held.
func (k *Keeper) settle(server string, d time.Duration) {
	now := time.Now()
	maps.DeleteFunc(k.settled, func(_ string, until time.Time) bool { return now.After(until) })
	if until := now.Add(d); until.After(k.settled[server]) {
		k.settled[server] = until
	}
}

// RenewAll renews all leases now, because their server may have forgotten them: but those that it has
// confirmed within a second, in which a process uses its first scripts, unless a server or a connection
// broke since.
func (k *Keeper) RenewAll() {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	for _, h := range k.held {
		old := now.Sub(h.sent) > time.Second || h.sent.Before(k.broke)
		if h.Store != nil && h.asking == 0 && now.Before(h.due) && old {
			h.due = now
		}
	}
	if k.timer != nil { // attend would link what renews leases into programs without any
		k.timed, k.next = true, now
		k.timer.Reset(0)
	}
}
