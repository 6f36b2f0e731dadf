package redisstore

import (
	"slices"

	"github.com/headgate/headgate/internal/algorithm"
	"github.com/headgate/headgate/internal/redisstore/trips"
	"github.com/headgate/headgate/internal/request"
)

// Command implements trips.Batch. It writes the arguments of EVALSHA as the contracts at the heads of
// lua/decide, lua/admit/admit.lua and lua/once/answer.lua have them.
func (b *batch) Command() trips.Command {
	first := b.calls[0]
	script, isPlain := first.form.script, first.form.script == b.store.buckets && len(b.calls) == 1
	if isPlain {
		b.entries = append(b.entries, entry{request: &first.requests[0], callers: 1})
	} else {
		b.collect()
		if !b.suits(script) {
			script = b.store.general
		}
	}
	b.begin(script)
	switch script {
	case b.store.buckets:
		b.bucketArguments()
	case b.store.answer:
		b.answer(&first.requests[0])
	case b.store.admit:
		b.alone(&first.requests[0])
	case b.store.general:
		b.keyNames()
		b.limitList()
		b.runs(b.generalRun)
	default: // lua/decide/straight.lua for one algorithm
		b.keyNames()
		b.runs(b.straightRun)
	}
	command := b.command(b.store)
	command.Number = isPlain && len(first.requests[0].Sent()) == 1
	return command
}

// suits reports whether the script of the calls can decide what they are together.
func (b *batch) suits(script *trips.Script) bool {
	switch script {
	case b.store.general, b.store.admit, b.store.answer:
		return true
	case b.store.buckets:
		return !b.mixed
	case b.store.tokenBucket: // a bucket is charged once, because its costs may have fractions
		merged := func(e entry) bool { return e.callers > 1 }
		if slices.ContainsFunc(b.entries, merged) || b.repeats() {
			return false
		}
	}
	return !b.mixed && len(b.keys) == len(b.entries) // in lua/decide/straight.lua no key may stand twice
}

// keyNames writes the number of keys and their names. Those of Blocks that are only asked are the last.
func (b *batch) keyNames() {
	if b.calls[0].form.asks {
		b.addAsked()
	}
	b.int(int64(len(b.keys)))
	for _, c := range b.keys {
		b.name(b.store.Prefix + c.Path + c.Stored)
	}
}

// addAsked adds the keys of Blocks that are only asked.
func (b *batch) addAsked() {
	others := len(b.keys)
	for _, e := range b.entries {
		for _, c := range e.request.Last(e.request.Asked) {
			if !slices.ContainsFunc(b.keys[others:], c.SameState) {
				b.keys = append(b.keys, c)
			}
		}
	}
	b.asked = len(b.keys) - others
}

// runs writes the entries as runs of those that differ in their keys alone. write writes a run of n,
// which begins with an entry.
func (b *batch) runs(write func(first, n int)) {
	for i, n := 0, 0; i < len(b.entries); i += n {
		for n = 1; i+n < len(b.entries) && b.continues(i, i+n); n++ {
		}
		write(i, n)
	}
}

// continues reports whether an entry continues the run that begins with entry first: it asks the same
// of the keys that follow.
func (b *batch) continues(first, i int) bool {
	e, f := &b.entries[i], &b.entries[first]
	op, bound := e.asks()
	firstOp, firstBound := f.asks()
	count := len(e.request.Sent())
	if op != firstOp || bound != firstBound || op == algorithm.Give ||
		count != len(f.request.Sent()) ||
		e.request.Receipts != f.request.Receipts {
		return false
	}
	for i, c := range e.request.Sent() {
		j := e.first + i
		if b.keyOf[j] != b.keyOf[j-count]+count || b.limitOf[j] != b.limitOf[j-count] ||
			c.Cost != f.request.Charges[i].Cost || e.beginsKey(i) != f.beginsKey(i) {
			return false
		}
	}
	return true
}

