package tenants

import (
	"context"
	"fmt"
	"time"
)

// Get returns what is known of a tenant, and learns it if it is not fresh. After a failure it
// returns what was known before, and repeats the attempt in the background. The error is ErrClosed,
// ErrLate, or wraps that of a ctx that has ended.
func (t *Table[V]) Get(ctx context.Context, name string) (v V, err error) {
	d := t.digest(name)
	var late *time.Timer
	for {
		last, now, f := t.board(ctx, d, name)
		switch {
		case f == nil && last.until == 0:
			return v, ErrClosed
		case f == nil:
			return last.value, nil
		}
		first := late == nil
		if first { // what is fresh costs no timer
			late = time.NewTimer(t.cfg.Patience)
			defer late.Stop()
		}
		select {
		case <-f.done:
			if !f.learned {
				return last.value, last.orElse(ErrLate)
			}
			// An attempt that began before a change may have read the state before it. The next one
			// begins after this call.
			if !first || f.result.epoch == now.epoch && f.result.change == now.change {
				return f.result.value, nil
			}
		case <-ctx.Done():
			return v, fmt.Errorf("tenants: %w", ctx.Err())
		case <-late.C:
			return last.value, last.orElse(ErrLate)
		}
	}
}

// board returns what is known of a tenant, the epoch and the change that a fresh value would have
// now, and the flight to wait for. The flight is nil if the caller need not wait, and if the Table
// is closed.
func (t *Table[V]) board(
	ctx context.Context, d digest, name string,
) (last, now known[V], f *flight[V]) {
	s := t.shard(d)
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.use(d)
	if x == nil {
		if t.ctx.Err() != nil {
			return last, now, nil // it evicts nobody
		}
		x = s.add(d)
	}
	now = known[V]{epoch: t.epoch.Load(), change: x.changes}
	last = x.known
	unchanged := x.unchanged(now.epoch)
	if unchanged && t.now() < last.until {
		return last, now, nil
	}
	retry := unchanged && last.failed && t.now() < last.until+t.cfg.Retry
	if x.flight == nil {
		x := x // its closure would put the one above on the heap for each call
		f := &flight[V]{done: make(chan struct{}), result: now}
		if t.run(retry, func() { t.fly(ctx, s, x, f, name) }) {
			x.flight = f
		}
	}
	if retry {
		return last, now, nil
	}
	return last, now, x.flight
}

// run runs f in a goroutine, and reports false if the Table is closed. It runs a few retries at a
// time.
func (t *Table[V]) run(retry bool, f func()) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return false
	}
	if retry {
		select {
		case t.retries <- struct{}{}:
		default:
			return false
		}
	}
	t.running.Go(func() {
		if retry {
			defer func() { <-t.retries }()
		}
		f()
	})
	return true
}

// fly learns about a tenant, and keeps the answer unless the tenant was evicted meanwhile.
func (t *Table[V]) fly(
	ctx context.Context, s *shard[V], x *tenant[V], f *flight[V], name string,
) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx)) // several callers wait for it
	defer cancel()
	defer context.AfterFunc(t.ctx, cancel)()
	last := x.known // which only a flight writes
	defer close(f.done)
	defer func() { // also if Learn has called runtime.Goexit
		s.mu.Lock()
		defer s.mu.Unlock()
		if x.flight = nil; f.learned {
			x.known = f.result
		}
	}()
	a := t.cfg.Learn(ctx, name, last.value,
		last.epoch == f.result.epoch && last.change == f.result.change)
	f.result.value, f.result.failed = a.Value, a.Failed
	f.result.until = max(1, t.now()+a.For) // not 0, which says that nothing is known
	f.learned = true
}
