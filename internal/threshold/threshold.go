// Package threshold reports which states have reached a share of their limit: once for each state,
// share and period over all processes.
package threshold

import (
	"sync"
	"time"

	"github.com/headgate/headgate/internal/algorithm"
	"github.com/headgate/headgate/internal/breaker"
	"github.com/headgate/headgate/internal/request"
)

// Most is the largest number of thresholds of a state.
const Most = 8

const (
	mostKnown  = 16_384 // states; a forgotten one costs a claim, which is denied
	mostClaims = 4096   // pending; a later decision makes a claim that does not fit
)

// Config is what a Watch uses.
type Config[O any] struct {
	// Send asks the store for requests on states of one key in one step.
	Send func([]request.Request) error
	// Tell is called for each threshold that no process has told.
	Tell  func(s *Sighting[O], percent int)
	Tasks *breaker.Tasks
	Clock func() int64 // microseconds
	// Pause is the time after which a claim or a mark that the store did not take is sent again.
	Pause time.Duration
}

// Sighting is a state that a decision has found at some of its thresholds.
type Sighting[O any] struct {
	Owner    O
	ID       uint64 // of the state
	Percents []int  // the thresholds of the state, ascending
	Bits     uint8  // one for each threshold that is reached; see Reached
	State    State
	Used     int64
	Limit    int64
	Span     algorithm.Span // of the period
	Asked    time.Time      // before the decision
}

// State names a state as a request.Charge does.
type State struct {
	Key    request.Key
	Suffix string
}

// Reached returns a bit for each of the thresholds, in percent, that so much of a limit reaches.
func Reached(percents []int, used, limit int64) (bits uint8) {
	for i, percent := range percents {
		if used < limit && used*100 < int64(percent)*limit { // such a limit is at most 2·10^15
			break
		}
		bits |= 1 << i
	}
	return bits
}

// Watch claims the thresholds that decisions have found states at, in the background, and tells
// those that no other process has claimed. It is safe for concurrent use.
type Watch[O any] struct {
	cfg Config[O]

	mu      sync.Mutex
	known   map[uint64]known // by the ID of a state
	pending []claim[O]
	working bool // a goroutine works on pending
}

// known is the thresholds of a state that have been told in a period, or are to be.
type known struct {
	bits  uint8
	limit int64
	start int64 // of the period
	until int64 // by the clock, when claims of other processes end that may be made again, or 0
}

// New returns a Watch.
func New[O any](cfg Config[O]) *Watch[O] {
	return &Watch[O]{cfg: cfg, known: make(map[uint64]known)}
}

// See claims the thresholds of a sighting that are not known.
func (w *Watch[O]) See(s Sighting[O]) {
	w.mu.Lock()
	defer w.mu.Unlock()
	k, found := w.known[s.ID]
	if k.limit != s.Limit || k.start != s.Span.Start || k.until != 0 && w.cfg.Clock() >= k.until {
		k = known{limit: s.Limit, start: s.Span.Start}
	}
	s.Bits &^= k.bits
	if s.Bits == 0 || len(w.pending) >= mostClaims {
		return
	}
	if !found && len(w.known) >= mostKnown {
		clear(w.known)
	}
	k.bits |= s.Bits
	w.known[s.ID] = k
	w.pending = append(w.pending, claim[O]{Sighting: s})
	if !w.working {
		w.working = true
		w.cfg.Tasks.Go(w.work)
	}
}

// work makes the pending claims. One that fails is made again, behind the others.
func (w *Watch[O]) work() {
	first := min(w.cfg.Pause, longestPause)
	pause := first
	for {
		c, ok := w.next()
		if !ok {
			return
		}
		err := c.settle(&w.cfg)
		switch {
		case err == nil && c.Bits == 0:
			pause = first
		case err == nil && !c.failed:
			w.retry(c.ID)
		case c.isLate() || !w.cfg.Tasks.Sleep(pause):
			w.forget(c.ID)
		default:
			c.failed = true
			pause = min(2*pause, longestPause)
			w.again(c)
		}
	}
}

// next takes the first of the pending claims. If there is none, the work ends.
func (w *Watch[O]) next() (c claim[O], ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.pending) == 0 {
		w.pending, w.working = nil, false
		return c, false
	}
	c = w.pending[0]
	w.pending = w.pending[1:]
	return c, true
}

// again puts a claim behind the others.
func (w *Watch[O]) again(c claim[O]) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pending = append(w.pending, c)
}

// forget lets a later decision claim the thresholds of a state again. After the tasks are stopped,
// it drops the other claims too while the store fails.
func (w *Watch[O]) forget(id uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.known, id)
	if w.cfg.Tasks.Stopped() {
		w.pending = nil
	}
}

// retry lets a decision claim the thresholds again when the claims of other processes have ended.
func (w *Watch[O]) retry(id uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if k, ok := w.known[id]; ok {
		k.until = w.cfg.Clock() + claimLasts.Microseconds()
		w.known[id] = k
	}
}
