package trips

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"
)

// server is what a queue needs of its server.
type server interface {
	// travel sends the commands of a trip and reads the replies. Its error fails all calls.
	travel(ctx context.Context, t *trip) error
	isOpen() bool // the server is known to fail
	doubt(outermost string)
	overloaded()
}

// pending is the calls without an answer: they wait, or are part of a trip in flight. It ends the
// calls whose time is over, and lets callers leave when their own contexts end. The caller of a call
// that waits leaves uncharged. The outcome of a call that was sent is unknown then.
type pending struct {
	link   *link
	server server

	mu sync.Mutex
	line
	trips []*trip
	health
	watch
}

func (p *pending) init(l *link, s server) {
	p.link, p.server = l, s
	p.strays = make(map[string]struct{})
	p.timeout, p.step, p.look = l.Timeout, l.step(), p.tick
}

// watched makes sure that the timer runs while there are calls.
func (p *pending) watched() {
	if len(p.waiting) > 0 || len(p.trips) > 0 {
		p.start()
	}
}

// tick ends the calls whose time is over, and doubts a server that is silent. In a process that
// lags they have more time: an answer may have come that no goroutine could read yet.
func (p *pending) tick() {
	late := p.isLate()
	p.mu.Lock()
	if late {
		p.lagged = time.Now()
	}
	silent := ""
	for _, t := range p.trips {
		if p.isSilent(t.sent) {
			silent = t.calls[0].Outermost
		}
	}
	p.mu.Unlock()
	if silent != "" {
		p.server.doubt(silent)
	}
	p.end()
	p.mu.Lock()
	p.runs = false
	p.watched()
	p.mu.Unlock()
}

// end ends the calls whose time is over.
func (p *pending) end() {
	p.mu.Lock()
	ends := func(k *Call, since time.Time) bool {
		why := p.over(k, since)
		if why == nil {
			return false
		}
		p.ends(why)
		p.line.leave(k, why)
		k.told <- struct{}{}
		return true
	}
	for _, t := range p.trips {
		for _, k := range t.calls {
			ends(k, t.sent)
		}
	}
	p.waiting = slices.DeleteFunc(p.waiting, func(k *Call) bool { return ends(k, k.entered) })
	overload := p.overload()
	p.mu.Unlock()
	if overload {
		p.server.overloaded()
	}
}

// over returns why a call's time is over, or nil. Since is when it was sent, or when it began to
// wait.
func (p *pending) over(k *Call, since time.Time) error {
	if k.state != stateSent && k.state != stateWaits {
		return nil
	}
	if !k.Insists && p.server.isOpen() {
		return ErrOpen
	}
	answers := p.answers(k.entered, since)
	limit := p.limit(k, since, answers)
	switch {
	case time.Now().Add(p.step).Before(limit):
		return nil
	case answers:
		return ErrOverloaded
	}
	return errSilent
}

// limit returns when a call's time is over.
func (p *pending) limit(k *Call, since time.Time, answers bool) time.Time {
	limit := k.End
	switch {
	case answers && k.state == stateWaits:
		limit = k.Turn
	case k.state == stateSent && limit.Before(k.Turn): // it may have waited for longer than its end
		limit = since.Add(p.timeout)
	}
	if last := k.entered.Add(p.link.patience); limit.Before(last) && p.lags() {
		limit = last
	}
	return limit
}

// leave takes back a call whose caller's context has ended, unless it is answered.
func (p *pending) leave(k *Call) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for k.state == stateEncodes {
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

// heardSince reports whether the server has answered a call that was sent after that time.
func (p *pending) heardSince(t time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.heard.After(t)
}

// hear says that the server has answered what was sent at that time.
func (p *pending) hear(t time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hears(t)
}

// isQuick reports whether the last round trip took less than a step.
func (p *pending) isQuick() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.quick
}
