package core

import (
	"errors"
	"slices"
	"sync"

	"github.com/headgate/headgate/internal/algorithm"
)

// errReply is a reply that is not what the script's contract says.
var errReply = errors.New("core: the script's reply has a wrong shape")

// errPeriod is a clock that went from one period of a calendar to another whenever it was asked.
var errPeriod = errors.New("core: redis's clock leaps from period to period")

// batch is the requests that share one round trip, as the arguments of one script call. One that also takes a slot is
// alone.
type batch struct {
	requests []request
	keys     []string
	limits   []*charge // one charge of each distinct limit
	limitAt  []int64   // where it stands in ARGV
	ints     []int64
	names    []string
	args     []any
}

var batches = sync.Pool{New: func() any { return new(batch) }}

// encode writes the arguments of EVALSHA or EVAL as lua/decide.lua reads them. What is not constant goes by pointers
// into ints and names, because a pointer in an interface costs no allocation; so these must not grow after the
// first. A key goes by itself: go-redis reads the first one to find its slot.
func (b *batch) encode(sha *string, requests []request) {
	b.requests = requests
	b.keys, b.limits = b.keys[:0], b.limits[:0]
	room := 5
	for i := range requests {
		room += 2
		if s := requests[i].slot; s != nil {
			room += 5 + 2*len(s.ask.Levels)
		}
		for j := range requests[i].charges {
			room += 5
			b.keyIndex(&requests[i].charges[j])
			b.limitIndex(&requests[i].charges[j])
		}
	}
	room += 24 * len(b.limits)
	b.ints = slices.Grow(b.ints[:0], room)
	b.limitAt = slices.Grow(b.limitAt[:0], len(b.limits))[:len(b.limits)]
	b.names = slices.Grow(b.names[:0], len(b.limits)+len(requests))

	b.args = append(b.args[:0], "evalsha", sha)
	keys := b.next()
	for _, k := range b.keys {
		b.args = append(b.args, k)
	}
	slot := requests[0].slot
	if slot != nil {
		b.args = appendLeaseKeys(b.args, slot.scope)
	}
	*keys = int64(len(b.args) - 3)
	argv := len(b.args) // ARGV[1], in args
	requestsAt := b.next()
	from, until := int64(0), int64(algorithm.MaxUnits)
	for _, c := range b.limits {
		if p, ok := c.limit.(algorithm.Periodic); ok {
			f, u := p.Period()
			from, until = max(from, f), min(until, u)
		}
	}
	b.int(from)
	b.int(until)
	for i, c := range b.limits {
		b.limitAt[i] = int64(len(b.args) - argv + 1)
		b.name(c.limit.Script())
		shadow := int64(0)
		if c.policy.shadow {
			shadow = 1
		}
		b.int(shadow)
		from := len(b.ints)
		b.ints = c.limit.Parameters(b.ints)
		for i := range b.ints[from:] {
			b.args = append(b.args, &b.ints[from+i])
		}
	}
	*requestsAt = int64(len(b.args) - argv + 1)
	for i := range requests {
		r := &requests[i]
		if r.slot != nil {
			b.name(string(algorithmPeek)) // the script decides then
		} else {
			b.name(string(r.op))
		}
		b.int(int64(len(r.charges)))
		if r.op == algorithmAtMost || r.op == algorithmReserve || r.op == algorithmGive {
			b.int(r.bound)
		}
		for i := range r.charges {
			c := &r.charges[i]
			b.int(b.keyIndex(c))
			b.int(b.limitAt[b.limitIndex(c)])
			b.int(c.cost.Whole)
			b.int(c.cost.Fraction)
			if r.op == algorithmGive {
				b.int(c.receipt())
			}
		}
	}
	if slot != nil {
		from := len(b.args)
		b.args = appendAcquire(append(b.args, "acquire"), slot.ask)
		b.int(int64(len(b.args) - from))
	}
}

// next appends an integer to be set later.
func (b *batch) next() *int64 {
	b.ints = append(b.ints, 0)
	p := &b.ints[len(b.ints)-1]
	b.args = append(b.args, p)
	return p
}

func (b *batch) int(n int64) { *b.next() = n }

func (b *batch) name(s string) {
	b.names = append(b.names, s)
	b.args = append(b.args, &b.names[len(b.names)-1])
}

// keyIndex is the index of the charge's key in KEYS, from 1.
func (b *batch) keyIndex(c *charge) int64 {
	for i, k := range b.keys {
		if k == c.name {
			return int64(i + 1)
		}
	}
	b.keys = append(b.keys, c.name)
	return int64(len(b.keys))
}

// limitIndex is the index of the charge's limit among the batch's limits.
func (b *batch) limitIndex(c *charge) int {
	for i, l := range b.limits {
		if l.limit == c.limit && l.policy.shadow == c.policy.shadow {
			return i
		}
	}
	b.limits = append(b.limits, c)
	return len(b.limits) - 1
}

// decode hands the script's reply to the requests.
func (b *batch) decode(reply []int64) error {
	for i := range b.requests {
		r := &b.requests[i]
		if len(reply) == 0 {
			return errReply
		}
		r.verdict, reply = reply[0], reply[1:]
		if r.op == algorithmGive {
			continue
		}
		for i := range r.charges {
			n := r.charges[i].limit.Fields()
			if len(reply) < n {
				return errReply
			}
			r.charges[i].reply, reply = reply[:n:n], reply[n:]
		}
		r.settle()
	}
	if s := b.requests[0].slot; s != nil && len(reply) > 0 {
		var err error
		s.grant, err = granted(reply, s.ask)
		s.answered = err == nil
		return err
	}
	if len(reply) > 0 {
		return errReply
	}
	return nil
}

// free forgets the requests and makes the batch fit for another use.
func (b *batch) free() {
	b.requests = nil
	clear(b.keys)
	clear(b.limits)
	clear(b.args)
	batches.Put(b)
}
