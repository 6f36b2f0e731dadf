// Package semaphore caps how many holders run at a time, over all replicas of a service.
//
//	streams, err := semaphore.New(gate, semaphore.Config{Name: "streams"})
//	lease, err := streams.Acquire(ctx, semaphore.Request{
//		Caps:    []semaphore.Cap{{Key: tenant, Limit: 20}, {Key: user, Limit: 3}},
//		MaxWait: 10 * time.Second,
//	})
//	defer lease.Release(ctx)
//
// A [Semaphore] has a number of slots for each key. Each holder of one has a [Lease], which is
// renewed in the background and ends with its process. Callers without a slot wait in a FIFO queue.
// [Semaphore.Admit] spends charges and takes a slot, both or neither. A [Mutex] is a semaphore of
// one slot.
package semaphore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/enum"
	"github.com/headgate/headgate/internal/hub"
	"github.com/headgate/headgate/internal/keeper"
	"github.com/headgate/headgate/internal/lease"
	"github.com/headgate/headgate/internal/request"
)

const (
	defaultTTL        = 10 * time.Second
	defaultMaxWaiters = 100
)

// Config configures a Semaphore.
type Config struct {
	// Name identifies the semaphore among those on the same keys. It has 1 to 64 of the characters
	// A-Z a-z 0-9 _ . and -.
	Name string
	// TTL is how long a slot stays taken after its holder has died. Living holders renew their
	// leases at a third of it. It is between 1 s and 1 h. Zero means 10 s.
	//
	// A slot that is granted to a waiter starts with a lease of at most 5 s, whatever TTL is. The
	// first renewal, within two seconds, extends it to TTL. If Redis stops before that renewal, the
	// lease is lost within 4.5 s of the grant, and often after some 3.5 s.
	TTL time.Duration
	// OnLoss says what happens if a lease could not be renewed in time, or Redis has lost it. Zero
	// means LossCancel.
	OnLoss LossPolicy
	// MaxHold ends each lease after that time, whether it was renewed or adopted. Zero means no
	// bound.
	MaxHold time.Duration
	// MaxWaiters bounds the queue of each innermost key. Further callers get a FullError at once. Those
	// in the background do not count against others.
	// Zero means 100.
	MaxWaiters int
	// OnFailure says who decides while Redis does not answer: FailLocal grants this process's share
	// of each limit, and at least 1; FailOpen grants every slot; FailClosed grants none.
	OnFailure core.FailureMode
}

// LossPolicy says what happens when a lease is lost.
type LossPolicy uint8

const (
	// LossCancel cancels the lease's context with ErrLeaseLost, so that the work stops.
	LossCancel LossPolicy = iota
	// LossAdopt asks for the slot once more, and goes on with a new Token if there is room. In
	// between another holder may have had the slot, so LeaseAdopted reports it. It cancels if there
	// is no room, if the holder was evicted, and if Redis does not answer. The work goes on while
	// it asks, for at most core.Config.Timeout.
	LossAdopt
)

var lossPolicies = [...]string{"cancel", "adopt"}

// String returns the policy in one lower-case word.
func (p LossPolicy) String() string { return enum.Name(lossPolicies[:], int(p)) }

// Semaphore admits a number of holders at a time for each of its keys, and queues the others. Each
// holder has a Lease that ends by Redis's clock unless it is renewed, so a holder that dies gives
// its slot back. It is safe for concurrent use and must not be copied.
//
// A Semaphore does not guarantee mutual exclusion: a process that is paused for longer than its
// lease may go on while another one holds the slot. Only a resource that checks Lease.Token is safe
// from that, and only with a limit of 1.
type Semaphore struct {
	gate    *core.Gate
	hub     *hub.Hub
	cfg     Config
	slots   slots
	abandon func(*request.Slot) // abandonSlot, bound once for all calls
	notify  func(keeper.Notice) // notice, bound once for all leases
	holds   lease.Mean          // of the slots that this process has released
}

