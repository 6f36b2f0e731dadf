package redisstore

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/algorithm"
	"github.com/headgate/headgate/internal/redisstore/trips"
	"github.com/headgate/headgate/internal/request"
)

// ErrPeriod is the error of a server whose clock went to another period of a calendar each time it
// was asked.
var ErrPeriod = errors.New("redisstore: Redis's clock leaps from period to period")

// attempts is how often a request is sent if a calendar's period ends on the way.
const attempts = 3

// Decide implements request.Store. Requests that take a slot share no script with others.
func (s *Store) Decide(ctx context.Context, requests []request.Request) error {
	d := s.NewDecision(requests)
	defer d.release()
	d.Bound(ctx, s.Timeout)
	return s.outcome(ctx, s.send(ctx, d))
}

// Insist is Decide for a server that is known to fail, and for one whose connections are slow to
// begin.
func (s *Store) Insist(ctx context.Context, requests []request.Request) error {
	d := s.NewDecision(requests)
	defer d.release()
	d.Insists = true
	d.End = time.Now().Add(s.Servers.Patience())
	return s.send(ctx, d)
}

func (s *Store) send(ctx context.Context, d *Decision) error {
	for range attempts {
		if err := s.Servers.Do(ctx, &d.Call); err != nil {
			return err
		}
		if decided, err := d.Decode(); decided || err != nil {
			return err
		}
	}
	return ErrPeriod
}

// Decision is a call that carries the requests of one caller.
type Decision struct {
	trips.Call
	store    *Store
	requests []request.Request
	form     form
	asks     int  // the request has that many charges which only ask whether a Block blocks
	merges   bool // the one request merges with equal ones
	words    int  // of the reply
	brief    int  // the number of words of a brief reply, or 0 if the script may give none

	reply []int64 // until it is decoded
}

// form says which script decides a call, and how it is asked. Calls of one form share the script.
type form struct {
	script      *trips.Script
	alone       bool  // the script decides one request
	asks        bool  // lua/decide/asks.lua asks Blocks before
	from, until int64 // the period of a calendar's limit, which lua/decide/straight.lua is asked for
}

// NewDecision returns the call of requests on keys of one hash slot. It has no time yet.
func (s *Store) NewDecision(requests []request.Request) *Decision {
	if now := s.serverTime.Load(); now != 0 {
		// One limit of a period that has passed would keep the whole batch from being decided.
		renewPeriods(requests, now)
	}
	d := s.decisions.Get().(*Decision)
	first := &requests[0]
	*d = Decision{Call: d.Call, store: s, requests: requests}
	if len(requests) == 1 && len(first.Charges) > 1 {
		d.askBlocks(first)
	}
	d.merges = len(requests) == 1 && first.Merges()
	d.Outermost = first.Charges[0].Outermost()
	if d.form = s.formOf(d); d.form.script == s.buckets {
		d.brief = len(first.Sent())
	}
	for i := range requests {
		r := &requests[i]
		d.words += r.Words()
		if r.Op == algorithm.Give { // its reply is shorter than its work
			d.Weight += 5 * len(r.Charges)
		}
	}
	d.Weight += d.words + first.Asked
	if d.form.alone {
		d.weighAlone(first.Slot)
	}
	return d
}

// formOf returns the form of a call. A batch of calls may need the general one; see batch.suits.
func (s *Store) formOf(d *Decision) form {
	r := &d.requests[0]
	f := form{script: s.general, asks: r.Asked > 0}
	switch {
	case d.merges && plainBuckets(r.Sent()):
		f.script = s.buckets
	case len(r.Answer) > 0:
		f.script, f.alone = s.answer, true
	case r.Alone():
		f.script, f.alone = s.admit, true
	case len(d.requests) == 1 && len(r.Sent()) == 1 && r.Op <= algorithm.Peek:
		f.straight(s, r)
	}
	return f
}

// plainBuckets reports whether lua/decide/buckets.lua can decide these charges. Those of one key stand
// beside each other.
func plainBuckets(charges []*request.Charge) bool {
	for i, c := range charges {
		sameKey := func(o *request.Charge) bool { return o.Path == c.Path }
		if c.Bucket == "" || i > 1 && !sameKey(charges[i-1]) && slices.ContainsFunc(charges[:i], sameKey) {
			return false
		}
	}
	return true
}

// straight has lua/decide/straight.lua decide a request of one charge if it can.
func (f *form) straight(s *Store, r *request.Request) {
	switch l := r.Charges[0].Limit.(type) {
	case *algorithm.FixedWindow:
		f.script = s.window
		f.from, f.until = algorithm.Period(l)
	case *algorithm.SlidingWindow:
		f.script = s.slidingWindow
	case *algorithm.TokenBucket:
		if !r.Receipts {
			f.script = s.tokenBucket
		}
	case *algorithm.SlidingLog:
		f.script = s.slidingLog
	}
}

