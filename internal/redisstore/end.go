package redisstore

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"
)

// ErrOverloaded is the error of a call that this process could not send in time, or whose answer it
// could not read in time, although the server answers.
var ErrOverloaded = errors.New("redisstore: the server answers, and not this call in time")

// ErrOpen is the error of a call to a server that is known to fail.
var ErrOpen = errors.New("redisstore: the server failed just before and is not asked again yet")

// errSilent is the error of a call to a server that does not answer.
var errSilent = fmt.Errorf("no answer in time: %w", context.DeadlineExceeded)

// lagMemory is how long a process counts as one that lags after it did.
const lagMemory = 5 * time.Second

// step is how often calls are looked at whose time may be over. Each ends early by up to a step.
func (q *queue) step() time.Duration { return q.node.store.Timeout / 8 }

// tick ends the calls whose time is over, and doubts a server that is silent. In a process that lags
// they have more time: an answer may have come that no goroutine could read yet.
func (q *queue) tick() {
	lags := q.lags()
	q.mu.Lock()
	if lags {
		q.lagged = time.Now()
	}
	silent := ""
	for _, t := range q.trips {
		if time.Since(t.sent) >= q.node.store.Timeout/2 && !q.heard.After(t.sent) {
			silent = t.calls[0].outermost
		}
	}
	q.mu.Unlock()
	if silent != "" {
		q.node.doubt(silent)
	}
	q.end()
	q.mu.Lock()
	q.timed = false
	q.watch()
	q.mu.Unlock()
}

// lags reports whether goroutines that are ready wait for their turn in this process, or timers do.
func (q *queue) lags() bool {
	runtime.Gosched()
	return time.Since(q.due) > max(q.step()/4, 3*time.Millisecond)
}

// answers reports whether the server answers, although not a call that was sent, or began to wait, at
// that time: it has answered a later one, or another while this one waited, and not long ago.
func (q *queue) answers(k *call, since time.Time) bool {
	return q.heard.After(since) ||
		q.answered.After(k.entered) && time.Since(q.answered) < q.node.store.Timeout/2
}

// over returns why a call's time is over, or nil. Since is when it was sent, or when it began to wait.
func (q *queue) over(k *call, since time.Time) error {
	sent := k.state == callSent
	if !sent && k.state != callWaits {
		return nil
	}
	if !k.insists && q.node.circuit.IsOpen() {
		return ErrOpen
	}
	answers := q.answers(k, since)
	limit := k.end
	switch {
	case answers && !sent:
		limit = k.turn
	case sent && limit.Before(k.turn): // it may have waited for longer than its end
		limit = since.Add(q.node.store.Timeout)
	}
	store := q.node.store
	if last := k.entered.Add(store.patience); limit.Before(last) && time.Since(q.lagged) < lagMemory {
		limit = last
	}
	switch {
	case time.Now().Add(q.step()).Before(limit):
		return nil
	case answers:
		return ErrOverloaded
	}
	return errSilent
}

// end ends the calls whose time is over.
func (q *queue) end() {
	q.mu.Lock()
	ends := func(k *call, since time.Time) bool {
		why := q.over(k, since)
		if why == nil {
			return false
		}
		q.shed = q.shed || why == ErrOverloaded
		q.left(k, why)
		k.told <- struct{}{}
		return true
	}
	for _, t := range q.trips {
		for _, k := range t.calls {
			ends(k, t.sent)
		}
	}
	q.waiting = slices.DeleteFunc(q.waiting, func(k *call) bool { return ends(k, k.entered) })
	shed := q.shed && time.Since(q.told) > time.Second
	if shed {
		q.shed, q.told = false, time.Now()
	}
	q.mu.Unlock()
	if shed {
		q.node.notify(Overloaded, nil)
	}
}
