package trips

import (
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/deadline"
)

// pending is the calls without an answer: they wait, or are part of a trip in flight. It ends the
// calls whose time is over, and lets callers leave when their own contexts end. The caller of a call
// that waits leaves uncharged. The outcome of a call that was sent is unknown then.
type pending struct {
	link *link
	node *node

	mu sync.Mutex
	line
	trips map[*trip]struct{}
	// unsure are calls whose connection said nothing in time while this process did not run. Whether
	// that is overload or an outage, other calls and the probe tell.
	unsure []*Call
	health
	pulse deadline.Pulse
	holds bool // the pulse, while there are calls
}

func (p *pending) init(l *link, n *node) {
	p.link, p.node = l, n
	p.strays = make(map[string]struct{})
	p.trips = make(map[*trip]struct{})
	// A beat ends the calls whose time ends before the next beat.
	p.timeout, p.pulse.Every = l.Timeout, l.Timeout/8
	p.pulse.Fired, p.pulse.Look = p.fired, p.tick
}

// beat has the pulse beat while there are calls.
func (p *pending) beat() {
	if !p.holds {
		p.holds = true
		p.pulse.Hold()
	}
}

// rests has the pulse rest if there are none.
func (p *pending) rests() {
	if p.holds && len(p.waiting) == 0 && len(p.trips) == 0 && len(p.unsure) == 0 {
		p.holds = false
		p.pulse.Drop()
	}
}

// fired doubts a server that is silent. A call that waits behind others, as for a connection of a pool
// that has none, learns from the probe whether the server answers.
func (p *pending) fired() {
	p.mu.Lock()
	silent := ""
	for _, k := range p.waiting {
		if time.Since(k.entered) >= p.timeout/2 && !p.answers(k.entered, k.entered) {
			silent = k.Outermost
		}
	}
	for t := range p.trips {
		if p.isSilent(t.sent) {
			silent = t.calls[0].Outermost
		}
	}
	p.mu.Unlock()
	if silent != "" {
		p.node.doubt(silent)
	}
}

// tick ends the calls whose time is over. In a process that starves they have more time: an answer
// may have come that no goroutine could read yet.
func (p *pending) tick(late time.Duration) {
	p.mu.Lock()
	p.beats(late, p.pulse.Turn())
	p.rests()
	p.mu.Unlock()
	p.end()
}

// end ends the calls whose time is over.
func (p *pending) end() {
	p.mu.Lock()
	ends := func(k *Call, since time.Time) bool {
		why := p.over(k, since)
		if why == nil {
			return k.state == stateLeft
		}
		p.ends(why)
		p.line.leave(k, why)
		k.told <- struct{}{}
		return true
	}
	for t := range p.trips {
		if t.written { // otherwise its sender reads the calls
			for _, k := range t.calls {
				ends(k, t.sent)
			}
		}
	}
	p.waiting = slices.DeleteFunc(p.waiting, func(k *Call) bool { return ends(k, k.entered) })
	p.unsure = slices.DeleteFunc(p.unsure, func(k *Call) bool { return ends(k, k.sent) })
	overload := p.overload()
	p.mu.Unlock()
	if overload {
		p.node.overloaded()
	}
}

// over returns why a call's time is over, or nil. Since is when it was sent, or when it began to
// wait.
func (p *pending) over(k *Call, since time.Time) error {
	if k.state != stateSent && k.state != stateWaits && k.state != stateUnsure {
		return nil
	}
	switch open := !k.Insists && p.node.circuit.IsOpen(); {
	case open && k.state == stateWaits:
		return ErrOpen
	case open:
		return ErrUnanswered
	}
	answers := p.answers(k.entered, since)
	limit := p.limit(k, since, answers)
	switch now := time.Now(); {
	case now.Add(p.pulse.Every).Before(limit):
		return nil
	case answers || p.isProven() || p.excuses(k, now):
		return ErrOverloaded
	}
	return errSilent
}

// excuses reports whether this process did not run for so long that the call has not been silent for
// its time and for another Timeout. The answer may have come: it passes several goroutines, and each
// takes a turn, as a beat does. If the server is dead, the probe opens the circuit.
func (p *pending) excuses(k *Call, now time.Time) bool {
	lost := p.pulse.Lost() - k.lost
	return lost > 0 && now.Before(k.End.Add(p.timeout+lost))
}

// overtaken reports whether a call that was sent at a time takes long, and the server has answered a later
// one: its connection may be dead. Time that this process has lost does not count: lost is health.lost at
// that time. Where turns are long nothing tells, because answers are read in any order.
func (p *pending) overtaken(sent time.Time, lost, long time.Duration) bool {
	return p.heard.After(sent) && time.Since(sent)-(p.pulse.Lost()-lost) >= long && !p.hasLongTurns()
}

// doubtful reports whether a call that is not answered in time may have been answered, because this
// process did not run.
func (p *pending) doubtful(k *Call, since time.Time) bool {
	return (p.starves() || p.pulse.Lost() > k.lost) && !p.answers(k.entered, since) &&
		deadline.Err(k.ctx) == nil
}

// limit returns when a call's time is over.
func (p *pending) limit(k *Call, since time.Time, answers bool) time.Time {
	limit, turn := k.End, k.turn(p.link.patience)
	switch {
	case answers && k.state == stateUnsure:
		return k.entered
	case k.state == stateUnsure:
		return k.entered.Add(p.link.patience)
	case answers && k.state == stateWaits:
		limit = turn
	case k.state == stateSent && limit.Before(turn): // it may have waited for longer than its end
		if whole := since.Add(p.timeout); limit.Before(whole) {
			limit = whole
		}
	}
	patience := p.link.patience
	if k.Insists {
		patience += p.excuse()
	}
	if last := k.entered.Add(patience); limit.Before(last) && p.starves() &&
		!(k.state == stateSent && p.overtaken(since, k.lost, p.timeout)) {
		limit = last
	}
	return limit
}

// leave takes back a call whose caller's context has ended, unless it is answered.
func (p *pending) leave(k *Call) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for k.state == stateHeld {
		p.yield()
	}
	if k.state == stateAnswered || k.state == stateLeft { // just now
		<-k.told
		return
	}
	p.remove(k)
	p.line.leave(k, k.ctx.Err())
}

// yield lets other goroutines run, without the lock.
func (p *pending) yield() {
	p.mu.Unlock()
	runtime.Gosched()
	p.mu.Lock()
}

// heardSince reports whether the server has answered a call that was sent after a probe had last asked
// it, or had begun, if it could not connect. Where turns are long, any answer that was read will do then.
func (p *pending) heardSince(begun time.Time, asked *time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if asked != nil {
		return p.heard.After(*asked)
	}
	return p.heard.After(begun) || p.hasLongTurns() && p.answered.After(begun)
}

// patience returns how long a round trip may take now.
func (p *pending) patience() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.link.patience + p.excuse()
}

// isQuick reports whether the last round trip took less than a beat.
func (p *pending) isQuick() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.quick
}
