package deadline

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// Pulse is the heartbeat of a process. It tells for how long the process had no time for its
// goroutines, because others compute or the machine gives it no CPU. What did not come in that time
// may be there, unread. A Pulse beats while somebody holds it. A beat waits for its turn as a
// goroutine does that the network has woken; the process did not run while the beat is late. A Pulse
// is safe for concurrent use and must not be copied after its first use.
type Pulse struct {
	// Every is the time from one beat to the next.
	Every time.Duration
	// Fired is called when the timer of a beat fires, which it does in time if goroutines compute,
	// before the beat waits for its turn. It may be nil.
	Fired func()
	// Look is called after each beat, with the time by which that was late, or 0. It may be nil.
	Look func(late time.Duration)

	mu    sync.Mutex
	holds int
	beats bool      // a beat is due or waits for its turn
	due   time.Time // from when that is late
	lost  time.Duration
	turn  time.Duration
}

// Hold has the Pulse beat until Drop is called.
func (p *Pulse) Hold() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.holds++; !p.beats {
		p.start()
	}
}

// Drop undoes a Hold.
func (p *Pulse) Drop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.holds--
}

// start has a beat come. The lock is held.
func (p *Pulse) start() {
	p.beats, p.due = true, time.Now().Add(p.Every)
	time.AfterFunc(p.Every, p.beat)
}

func (p *Pulse) beat() {
	if p.Fired != nil {
		p.Fired()
	}
	runtime.Gosched()
	p.mu.Lock()
	late := p.late()
	p.lost, p.turn, p.beats = p.lost+late, max(late, p.turn/2), false
	if p.holds > 0 { // not earlier: a timer that fires takes the turn of a goroutine that is woken
		p.start()
	}
	p.mu.Unlock()
	if p.Look != nil {
		p.Look(late)
	}
}

// late returns by how much a beat is late now, unless that is little. The lock is held.
func (p *Pulse) late() time.Duration {
	if late := time.Since(p.due); p.beats && late > max(p.Every/4, 3*time.Millisecond) {
		return late
	}
	return 0
}

// Lost returns for how long the process did not run since the Pulse was made. What counts is the
// difference between two calls.
func (p *Pulse) Lost() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lost + p.late()
}

// waitsFor returns how long a goroutine waits for its turn now, if that is long: by how much the last
// beat was late, or half as long as before it.
func (p *Pulse) waitsFor() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return max(p.turn, p.late())
}

// Within returns a context that ends with ctx, and when the process has run for d, or most later. The
// Pulse beats until it is cancelled.
func (p *Pulse) Within(
	ctx context.Context, d, most time.Duration,
) (context.Context, context.CancelFunc) {
	return p.within(ctx, d, most, func() time.Duration { return most })
}

// longestTurn bounds the turn of a goroutine for which WithinTurns has its context wait.
const longestTurn = 10 * time.Second

// WithinTurns returns a context that ends with ctx, and when the process has run for d, or that many
// turns of a goroutine later. The Pulse beats until it is cancelled.
func (p *Pulse) WithinTurns(
	ctx context.Context, d time.Duration, turns int,
) (context.Context, context.CancelFunc) {
	n := time.Duration(turns)
	return p.within(ctx, d, n*longestTurn, func() time.Duration { return n * p.waitsFor() })
}

// within returns a context that ends by d and longest, and by what most returns after d.
func (p *Pulse) within(
	ctx context.Context, d, longest time.Duration, most func() time.Duration,
) (context.Context, context.CancelFunc) {
	p.Hold()
	timed, cancel := context.WithTimeout(ctx, d+longest)
	w := &within{Context: timed, cancel: cancel, pulse: p, due: time.Now().Add(d), lost: p.Lost(), most: most}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer = time.AfterFunc(d, w.look)
	return w, sync.OnceFunc(w.end)
}

// within is a context that ends when the process has run for some time.
type within struct {
	context.Context
	cancel context.CancelFunc
	pulse  *Pulse
	due    time.Time     // when it ends if the process runs
	lost   time.Duration // of the Pulse, as it began
	most   func() time.Duration
	over   atomic.Bool // the process has run

	mu    sync.Mutex
	timer *time.Timer
}

func (w *within) look() {
	w.mu.Lock()
	defer w.mu.Unlock()
	left := time.Until(w.due.Add(min(w.pulse.Lost()-w.lost, w.most())))
	switch {
	case w.Context.Err() != nil:
	case left > 0:
		w.timer.Reset(left)
	default:
		w.over.Store(true)
		w.cancel()
	}
}

func (w *within) end() {
	w.cancel()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer.Stop()
	w.pulse.Drop()
}

func (w *within) Err() error {
	err := w.Context.Err()
	if err != nil && w.over.Load() {
		return context.DeadlineExceeded
	}
	return err
}
