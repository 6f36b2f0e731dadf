package core

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/lease"
)

const (
	defaultLease      = 10 * time.Second
	defaultMaxWaiters = 100
	maxLevels         = 8
	maxMetadata       = 1024 // bytes, encoded
)

// SemaphoreConfig configures a Semaphore.
type SemaphoreConfig struct {
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
	// means CancelOnLoss.
	OnLoss LossPolicy
	// MaxHold ends each lease after that time, whether it was renewed or adopted. Zero means no
	// bound.
	MaxHold time.Duration
	// MaxWaiters bounds the queue of each innermost key. Zero means 100.
	MaxWaiters int
	// OnFailure says who decides while Redis does not answer: Local grants this process's share of
	// each limit, and at least 1; Open grants every slot; Closed grants none.
	OnFailure FailureMode
}

// LossPolicy says what happens when a lease is lost.
type LossPolicy uint8

const (
	// CancelOnLoss cancels the lease's context with ErrLeaseLost, so that the work stops.
	CancelOnLoss LossPolicy = iota
	// AdoptOnLoss asks for the slot once more, and goes on with a new Token if there is room. In
	// between another holder may have had the slot, so LeaseAdopted reports it. It cancels if there
	// is no room, if the holder was evicted, and if Redis does not answer. The work goes on while
	// it asks, for at most Config.Timeout.
	AdoptOnLoss
	// NotifyOnLoss closes Lease.Lost and lets the work go on.
	NotifyOnLoss
)

var lossPolicies = [...]string{"cancel", "adopt", "notify"}

// String returns the policy in one lower-case word.
func (p LossPolicy) String() string { return nameOf(lossPolicies[:], int(p)) }

// Semaphore admits a number of holders at a time for each of its keys, and queues the others. Each
// holder has a Lease that ends by Redis's clock unless it is renewed, so a holder that dies gives
// its slot back. It is safe for concurrent use and must not be copied.
//
// A Semaphore does not guarantee mutual exclusion: a process that is paused for longer than its
// lease may go on while another one holds the slot. Only a resource that checks Lease.Token is safe
// from that, and only with a limit of 1.
type Semaphore struct {
	gate     *Gate
	cfg      SemaphoreConfig
	meanHold atomic.Int64 // mean of the slots that this process has released, in microseconds
}

