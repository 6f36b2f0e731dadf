package matrix

import (
	"cmp"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/core"
)

// tally is what a process has seen in one mode.
type tally struct {
	admitted atomic.Int64 // of the contended key, by Redis or by a share
	asked    []bool       // by key that is used once: whether Redis admitted it

	mu        sync.Mutex
	decisions int
	longest   time.Duration
	degraded  time.Time // when a decision last was not Redis's
	wrong     error     // the first error that is no misconfiguration
	refused   error     // the first that is
	cause     error     // why a share first decided
}

// note counts a decision and reports whether it admits.
func (t *tally) note(d core.Decision, err error) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.decisions++
	if err != nil || d.Source != core.SourceRedis {
		t.degraded = time.Now()
	}
	if d.Source == core.SourceLocal {
		t.cause = cmp.Or(t.cause, d.Cause)
	}
	switch {
	case err == nil:
	case errors.Is(err, core.ErrMisconfigured):
		t.refused = cmp.Or(t.refused, err)
	default:
		t.wrong = cmp.Or(t.wrong, err)
	}
	return err == nil && d.Allowed
}

func (t *tally) took(d time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.longest = max(t.longest, d)
}

// last returns when a decision last was not Redis's.
func (t *tally) last() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.degraded
}
