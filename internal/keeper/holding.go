package keeper

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/lease"
	"github.com/headgate/headgate/internal/request"
)

// maxAsking bounds the renewals of a lease that are on their way.
const maxAsking = 3

// maxPerCall bounds the leases that one call renews or releases.
const maxPerCall = 256

// Spec is the request that a lease was granted for.
type Spec struct {
	Name    string // of the semaphore
	ID      string
	Scope   string
	TTL     time.Duration
	Store   request.LeaseStore // nil if no store granted it
	Fenced  bool               // its tokens rise, and evictions of it are told
	Adopt   bool               // takes a slot again after a loss
	Request lease.Request      // to adopt with
	Ends    time.Time          // the end of the longest hold; zero if there is none
	Notify  func(Notice)       // is called when the lease was adopted, lost or evicted
}

// Holding is a lease of this process.
type Holding struct {
	Spec
	keeper *Keeper
	token  atomic.Int64
	inUse  int64

	// The keeper's lock guards these once the lease is held.
	due, until time.Time // to renew it, and to believe in it; zero for ever
	latest     time.Time // until when to believe in it if the process stood still before
	asking     int       // renewals on their way
	sent       time.Time // when the last renewal that was answered was asked for
	released   bool
	local      request.LeaseStore // counts the slot too, or nil
	recount    time.Time          // when local is to be asked again, because its lease ends

	gone chan struct{} // closed when the lease is lost
	mu   sync.Mutex
	lost error
	hear func(error)
}

// NewHolding returns a lease that no store knows. Without a store it lasts until the end of its
// longest hold.
func NewHolding(s Spec) *Holding {
	return &Holding{Spec: s, until: s.Ends, gone: make(chan struct{})}
}

// Granted makes it the lease of a grant, which was asked for at sent.
func (h *Holding) Granted(m lease.Message, sent time.Time) {
	h.inUse = m.Used
	if h.Fenced {
		h.token.Store(m.Token)
	}
	left := time.Duration(m.Left) * time.Microsecond
	h.renewed(sent, left)
	if soon := sent.Add(Jitter(left / 3)); soon.Before(h.due) { // a waiter is granted a short lease
		h.due = soon
	}
}

// Token returns the lease's fencing token.
func (h *Holding) Token() int64 { return h.token.Load() }

// InUse returns how much of the innermost limit was in use right after the grant.
func (h *Holding) InUse() int64 { return h.inUse }

// Gone returns a channel that is closed when the lease is lost.
func (h *Holding) Gone() <-chan struct{} { return h.gone }

// Until returns the time until which the lease is believed in, unless it is renewed.
func (h *Holding) Until() time.Time {
	if h.keeper != nil {
		h.keeper.mu.Lock()
		defer h.keeper.mu.Unlock()
	}
	return h.until
}

// OnLoss makes hear the function that a loss calls. If the lease is lost already, OnLoss calls it.
func (h *Holding) OnLoss(hear func(error)) {
	h.mu.Lock()
	h.hear = hear
	lost := h.lost
	h.mu.Unlock()
	if lost != nil {
		hear(lost)
	}
}

// lose calls the function of OnLoss and then closes Gone, once: who learns from Gone finds the loss
// everywhere.
func (h *Holding) lose(err error) {
	h.mu.Lock()
	if h.lost != nil {
		h.mu.Unlock()
		return
	}
	h.lost = err
	hear := h.hear
	h.mu.Unlock()
	if hear != nil {
		hear(err)
	}
	close(h.gone)
}

// free gives the slot back to the store that granted it.
func (h *Holding) free(ctx context.Context) error {
	if h.Store == nil {
		return nil
	}
	return h.Store.Release(ctx, h.Scope, []string{h.ID})
}

// renewable reports whether another renewal may be sent.
func (h *Holding) renewable() bool { return h.Store != nil && h.asking < maxAsking }

// next is when to look at the lease again.
func (h *Holding) next() time.Time {
	if h.renewable() && h.due.Before(h.until) {
		return h.due
	}
	return h.until
}

// renewed sets when to renew the lease again and how long to believe in it. It counts by the
// monotonic clock from before the request, and a tenth less than the store says, in case the clocks
// differ in speed; or a twentieth, if the process stands still meanwhile. A later request counts, if
// that was answered before.
func (h *Holding) renewed(sent time.Time, left time.Duration) {
	if sent.Before(h.sent) {
		return
	}
	h.sent = sent
	h.until, h.latest = sent.Add(left-left/10), sent.Add(left-left/20)
	h.due = sent.Add(Jitter(h.TTL / 3))
	if h.due.After(h.until) { // the longest hold ends
		h.due = h.until
	}
}

// Jitter returns d, 10 % more or less.
func Jitter(d time.Duration) time.Duration {
	return d - d/10 + time.Duration(rand.Int64N(int64(d/5)+1))
}

// Hold renews a granted lease from now on. After the end of Close the lease is lost at once.
func (k *Keeper) Hold(h *Holding) {
	h.keeper = k
	k.mu.Lock()
	over := k.over
	if over {
		h.released = true
	} else {
		k.keep(h)
		if h.Fenced {
			k.listen()
		}
	}
	k.mu.Unlock()
	if over {
		h.lose(k.Closed)
		k.Tasks.Go(func() { _ = h.free(context.Background()) }) // on failure the lease ends
	}
}

// Release gives up a lease in any state. If the store fails, the Keeper repeats the release.
func (k *Keeper) Release(ctx context.Context, h *Holding) error {
	k.mu.Lock()
	k.busy++
	h.released = true
	local := h.local
	k.drop(h)
	k.mu.Unlock()
	defer k.End()
	if local != nil {
		_ = local.Release(ctx, h.Scope, []string{h.ID}) // on failure its lease ends
	}
	if err := h.free(ctx); err != nil {
		k.Tasks.Go(func() { k.giveBack(place{h.Store, h.Scope}, h.ID, h.TTL) })
		return err
	}
	return nil
}

// CountIn counts the slots of a semaphore that another store has granted in a local one too, until
// they are released. It takes each of them there, as the part of a request that share returns, and again
// before the lease there ends.
func (k *Keeper) CountIn(
	ctx context.Context, local request.LeaseStore, name string, share func(lease.Request) lease.Request,
) {
	k.mu.Lock()
	var all []*Holding
	for _, h := range k.held {
		if h.Name == name && h.Store != nil && h.Store != local && time.Now().After(h.recount) {
			h.local, h.recount = local, time.Now().Add(h.TTL/2)
			all = append(all, h)
		}
	}
	k.mu.Unlock()
	for _, h := range all {
		_, _ = local.Acquire(ctx, h.Scope, share(h.Request)) // if it has no room, nobody else has
		k.mu.Lock()
		released := h.released
		k.mu.Unlock()
		if released {
			_ = local.Release(ctx, h.Scope, []string{h.ID}) // on failure its lease ends
		}
	}
}
