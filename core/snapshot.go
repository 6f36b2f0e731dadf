package core

import (
	"context"
	"sync"
	"sync/atomic"
)

// Snapshot returns the value of key in the snapshot of ctx: what load returned when Snapshot was
// first called with that key. So the functions of a nethttp.Rule and a
// nethttp.Cap that return limits and shares see one state of data that changes meanwhile, such as
// a configuration that is replaced, for all charges of a decision and all rules of a request:
//
//	config := core.Snapshot(ctx, &current, current.Load) // current is an atomic.Pointer
//
// A nethttp.Guard takes a snapshot for a request if its rules or caps have limits of their own.
// Without a snapshot, Snapshot calls load each time. It allocates nothing then.
//
// The key must be comparable, and is compared with its type and V. A pointer to the data is a good
// one. If several goroutines call load at once, the value of the first to return counts.
func Snapshot[K, V any](ctx context.Context, key K, load func() V) V {
	s, _ := ctx.Value(snapshotKey{}).(*snapshot)
	if s == nil {
		return load()
	}
	typed := typedKey[K, V]{key}
	value, ok := s.find(typed)
	if !ok {
		value = s.keep(typed, load())
	}
	v, _ := value.(V) // the zero V is a nil interface
	return v
}

// WithSnapshot returns a context with a snapshot, which lasts until the caller calls end: the
// context is as ctx after that. If ctx has a snapshot already, WithSnapshot returns ctx, and end
// does nothing. It is for adapters.
func WithSnapshot(ctx context.Context) (_ context.Context, end func()) {
	if ctx.Value(snapshotKey{}) != nil {
		return ctx, func() {}
	}
	s := &snapshot{Context: ctx}
	return s, s.end
}

type snapshotKey struct{}

// typedKey is a key of values of one type. A pointer in it takes no memory of its own.
type typedKey[K, V any] struct{ key K }

// snapshot is a context with values that are loaded once.
type snapshot struct {
	context.Context
	ended atomic.Bool
	mu    sync.Mutex
	all   []loaded
	first [2]loaded // memory of all
}

type loaded struct{ key, value any }

func (s *snapshot) Value(key any) any {
	if key == (snapshotKey{}) && !s.ended.Load() {
		return s
	}
	return s.Context.Value(key)
}

func (s *snapshot) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended.Store(true)
	s.all, s.first = nil, [len(s.first)]loaded{}
}

func (s *snapshot) find(key any) (value any, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.locked(key)
}

// locked is find for a caller that holds mu.
func (s *snapshot) locked(key any) (value any, ok bool) {
	for _, l := range s.all {
		if l.key == key {
			return l.value, true
		}
	}
	return nil, false
}

// keep keeps a value, unless there is one, and returns that which is kept.
func (s *snapshot) keep(key, value any) any {
	s.mu.Lock()
	defer s.mu.Unlock()
	if earlier, ok := s.locked(key); ok {
		return earlier
	}
	if s.all == nil {
		s.all = s.first[:0]
	}
	if !s.ended.Load() {
		s.all = append(s.all, loaded{key, value})
	}
	return value
}