// beginsKey reports whether charge i is on another key than the one before it.
func (e *entry) beginsKey(i int) bool {
	return i == 0 || e.request.Charges[i-1].Path != e.request.Charges[i].Path
}

// asks returns the entry's operation and bound in the script.
func (e *entry) asks() (algorithm.Operation, int64) {
	switch {
	case e.request.Op.Adjusts():
		return algorithm.Peek, 0 // lua/admit/admit.lua adjusts
	case e.callers > 1:
		return algorithm.AtMost, int64(e.callers)
	}
	return e.request.Op, e.request.Bound
}

// limitList writes where the runs begin, the time for which the limits hold, how keys are read, and the
// limits.
func (b *batch) limitList() {
	argv := len(b.words) // of ARGV[1]
	runsAt := b.later()
	from, until, atOnce := int64(0), int64(0), len(b.keys)-b.asked > 1
	for _, c := range b.limits {
		if f, u := algorithm.Period(c.Limit); u > 0 {
			if from = max(from, f); until == 0 || u < until {
				until = u
			}
		}
		if _, ok := c.Limit.(*algorithm.SlidingLog); ok {
			atOnce = false // its values may be long
		}
	}
	if k := b.limits[0].Adjustment; k != nil && k.Until > 0 {
		from, until = k.From, k.Until
	}
	b.int(from)
	b.int(until)
	b.flag(atOnce)
	for _, c := range b.limits {
		b.limitAt = append(b.limitAt, int64(len(b.words)-argv+1))
		b.name(c.Limit.Script())
		b.flag(c.Shadow)
		b.numbers = c.Limit.Parameters(b.numbers[:0])
		for _, n := range b.numbers {
			b.int(n)
		}
		if c.Label != "" {
			b.name(c.Label)
		}
	}
	b.set(runsAt, int64(len(b.words)-argv+1))
}

// generalRun writes a run of n.
func (b *batch) generalRun(first, n int) {
	e := &b.entries[first]
	r := e.request
	op, bound := e.asks()
	b.name(op.String())
	b.int(int64(n))
	b.int(int64(len(r.Sent())))
	b.flag(r.Receipts)
	if op == algorithm.AtMost || op == algorithm.Reserve {
		b.int(bound)
	}
	for i, c := range r.Sent() {
		b.int(int64(b.keyOf[e.first+i]) + 1)
		b.int(b.limitAt[b.limitOf[e.first+i]])
		b.int(c.Cost.Whole)
		b.int(c.Cost.Fraction)
		if op == algorithm.Give {
			b.int(c.Receipt())
		}
	}
}

// alone writes KEYS and ARGV of lua/admit/admit.lua, which decides one request.
func (b *batch) alone(r *request.Request) {
	b.keyNames()
	for _, c := range b.keys {
		if c.HoldFor > 0 {
			b.name(b.store.Prefix + c.Path + c.Suffix + request.HoldsSuffix)
		}
	}
	for _, c := range b.keys {
		if c.Adjusts {
			b.name(b.store.Prefix + c.Path + c.Suffix + request.AdjustmentsSuffix)
		}
	}
	if r.Slot != nil {
		b.leaseKeys(r.Slot.Scope)
	}
	b.set(numberAt, int64(len(b.words)-numberAt-1))
	b.limitList()
	if r.Op != algorithm.Settle && r.Op != algorithm.Renew { // no requests of lua/decide/decide.lua
		b.generalRun(0, 1)
	}
	b.admission(r)
}

// answer writes KEYS and ARGV of lua/once/answer.lua, which decides one request.
func (b *batch) answer(r *request.Request) {
	b.keyNames()
	b.name(answerName(b.store.Prefix, b.keys[0]))
	b.set(numberAt, int64(len(b.words)-numberAt-1))
	b.limitList()
	b.runs(b.generalRun)
	b.int(max(1, r.AnswerFor/1000)) // not longer than the state, if that lasts for a millisecond
	b.words = append(b.words, r.Answer)
}