// NewSemaphore returns a Semaphore, or every fault of the configuration at once.
func NewSemaphore(g *Gate, cfg SemaphoreConfig) (*Semaphore, error) {
	var errs []error
	if g == nil || g.store == nil {
		errs = append(errs, errors.New("core: the semaphore's Gate is missing"))
	}
	if err := checkName(cfg.Name, 64); err != nil {
		errs = append(errs, fmt.Errorf("core: SemaphoreConfig.Name %w", err))
	}
	if err := checkTTL(cfg.TTL); err != nil {
		errs = append(errs, fmt.Errorf("core: SemaphoreConfig.TTL %w", err))
	}
	cfg.TTL = cmp.Or(cfg.TTL, defaultLease)
	if cfg.OnLoss > NotifyOnLoss {
		errs = append(
			errs,
			fmt.Errorf(
				"core: SemaphoreConfig.OnLoss is %d: it must be a LossPolicy",
				cfg.OnLoss,
			),
		)
	}
	if cfg.MaxHold < 0 || cfg.MaxHold > 0 && cfg.MaxHold < cfg.TTL {
		errs = append(
			errs,
			fmt.Errorf(
				"core: SemaphoreConfig.MaxHold is %v: it must be at least the lease",
				cfg.MaxHold,
			),
		)
	}
	if cfg.MaxWaiters == 0 {
		cfg.MaxWaiters = defaultMaxWaiters
	} else if cfg.MaxWaiters < 0 || cfg.MaxWaiters > 1_000_000 {
		errs = append(errs, fmt.Errorf(
			"core: SemaphoreConfig.MaxWaiters is %d: it must be between 1 and 1000000", cfg.MaxWaiters))
	}
	if cfg.OnFailure > FailClosed {
		errs = append(
			errs,
			fmt.Errorf(
				"core: SemaphoreConfig.OnFailure is %d: it must be FailLocal, FailOpen or FailClosed",
				cfg.OnFailure,
			),
		)
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return &Semaphore{gate: g, cfg: cfg}, nil
}

func checkTTL(ttl time.Duration) error {
	if ttl != 0 && (ttl < time.Second || ttl > time.Hour) {
		return fmt.Errorf("is %v: it must be between 1s and 1h", ttl)
	}
	return nil
}

// held notes for how long a slot was held. A hold may be missed, which does no harm.
func (s *Semaphore) held(d time.Duration) {
	s.meanHold.Store(lease.MeanHold(s.meanHold.Load(), d.Microseconds()))
}

// Gate returns the Gate of the semaphore.
func (s *Semaphore) Gate() *Gate { return s.gate }

// MaxLimit is the largest limit of a Level.
const MaxLimit = lease.MaxLimit

// MaxShare is the largest Share of a Level.
const MaxShare = lease.MaxShare

// Level is one of the caps that a holder counts against.
type Level struct {
	Key   Key
	Limit int64 // the most weight that all holders take; a lowered limit ends no lease
	// Weight is how much of the limit the holder takes. Zero means 1.
	Weight int64
	// Share is the key's share of the room at the level above, relative to the other keys that wait
	// there: a key with a share of 3 gets three times the slot-seconds of a key with 1. It is
	// between 1 and MaxShare. Zero means 1. The outermost level has none.
	Share int64
	// Floor comes before every share: while the holders of the key take less weight than Floor, its
	// waiters come before those of keys that hold their floors. So the next release at the level
	// above goes to them. It is at most Limit. The outermost level has none.
	Floor int64
}

// SlotRequest says what a holder wants.
type SlotRequest struct {
	// Levels are the caps, outermost first, such as tenant and user. A slot takes room at all of
	// them or at none. Their keys share the outermost part. Use the same parents for a key in every
	// request. Otherwise a waiter may block others; caps still hold.
	Levels []Level
	// MaxWait bounds the wait of Acquire and Admit, beside the context. Zero means no bound.
	MaxWait time.Duration
	// Priority is between 0, which is served first, and 9. A waiter of priority p is served as if
	// it had arrived p times 10 s later, so none waits for ever. Among the keys of one level, it is
	// served as if its key had used p times 10 s more of a slot, divided by its Share.
	Priority int
	// Meta is what Holders tells about this holder. If it takes more than 1 KiB, encoded as a URL's
	// query, values are cut, and keys without room are dropped.
	Meta map[string]string
	// OnQueue is called with the caller's place in the queue of the innermost key, from 0, when the
	// place is known and when it changes. It may be nil.
	OnQueue func(position int)
}

// TryAcquire takes a slot, or returns a *FullError at once. It does not overtake waiters.
func (s *Semaphore) TryAcquire(ctx context.Context, ask SlotRequest) (*Lease, error) {
	return s.acquire(ctx, ask, 0)
}

// Acquire takes a slot, and waits for one if there is none. It returns a *FullError if the queue is
// full or SlotRequest.MaxWait is over, and wraps the error of ctx if that ends. The Lease is nil on
// error.
//
// Callers wait in a FIFO queue for each innermost key, so a caller that waits at a user's cap
// delays no other user of the tenant. Room at an outer key goes to the key below it that has used
// the fewest slot-seconds, divided by its Share; see Level. A caller whose inner caps are full is
// passed over.
func (s *Semaphore) Acquire(ctx context.Context, ask SlotRequest) (*Lease, error) {
	return s.acquire(ctx, ask, int64(s.cfg.MaxWaiters))
}

// Do calls f with the lease's context while it holds a slot at one key, and returns f's error. If
// there is no slot, it returns the error of Acquire and does not call f.
func (s *Semaphore) Do(
	ctx context.Context,
	key Key,
	limit int64,
	f func(context.Context) error,
) error {
	l, err := s.Acquire(ctx, SlotRequest{Levels: []Level{{Key: key, Limit: limit}}})
	if err != nil {
		return err
	}
	defer func() { _ = l.Release(ctx) }() // on failure the lease ends
	return f(l.Context())
}

// request returns a request to a lease store.
func (s *Semaphore) request(ask SlotRequest, waiters int64) (lease.Request, error) {
	q := lease.Request{
		ID: newID(), Lease: s.cfg.TTL.Microseconds(), Patience: s.cfg.TTL.Microseconds(),
		Longest: s.cfg.MaxHold.Microseconds(), Waiters: waiters, Priority: ask.Priority,
		Metadata: "-",
	}
	if len(ask.Levels) == 0 || len(ask.Levels) > maxLevels {
		return q, fmt.Errorf(
			"%w: %d levels, 1 to %d are possible",
			ErrSlotRequest,
			len(ask.Levels),
			maxLevels,
		)
	}
	if ask.Priority < 0 || ask.Priority > 9 {
		return q, fmt.Errorf("%w: priority %d, 0 to 9 are possible", ErrSlotRequest, ask.Priority)
	}
	for i, l := range ask.Levels {
		if l.Weight == 0 {
			l.Weight = 1
		}
		switch {
		case l.Key.outer == 0:
			return q, fmt.Errorf("%w: level %d has none", ErrKey, i)
		case l.Key.outermost() != ask.Levels[0].Key.outermost():
			return q, fmt.Errorf("%w: the key of level %d has another outermost part", ErrKey, i)
		case l.Limit < 1 || l.Limit > lease.MaxLimit || l.Weight < 1 || l.Weight > l.Limit:
			return q, fmt.Errorf(
				"%w: level %d has limit %d and weight %d",
				ErrSlotRequest,
				i,
				l.Limit,
				l.Weight,
			)
		case l.Share < 0 || l.Share > MaxShare:
			return q, fmt.Errorf("%w: level %d has Share %d, 0 to %d are possible",
				ErrSlotRequest, i, l.Share, MaxShare)
		case l.Floor < 0 || l.Floor > l.Limit:
			return q, fmt.Errorf("%w: level %d has Floor %d, 0 to its limit %d are possible",
				ErrSlotRequest, i, l.Floor, l.Limit)
		case i == 0 && (l.Share > 0 || l.Floor > 0):
			return q, fmt.Errorf("%w: level 0 has Share %d and Floor %d, but no level above it",
				ErrSlotRequest, l.Share, l.Floor)
		case slices.ContainsFunc(ask.Levels[:i], func(o Level) bool { return o.Key == l.Key }):
			return q, fmt.Errorf("%w: level %d has the key of another", ErrKey, i)
		}
		q.Levels = append(q.Levels, lease.Level{
			Node: l.Key.path, Limit: l.Limit, Weight: l.Weight, Share: l.Share, Floor: l.Floor,
		})
	}
	q.Channel, _ = s.gate.keeper.Channel(ask.Levels[0].Key.outermost(), nil)
	if len(ask.Meta) > 0 {
		q.Metadata = metadata(ask.Meta)
	}
	return q, nil
}

func (s *Semaphore) scope(key Key) string {
	return s.gate.prefix + key.outermost() + ":" + s.cfg.Name + ":se5"
}
