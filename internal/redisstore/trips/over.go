package trips

import (
	"runtime"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/deadline"
)

// This file says when a call is over that has no answer; docs/architecture.md draws its states.

// fired doubts a server that is silent. A call that waits behind others, as for a connection of a pool
// that has none, learns from the probe whether the server answers.
func (q *queue) fired() {
	q.mu.Lock()
	silent := ""
	for _, k := range q.waiting {
		if time.Since(k.entered) >= q.timeout/2 && !q.answers(k.entered, k.entered) {
			silent = k.Outermost
		}
	}
	for t := range q.trips {
		if q.isSilent(t.sent) {
			silent = t.calls[0].Outermost
		}
	}
	q.mu.Unlock()
	if silent != "" {
		q.node.doubt(silent)
	}
}

// tick ends the calls whose time is over. In a process that starves they have more time: an answer
// may have come that no goroutine could read yet.
func (q *queue) tick(late time.Duration) {
	q.mu.Lock()
	q.beats(late)
	q.mu.Unlock()
	q.end()
}

// end ends the calls whose time is over.
func (q *queue) end() {
	q.mu.Lock()
	ends := func(k *Call, since time.Time) bool {
		why := q.over(k, since)
		if why == nil {
			return k.state == stateLeft
		}
		q.ends(why)
		q.left(k, why)
		k.told <- struct{}{}
		return true
	}
	for t := range q.trips {
		if t.written { // otherwise its sender reads the calls
			for _, k := range t.calls {
				ends(k, t.sent)
			}
		}
	}
	q.waiting = slices.DeleteFunc(q.waiting, func(k *Call) bool { return ends(k, k.entered) })
	q.unsure = slices.DeleteFunc(q.unsure, func(k *Call) bool { return ends(k, k.sent) })
	overload := q.overload()
	q.rests()
	q.mu.Unlock()
	if overload {
		q.node.overloaded()
	}
}

// over returns why a call's time is over, or nil. Since is when it was sent, or when it began to
// wait.
func (q *queue) over(k *Call, since time.Time) error {
	if k.state != stateSent && k.state != stateWaits && k.state != stateUnsure {
		return nil
	}
	switch open := !k.Insists && q.node.circuit.IsOpen(); {
	case open && k.state == stateWaits:
		return ErrOpen
	case open:
		return ErrUnanswered
	}
	answers := q.answers(k.entered, since)
	limit := q.limit(k, since, answers)
	switch now := time.Now(); {
	case now.Add(q.pulse.Every).Before(limit):
		return nil
	case answers || q.isProven() || q.excuses(k, now):
		return ErrOverloaded
	}
	return errSilent
}

// excuses reports whether this process did not run for so long that the call has not been silent for
// its time and for another Timeout. The answer may have come: it passes several goroutines, and each
// takes a turn, as a beat does. If the server is dead, the probe opens the circuit.
func (q *queue) excuses(k *Call, now time.Time) bool {
	lost := q.pulse.Lost() - k.lost
	return lost > 0 && now.Before(k.End.Add(q.timeout+lost))
}

// overtaken reports whether a call that was sent at a time takes long, and the server has answered a later
// one: its connection may be dead. Time that this process has lost does not count: lost is health.lost at
// that time. Where turns are long nothing tells, because answers are read in any order.
func (q *queue) overtaken(sent time.Time, lost, long time.Duration) bool {
	return q.heard.After(sent) && time.Since(sent)-(q.pulse.Lost()-lost) >= long && !q.hasLongTurns()
}

// doubtful reports whether a call that is not answered in time may have been answered, because this
// process did not run.
func (q *queue) doubtful(k *Call, since time.Time) bool {
	return (q.starves() || q.pulse.Lost() > k.lost) && !q.answers(k.entered, since) &&
		deadline.Err(k.ctx) == nil
}

// limit returns when a call's time is over.
func (q *queue) limit(k *Call, since time.Time, answers bool) time.Time {
	patience := q.node.link.patience
	if k.Insists {
		patience += q.delay()
	}
	limit, last := k.End, k.entered.Add(patience)
	switch {
	case k.state == stateUnsure && answers:
		return k.entered
	case k.state == stateUnsure:
		return last
	case k.state == stateSent && k.patient(): // it may have waited in line for longer than its time
		limit = later(limit, since.Add(q.timeout))
	case k.state == stateWaits && answers && k.patient():
		limit = last
	case k.state == stateWaits && answers:
		limit = k.entered.Add(k.End.Sub(k.entered) / 2)
	}
	if q.starves() && !(k.state == stateSent && q.overtaken(since, k.lost, q.timeout)) {
		limit = later(limit, last)
	}
	return limit
}

// later returns the later one of two times.
func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// leave takes back a call whose caller's context has ended, unless it is answered.
func (q *queue) leave(k *Call) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for k.state == statePacked {
		q.yield()
	}
	if k.state == stateAnswered || k.state == stateLeft { // just now
		<-k.told
		return
	}
	q.remove(k)
	q.left(k, k.ctx.Err())
}

// yield lets other goroutines run, without the lock.
func (q *queue) yield() {
	q.mu.Unlock()
	runtime.Gosched()
	q.mu.Lock()
}

// heardSince reports whether the server has answered a call that was sent after a probe had last asked
// it, or had begun, if it could not connect. Where turns are long, any answer that was read will do then.
func (q *queue) heardSince(begun time.Time, asked *time.Time) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if asked != nil {
		return q.heard.After(*asked)
	}
	return q.heard.After(begun) || q.hasLongTurns() && q.answered.After(begun)
}

// patience returns how long a round trip may take now.
func (q *queue) patience() time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.node.link.patience + q.delay()
}

// hear says that the server has answered the probe that began at that time. The client lets a round
// trip on a dead connection go on for as long as patience. So one that is overtaken makes room for
// another.
func (q *queue) hear(begun time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.proven = time.Now()
	q.hears(begun, q.proven)
	for t := range q.trips {
		if !t.beside && len(q.trips) <= maxTrips && q.overtaken(t.sent, t.lost, q.timeout/2) {
			t.beside = true
			q.senders--
			q.node.stale.Store(true)
		}
	}
}

// resume has the calls end or go on that wait, after each probe. A sender leaves them whose server is
// known to fail.
func (q *queue) resume() {
	q.end()
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) > 0 {
		q.start(Decisions)
	}
}
