// Package keeper looks after the leases that a process holds and after its waiters: it renews the
// leases, tells holders that they have lost theirs, and wakes waiters when Redis grants them a
// slot.
package keeper

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/breaker"
)

// Config configures a Keeper.
type Config struct {
	Client redis.UniversalClient // to listen by; nil in memory
	Prefix string                // of the names of channels
	ID     string                // of this process, in the names of channels
	Tasks  *breaker.Tasks        // run what the Keeper starts
	Lost   error                 // told to the holder of a lost lease
	Closed error                 // told to waiters and holders whom Close leaves without a slot
	// Notify is called when a held lease was adopted, lost or evicted. It may be nil.
	Notify func(Notice)
}

// Notice says what became of a lease.
type Notice struct {
	Kind    Kind
	Holding *Holding
	Took    time.Duration // of an adoption
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
	channel string // of this process, where a server has no sharded channels

	mu      sync.Mutex
	held    map[string]*Holding
	waiting map[string]*Waiter
	busy    int           // calls that acquire or release
	idle    chan struct{} // closed when nothing is held or busy; nil unless Close waits
	closing bool
	over    bool        // Close has given up the leases that were left
	timer   *time.Timer // calls look
	timed   bool        // the timer runs
	next    time.Time   // when it fires
	returns []*giveBack // slots whose release failed
	listens bool        // to the plain channel
	shards  *shards     // nil if the server has no sharded channels
	done    context.Context
	stop    context.CancelFunc
}

// New returns a Keeper that holds nothing. It starts nothing yet.
func New(cfg Config) *Keeper {
	k := &Keeper{
		Config: cfg, channel: cfg.Prefix + "wake:" + cfg.ID,
		held: make(map[string]*Holding), waiting: make(map[string]*Waiter),
	}
	k.done, k.stop = context.WithCancel(context.Background())
	if cluster, ok := cfg.Client.(*redis.ClusterClient); ok {
		k.shards = newShards(k, cluster)
	}
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

// rest tells Close that nothing is left to wait for. The lock is held.
func (k *Keeper) rest() {
	if len(k.held) == 0 && k.busy == 0 && k.idle != nil {
		close(k.idle)
		k.idle = nil
	}
}

// Hold looks after a granted lease from now on. A lease that comes after Close gave up is lost.
func (k *Keeper) Hold(h *Holding) {
	h.keeper = k
	k.mu.Lock()
	over := k.over
	if over {
		h.released = true
	} else {
		k.keep(h)
		if k.shards == nil && h.Fenced {
			k.subscribe() // an eviction is told there
		}
	}
	k.mu.Unlock()
	if over {
		h.lose(k.Closed)
		k.Tasks.Go(func() { _ = h.free(context.Background()) }) // on failure the lease ends
	}
}

// keep adds a lease. The lock is held.
func (k *Keeper) keep(h *Holding) {
	k.held[h.ID] = h
	k.attend(h.next())
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

// drop removes a lease, and reports whether it was kept. The lock is held.
func (k *Keeper) drop(h *Holding) bool {
	if k.held[h.ID] != h {
		return false
	}
	delete(k.held, h.ID)
	k.rest()
	return true
}

// Release gives up a lease, in whatever state it is. If that fails, it is sent again later.
func (k *Keeper) Release(ctx context.Context, h *Holding) error {
	k.mu.Lock()
	k.busy++
	h.released = true
	k.drop(h)
	k.mu.Unlock()
	defer k.End()
	if err := h.free(ctx); err != nil {
		k.releaseLater(place{h.Store, h.Scope}, h.ID, h.TTL)
		return err
	}
	return nil
}

// Close wakes all waiters, lets holders finish until ctx ends, and gives up what is left then.
func (k *Keeper) Close(ctx context.Context) error {
	k.mu.Lock()
	k.closing = true
	k.wakeAll()
	if k.idle == nil {
		k.idle = make(chan struct{})
	}
	idle := k.idle
	k.rest()
	k.mu.Unlock()
	var err error
	select {
	case <-idle:
	case <-ctx.Done():
		err = ctx.Err()
	}
	k.mu.Lock()
	k.over = true
	if k.timer != nil {
		k.timer.Stop()
	}
	returns := k.returns
	k.returns = nil
	rest := k.held
	k.held = make(map[string]*Holding)
	for _, h := range rest {
		h.released = true
	}
	k.mu.Unlock()
	held, failed := make(slots), make(slots)
	for _, h := range rest {
		h.lose(k.Closed)
		if h.Store != nil {
			held.add(place{h.Store, h.Scope}, h.ID)
		}
	}
	for _, g := range returns {
		failed.add(g.place, g.id)
	}
	detached := context.WithoutCancel(ctx)
	var last sync.WaitGroup
	last.Go(func() { _ = failed.release(detached) }) // on failure the leases end
	err = errors.Join(err, held.release(detached))
	last.Wait()
	k.stop()
	return err
}

func (k *Keeper) notify(n Notice) {
	if k.Notify != nil {
		k.Notify(n)
	}
}