// New returns a Semaphore, or every fault of the configuration at once.
func New(gate *core.Gate, cfg Config) (*Semaphore, error) { return newSemaphore(gate, cfg, "Config") }

// newSemaphore is New. Faults name the fields of the given struct.
func newSemaphore(gate *core.Gate, cfg Config, of string) (*Semaphore, error) {
	var errs []error
	fault := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("semaphore: "+format, args...))
	}
	lent := inCore.Of(gate)
	if lent == nil {
		fault("the Gate is missing")
	}
	if err := inCore.CheckName(cfg.Name, 64); err != nil {
		fault("%s.Name %w", of, err)
	}
	if cfg.TTL != 0 && (cfg.TTL < time.Second || cfg.TTL > time.Hour) {
		fault("%s.TTL is %v: it must be between 1s and 1h", of, cfg.TTL)
	}
	cfg.TTL = cmp.Or(cfg.TTL, defaultTTL)
	if cfg.OnLoss > LossAdopt {
		fault("%s.OnLoss is %d: it must be LossCancel or LossAdopt", of, cfg.OnLoss)
	}
	if cfg.MaxHold < 0 || cfg.MaxHold > 0 && cfg.MaxHold < cfg.TTL {
		fault("%s.MaxHold is %v: it must be at least the TTL", of, cfg.MaxHold)
	}
	if cfg.MaxWaiters < 0 || cfg.MaxWaiters > 1_000_000 {
		fault("%s.MaxWaiters is %d: it must be between 1 and 1000000", of, cfg.MaxWaiters)
	}
	cfg.MaxWaiters = cmp.Or(cfg.MaxWaiters, defaultMaxWaiters)
	if cfg.OnFailure > core.FailClosed {
		fault("%s.OnFailure is %d: it must be FailLocal, FailOpen or FailClosed", of, cfg.OnFailure)
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	s := &Semaphore{gate: gate, hub: lent, cfg: cfg}
	lent.Keeper.Name(cfg.Name)
	work := made{s}
	s.slots, s.abandon, s.notify = work, work.abandonSlot, s.notice
	return s, nil
}

// slots are what the methods of a Semaphore and of its leases do.
type slots interface {
	acquire(ctx context.Context, r Request) (*Lease, error)
	admit(ctx context.Context, r Request, d *core.Decision, charges []core.Charge) (*Lease, error)
	extend(ctx context.Context, l *Lease) error
	release(ctx context.Context, l *Lease) error
	entries(ctx context.Context, key core.Key) (now int64, entries []lease.Entry, err error)
}

// made is a Semaphore of New. Nothing but New makes one, so the linker drops what it does from a
// program that makes no Semaphore, although a Guard may be given one. Such a program would be
// 290 kB larger.
type made struct{ *Semaphore }

// Name returns the name of the semaphore.
func (s *Semaphore) Name() string { return s.cfg.Name }

// Gate returns the Gate of the semaphore.
func (s *Semaphore) Gate() *core.Gate { return s.gate }

// Do calls f with the lease's context while it holds a slot at one key, and returns f's error. It
// waits for the slot as long as ctx. If there is no slot, it returns the error of Acquire and does
// not call f.
func (s *Semaphore) Do(
	ctx context.Context, key core.Key, limit int64, f func(context.Context) error,
) error {
	l, err := s.Acquire(ctx, Request{Caps: []Cap{{Key: key, Limit: limit}}, MaxWait: Forever})
	if err != nil {
		return err
	}
	defer func() { _ = l.Release(ctx) }() // on failure the lease ends
	return f(l.Context())
}

// source is who grants slots while nothing fails.
func (s *Semaphore) source() core.Source {
	if s.inMemory() {
		return core.SourceMemory
	}
	return core.SourceRedis
}

func (s *Semaphore) inMemory() bool { return s.hub.Leases == s.hub.LocalLeases }
