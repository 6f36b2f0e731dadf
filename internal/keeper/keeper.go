// Package keeper looks after the leases that a process holds and after its waiters: it renews the
// leases, tells holders that they have lost theirs, and wakes waiters when Redis grants them a
// slot.
package keeper

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/breaker"
)

// Config configures a Keeper.
type Config struct {
	// Listen hears Redis on the Channel until the Keeper is closed. It is nil in memory, where the store calls
	// Tell. Package core makes it, so that the linker drops it, and go-redis, from a program in memory: no
	// type that a Keeper is made of may name one of go-redis.
	Listen  func(*Keeper)
	Channel string         // to which a store is to send messages for this process
	Prefix  string         // of scopes
	Tasks   *breaker.Tasks // run what the Keeper starts
	// Server returns the server of an outermost part, and whether it is asked. It is nil in memory.
	Server func(ctx context.Context, outermost string) (name string, asked bool)
	Closed error // for waiters and holders that Close leaves without a slot
}

// ErrLost is the error for the holder of a lost lease.
var ErrLost = errors.New("semaphore: the lease is lost")

// ErrEnded is the ErrLost of a lease that was evicted, or whose longest hold is over: its holder should
// take no slot again.
var ErrEnded = fmt.Errorf("%w", ErrLost)

// Notice reports a change of a held lease.
type Notice struct {
	Kind Kind
	Took time.Duration // of an adoption
}

// Kind is the kind of a Notice.
type Kind uint8

// The kinds of a Notice.
const (
	Adopted Kind = iota // the slot was taken again after its lease was lost
	Lost
	Evicted
)

// Keeper is described in the package comment. It is safe for concurrent use and must not be copied.
type Keeper struct {
	Config

	mu      sync.Mutex
	names   map[string]struct{} // of semaphores
	held    map[string]*Holding
	waiting waiters
	listens bool          // Listen runs
	busy    int           // calls that acquire or release
	idle    chan struct{} // closed when nothing is held or busy; nil unless Close waits
	closing bool
	closed  chan struct{}        // closed by Close
	over    bool                 // Close has given up the leases that were left
	timer   *time.Timer          // calls look
	timed   bool                 // the timer runs
	next    time.Time            // when it fires
	broke   time.Time            // when a server, or a connection on which the Keeper listens, broke last
	settled map[string]time.Time // by server, until when callers leave it to the holders
	answers chan struct{}        // closed when a circuit closes, which makes the next one
	returns atomic.Int64         // slots whose release is repeated
	done    context.Context
	stop    context.CancelFunc
}

// New returns a Keeper that holds nothing. It starts nothing yet.
func New(cfg Config) *Keeper {
	k := &Keeper{
		Config: cfg,
		held:   make(map[string]*Holding), waiting: make(waiters), closed: make(chan struct{}),
		settled: make(map[string]time.Time), answers: make(chan struct{}),
	}
	k.done, k.stop = context.WithCancel(context.Background())
	return k
}

// Begin begins a call that acquires a slot. Each nil is followed by an End.
func (k *Keeper) Begin() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closing {
		return k.Closed
	}
	k.busy++
	return nil
}

// End ends a call that Begin began.
func (k *Keeper) End() {
	k.mu.Lock()
	k.busy--
	k.rest()
	k.mu.Unlock()
}

// keep adds a lease. The lock is held.
func (k *Keeper) keep(h *Holding) {
	k.held[h.ID] = h
	k.attend(h.next())
}

// drop removes a lease, and reports whether it was kept. The lock is held.
func (k *Keeper) drop(h *Holding) bool {
	if k.held[h.ID] != h {
		return false
	}
	delete(k.held, h.ID)
	k.rest()
	return true
}

// rest tells Close that nothing is left to wait for. The lock is held.
func (k *Keeper) rest() {
	if len(k.held) == 0 && k.busy == 0 && k.idle != nil {
		close(k.idle)
		k.idle = nil
	}
}

// attend calls look at that time, or earlier. The zero time is never. The lock is held.
func (k *Keeper) attend(at time.Time) {
	if k.over || at.IsZero() || k.timed && !at.Before(k.next) {
		return
	}
	k.timed, k.next = true, at
	if k.timer == nil {
		k.timer = time.AfterFunc(time.Until(at), k.look)
	} else {
		k.timer.Reset(time.Until(at))
	}
}
