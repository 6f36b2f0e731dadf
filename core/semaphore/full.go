package semaphore

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/headgate/headgate/internal/lease"
)

// ErrFull is wrapped by every FullError.
var ErrFull = errors.New("semaphore: full")

// FullError is the error of a semaphore without room.
type FullError struct {
	// Cap is the index of the innermost cap without room.
	Cap int
	// InUse and Limit describe that cap. InUse is 0 if MaxWait was over while the caller let holders come
	// first at a server that may be empty.
	InUse, Limit int64
	// Queue reports that the queue is full or MaxWait is over.
	Queue bool
	// NextExpiry is the time until the next lease ends if its holder does not renew it. It covers
	// all holders below the outermost key. It is 0 if there are none, and for a waiter that was not
	// the first in its queue.
	NextExpiry time.Duration
	// RetryAfter is an estimate of the time until there is room: from how long holders of this key
	// have held their slots, or else those that this process has released. Where no slot was
	// released yet, it is NextExpiry, or 3 s if that is shorter. It is between 1 s and 36 s.
	RetryAfter time.Duration
}

func (e *FullError) Error() string {
	what := "full"
	if e.Queue {
		what = "the queue is full, or the wait too long"
	}
	return fmt.Sprintf("semaphore: %s: %d of %d in use", what, e.InUse, e.Limit)
}

// Unwrap returns ErrFull.
func (e *FullError) Unwrap() error { return ErrFull }

// unknownHold is the wait for a slot while nobody has measured how long slots are held.
const unknownHold = 3 * time.Second

// full returns the error of a grant without room.
func (s *Semaphore) full(q lease.Request, g lease.Grant) *FullError {
	e := &FullError{Cap: len(q.Levels) - 1, Queue: g.Status != lease.Full}
	for i, l := range q.Levels {
		if g.Used[i]+l.Weight > l.Limit {
			e.Cap = i
		}
	}
	e.InUse, e.Limit = g.Used[e.Cap], q.Levels[e.Cap].Limit
	e.NextExpiry = time.Duration(max(0, g.Next)) * time.Microsecond
	hold := time.Duration(g.Hold) * time.Microsecond
	if hold == 0 { // Redis forgets it with the last holder
		hold = s.holds.Get()
	}
	wait := hold / time.Duration(e.Limit) * time.Duration(g.Position+1)
	if hold == 0 {
		wait = min(e.NextExpiry, unknownHold) // living holders renew their leases
	}
	wait = min(max(wait, time.Second), 30*time.Second)
	e.RetryAfter = wait + time.Duration(rand.Int64N(int64(wait)/5)) // so that not all ask at once
	return e
}