// askBlocks lets the script ask the Blocks of a request by their names alone, unless one of them had a
// state when it was asked last.
func (d *Decision) askBlocks(r *request.Request) {
	r.Asked = 0
	if r.Alone() {
		return
	}
	d.asks = r.Asks()
	known := func(c *request.Charge) bool { return d.store.declines.has(c.StateHash()) }
	if !slices.ContainsFunc(r.Last(d.asks), known) {
		r.Asked = d.asks
	}
}

// askAll has the general script decide, which gets the limits of the Blocks too.
func (d *Decision) askAll() {
	r := &d.requests[0]
	r.Asked = 0
	d.merges, d.form, d.brief = r.Merges(), form{script: d.store.general}, 0
	d.words = r.Words()
	d.Weight = d.words
}

// noteBlocks notes which of the Blocks that a request only asks have a state.
func (d *Decision) noteBlocks(r *request.Request) {
	for _, c := range r.Last(d.asks) {
		state := !slices.Equal(c.Reply, c.Limit.(*algorithm.Block).Untouched())
		d.store.declines.note(c.StateHash(), state)
	}
}

// weighAlone completes the call of a request that shares its script with no other.
func (d *Decision) weighAlone(slot *request.Slot) {
	d.Weight += leaseWeight
	if slot != nil {
		d.Weight += leaseWeight
		d.Acquires = slot.Request.ID
	}
}

// release lets the decision be used again.
func (d *Decision) release() {
	if d.Reset() {
		d.requests = nil
		d.store.decisions.Put(d)
	}
}

// Joins implements trips.Parcel.
func (d *Decision) Joins(o trips.Parcel) bool {
	other, ok := o.(*Decision)
	return ok && d.form == other.form && !d.form.alone
}

// Decode hands the reply to the requests. If nothing ran, because the script declined or the period of a
// limit has passed, Decode reports false, and the caller sends the decision again: by the general script,
// or under the limits of now.
func (d *Decision) Decode() (decided bool, err error) {
	if d.isDeclined(d.reply) {
		d.askAll()
		return false, nil
	}
	d.requests[0].SettleAsked()
	if d.brief > 0 && isBrief(d.reply) {
		d.requests[0].SettleBrief(d.reply)
		return true, nil
	}
	now, passed := periodPassed(d.reply)
	if !passed {
		return true, d.decode()
	}
	d.store.serverTime.Store(now)
	if d.requests[0].IsBound() {
		return false, request.ErrPeriod
	}
	renewPeriods(d.requests, now)
	if d.form.script != d.store.general { // which a call that was declined stays with
		d.form = d.store.formOf(d)
	}
	return false, nil
}

// isReply reports whether a reply has the form of one to this decision. Nobody decodes that of a probe.
// The caller may have left, so it reads no request.
func (d *Decision) isReply(reply []int64) bool {
	return d.form.alone || len(reply) == d.words || d.brief > 0 && len(reply) == d.brief && isBrief(reply) ||
		d.isDeclined(reply)
}

func (d *Decision) decode() error {
	reply := d.reply
	for i := range d.requests {
		rest, ok := d.requests[i].Settle(reply)
		if !ok {
			return trips.ErrReply
		}
		reply = rest
	}
	if d.asks > 0 && !d.form.asks {
		d.noteBlocks(&d.requests[0])
	}
	if s := d.requests[0].Slot; s != nil && len(reply) > 0 {
		return d.store.decodeSlot(s, reply)
	}
	if len(reply) > 0 {
		return trips.ErrReply
	}
	return nil
}

// renewPeriods replaces the limits whose period does not hold now, except in a request that is
// meant for that period.
func renewPeriods(requests []request.Request, now int64) {
	for i := range requests {
		if requests[i].IsBound() {
			continue
		}
		for _, c := range requests[i].Charges {
			c.Limit = algorithm.At(c.Limit, now)
		}
	}
}

// periodPassed reports whether nothing ran because the limits of a batch do not hold at the
// server's time, which it returns.
func periodPassed(reply []int64) (now int64, passed bool) {
	if len(reply) == 2 && reply[0] == -1 {
		return reply[1], true
	}
	return 0, false
}

// isDeclined reports whether nothing ran, because a Block has a state that was asked by its name alone,
// or a bucket one that only the general script reads.
func (d *Decision) isDeclined(reply []int64) bool {
	return (d.form.asks || d.form.script == d.store.buckets) && len(reply) == 1 && reply[0] == -1
}

// isBrief reports whether a reply is one for request.SettleBrief. No verdict is as low, nor is the -1
// of a period that has passed.
func isBrief(reply []int64) bool {
	return len(reply) > 0 && !slices.ContainsFunc(reply, func(n int64) bool { return n >= -1 })
}
