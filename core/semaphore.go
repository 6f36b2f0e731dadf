package core

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/lease"
)

const (
	defaultLease      = 10 * time.Second
	defaultMaxWaiters = 100
	maxLevels         = 8
	maxMetadata       = 1024 // bytes, encoded
)

// SemaphoreConfig says what a semaphore is.
type SemaphoreConfig struct {
	// Name tells the semaphore from others on the same keys: 1 to 64 of the characters A-Z a-z 0-9 _ . and -.
	Name string
	// TTL is how long a slot stays taken when its holder has died. Living holders renew it at a third of that. It is
	// 10 s if zero, and from 1 s to 1 h else.
	TTL time.Duration
	// OnLoss says what becomes of a lease that Redis no longer knows: because it could not be renewed in time, or Redis
	// has lost it. The zero value is CancelOnLoss.
	OnLoss LossPolicy
	// MaxHold ends every lease after that time, renewed, adopted or not. Zero is no bound.
	MaxHold time.Duration
	// MaxWaiters bounds the queue of each innermost key. It is 100 if zero.
	MaxWaiters int
	// OnFailure says who decides while Redis does not answer: this process alone with its share of the limits, nobody, so
	// that all are admitted, or nobody, so that none is.
	OnFailure FailureMode
}

// LossPolicy says what becomes of a lost lease.
type LossPolicy uint8

const (
	// CancelOnLoss cancels the lease's context, so that the work stops.
	CancelOnLoss LossPolicy = iota
	// AdoptOnLoss asks once for a slot anew, and goes on if there is room, with a new Token: for a time somebody else may
	// have had the slot, which EventAdopted reports. It cancels where there is no room or the holder was evicted,
	// and where Redis does not answer. The work goes on while it asks, so for at most Config.Timeout longer than otherwise.
	AdoptOnLoss
	// NotifyOnLoss closes Lost and lets the work go on.
	NotifyOnLoss
)

var lossPolicies = [...]string{"cancel", "adopt", "notify"}

// String returns the policy in one lower-case word.
func (p LossPolicy) String() string { return nameOf(lossPolicies[:], int(p)) }

// Semaphore lets at most so many holders in at a time, of each of its keys, and queues the others. A holder has a Lease, which
// Redis's clock ends if it is not renewed, so that no slot is lost with its holder. It is immutable and safe for
// concurrent use.
//
// It is no mutual exclusion for correctness: a process that stands still for longer than its lease may go on while
// another holds. Only what checks Token is safe from that, and with a limit of 1 only: of more holders, an older token is as
// good as a newer one.
type Semaphore struct {
	gate *Gate
	cfg  SemaphoreConfig
}

