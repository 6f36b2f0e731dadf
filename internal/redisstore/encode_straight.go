package redisstore

import (
	"github.com/headgate/headgate/internal/algorithm"
	"github.com/headgate/headgate/internal/redisstore/trips"
)

// form says which script decides a call, and how it is asked. Calls share a script with those of the
// same form.
type form struct {
	short       bool          // the short form of the script of all algorithms
	straight    *trips.Script // that of one algorithm; nil for the one of all
	from, until int64         // the period of a calendar's limit
}

func (s *schema) formOf(d *Decision) (f form) {
	r := &d.requests[0]
	if f.short = d.merges && !d.alone && plainBuckets(r.Charges); f.short {
		return f
	}
	if len(d.requests) > 1 || len(r.Charges) > 1 || r.Op > algorithm.Peek || d.alone {
		return f
	}
	switch l := r.Charges[0].Limit.(type) {
	case *algorithm.FixedWindow:
		f.straight = s.window
	case *algorithm.Period:
		f.straight = s.window
		f.from, f.until = l.Period()
	case *algorithm.SlidingWindow:
		f.straight = s.slidingWindow
	}
	return f
}

// straight returns the script of one algorithm that decides the batch, or nil. In it no key may stand
// twice.
func (b *batch) straight() *trips.Script {
	if b.mixed || len(b.keys) < len(b.entries) {
		return nil
	}
	return b.calls[0].form.straight
}

// straightRun writes a run of n as lua/decide/straight.lua reads it.
func (b *batch) straightRun(first, n int) {
	e := &b.entries[first]
	c := e.request.Charges[0]
	op, times := e.asks()
	switch op {
	case algorithm.Decide:
		times = 1
	case algorithm.Peek:
		times = 0
	}
	if times == 1 && c.Cost.Whole == 1 {
		b.int(int64(n))
	} else {
		b.int(-int64(n))
		b.int(c.Cost.Whole)
		b.int(times)
	}
	b.numbers = c.Limit.Parameters(b.numbers[:0])
	for _, p := range b.numbers[1:] {
		b.int(p)
	}
}