// NewSemaphore validates the configuration and returns every fault of it at once.
func NewSemaphore(g *Gate, cfg SemaphoreConfig) (*Semaphore, error) {
	var errs []error
	if g == nil || g.store == nil {
		errs = append(errs, errors.New("core: the semaphore's Gate is missing"))
	}
	if err := checkName(cfg.Name, 64); err != nil {
		errs = append(errs, fmt.Errorf("core: SemaphoreConfig.Name %w", err))
	}
	if cfg.TTL == 0 {
		cfg.TTL = defaultLease
	} else if cfg.TTL < time.Second || cfg.TTL > time.Hour {
		errs = append(errs, fmt.Errorf("core: SemaphoreConfig.TTL is %v: it must be between 1s and 1h", cfg.TTL))
	}
	if cfg.OnLoss > NotifyOnLoss {
		errs = append(errs, fmt.Errorf("core: SemaphoreConfig.OnLoss is %d: it must be CancelOnLoss, AdoptOnLoss or NotifyOnLoss", cfg.OnLoss))
	}
	if cfg.MaxHold < 0 || cfg.MaxHold > 0 && cfg.MaxHold < cfg.TTL {
		errs = append(errs, fmt.Errorf("core: SemaphoreConfig.MaxHold is %v: it must be at least the lease", cfg.MaxHold))
	}
	if cfg.MaxWaiters == 0 {
		cfg.MaxWaiters = defaultMaxWaiters
	} else if cfg.MaxWaiters < 0 || cfg.MaxWaiters > 1_000_000 {
		errs = append(errs, fmt.Errorf("core: SemaphoreConfig.MaxWaiters is %d: it must be between 1 and 1000000", cfg.MaxWaiters))
	}
	if cfg.OnFailure > Closed {
		errs = append(errs, fmt.Errorf("core: SemaphoreConfig.OnFailure is %d: it must be Local, Open or Closed", cfg.OnFailure))
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return &Semaphore{g, cfg}, nil
}

// Gate is the one that it was made with.
func (s *Semaphore) Gate() *Gate { return s.gate }

// MaxLimit is the largest limit of a Level.
const MaxLimit = lease.MaxLimit

// Level is one cap that a holder counts against.
type Level struct {
	Key   Key
	Limit int64 // holders' weight at most; a lowered one ends no lease
	// Weight is how much of the limit the holder takes. It is 1 if zero.
	Weight int64
}

// SlotRequest says what a holder wants.
type SlotRequest struct {
	// Levels are the caps, outermost first, such as tenant and user: all of them have room, or nothing is taken. Their
	// keys have the same outermost part. A level's key has the same levels above it in every SlotRequest: else who waits may hold
	// up others, but no cap is exceeded.
	Levels []Level
	// MaxWait bounds the wait of Acquire, beside its context. Zero is no bound of its own.
	MaxWait time.Duration
	// Priority is from 0, first, to 9. Those of one priority are served in the order of their arrival in Redis.
	Priority int
	// Meta is what Holders tells of this one. If it takes more than 1 KiB, as in a URL's query, values are cut, and keys left
	// away that have no room.
	Meta map[string]string
	// OnQueue is called with the place in the queue of the innermost key, from 0, whenever it is known.
	OnQueue func(position int)
}

// ErrFull is wrapped by the errors of a semaphore without room, which are FullErrors.
var ErrFull = errors.New("core: the semaphore is full")

// FullError says what stands in the way.
type FullError struct {
	// Level is the index of the level without room, the innermost if there are more.
	Level int
	// InUse and Limit are those of that level.
	InUse, Limit int64
	// Queue says that it is the queue that is full, or that the wait took too long.
	Queue bool
	// NextExpiry is when the first lease below the outermost key ends unless it is renewed, 0 if there is none.
	NextExpiry time.Duration
	// RetryAfter is a guess of when there is room: by how long holders have held, or by when the first lease ends.
	RetryAfter time.Duration
}

func (e *FullError) Error() string {
	what := "the semaphore is full"
	if e.Queue {
		what = "the semaphore's queue is full, or the wait too long"
	}
	return fmt.Sprintf("core: %s: %d of %d in use", what, e.InUse, e.Limit)
}

// Unwrap is ErrFull.
func (e *FullError) Unwrap() error { return ErrFull }

// TryAcquire takes a slot, or returns a *FullError at once. Nobody who waits is passed by.
func (s *Semaphore) TryAcquire(ctx context.Context, ask SlotRequest) (*Lease, error) {
	return s.acquire(ctx, ask, 0)
}

// Acquire takes a slot, and waits for one if there is none: first come, first served, among those whose inner levels have
// room. So who waits at a user's cap delays nobody else of the tenant. It returns a *FullError if the queue is full or
// SlotRequest.MaxWait is over, and the context's error if that ends.
func (s *Semaphore) Acquire(ctx context.Context, ask SlotRequest) (*Lease, error) {
	return s.acquire(ctx, ask, int64(s.cfg.MaxWaiters))
}

// Do runs f while it holds a slot at one key, with the lease's context.
func (s *Semaphore) Do(ctx context.Context, key Key, limit int64, f func(context.Context) error) error {
	l, err := s.Acquire(ctx, SlotRequest{Levels: []Level{{Key: key, Limit: limit}}})
	if err != nil {
		return err
	}
	defer func() { _ = l.Release(ctx) }() // else its lease ends
	return f(l.Context())
}

// request is the ask as the stores see it.
func (s *Semaphore) request(ask SlotRequest, waiters int64) (lease.Request, error) {
	q := lease.Request{
		ID: newID(), Lease: s.cfg.TTL.Microseconds(), Patience: s.cfg.TTL.Microseconds(),
		Longest: s.cfg.MaxHold.Microseconds(), Waiters: waiters, Priority: ask.Priority, Metadata: "-",
	}
	if len(ask.Levels) == 0 || len(ask.Levels) > maxLevels {
		return q, fmt.Errorf("%w: %d levels, 1 to %d are possible", ErrSlotRequest, len(ask.Levels), maxLevels)
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
			return q, fmt.Errorf("%w: level %d has limit %d and weight %d", ErrSlotRequest, i, l.Limit, l.Weight)
		case slices.ContainsFunc(ask.Levels[:i], func(o Level) bool { return o.Key == l.Key }):
			return q, fmt.Errorf("%w: level %d has the key of another", ErrKey, i)
		}
		q.Levels = append(q.Levels, lease.Level{Node: l.Key.path, Limit: l.Limit, Weight: l.Weight})
	}
	q.Channel, _ = s.gate.keeper.Channel(ask.Levels[0].Key.outermost(), nil)
	if len(ask.Meta) > 0 {
		q.Metadata = metadata(ask.Meta)
	}
	return q, nil
}

func (s *Semaphore) scope(key Key) string {
	return s.gate.prefix + key.outermost() + ":" + s.cfg.Name + ":se1"
}

// full is the error of a grant without room.
func full(q lease.Request, g lease.Grant) *FullError {
	e := &FullError{Level: len(q.Levels) - 1, Queue: g.Status != lease.Full}
	for i, l := range q.Levels {
		if g.Used[i]+l.Weight > l.Limit {
			e.Level = i
		}
	}
	e.InUse, e.Limit = g.Used[e.Level], q.Levels[e.Level].Limit
	e.NextExpiry = time.Duration(max(0, g.Next)) * time.Microsecond
	wait := time.Duration(g.Hold) * time.Microsecond / time.Duration(e.Limit) * time.Duration(g.Position+1)
	if g.Hold == 0 {
		wait = e.NextExpiry
	}
	wait = min(max(wait, time.Second), 30*time.Second)
	e.RetryAfter = wait + time.Duration(rand.Int64N(int64(wait)/5)) // not all at once
	return e
}
