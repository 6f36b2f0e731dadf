package memstore

import (
	"context"
	"sync"

	"github.com/headgate/headgate/internal/bloom"
	"github.com/headgate/headgate/internal/request"
)

// Filters is a request.FilterStore in memory. It is safe for concurrent use and must not be copied.
type Filters struct {
	clock func() int64 // microseconds

	mu  sync.Mutex
	all map[string]*filter
}

type filter struct {
	sync.Mutex
	bloom.Filter
}

var _ request.FilterStore = (*Filters)(nil)

// NewFilters returns a store on a clock of microseconds since 1970.
func NewFilters(clock func() int64) *Filters {
	return &Filters{clock: clock, all: make(map[string]*filter)}
}

// locked returns a filter, which the caller unlocks.
func (f *Filters) locked(name string) *filter {
	f.mu.Lock()
	one := f.all[name]
	if one == nil {
		one = new(filter)
		f.all[name] = one
	}
	f.mu.Unlock()
	one.Lock()
	return one
}

// Ask implements request.FilterStore.
func (f *Filters) Ask(
	_ context.Context, name string, s bloom.Shape, items []bloom.Item,
) ([]int64, error) {
	one := f.locked(name)
	defer one.Unlock()
	if other, ok := one.Fits(s); !ok {
		return nil, request.OtherShape{Shape: other}
	}
	return one.Filter.Ask(f.clock(), s, items), nil
}

// Count implements request.FilterStore.
func (f *Filters) Count(
	_ context.Context, name string, s bloom.Shape, part int64,
) (set [2]int64, err error) {
	one := f.locked(name)
	defer one.Unlock()
	if other, ok := one.Fits(s); !ok {
		return set, request.OtherShape{Shape: other}
	}
	set[0], set[1] = one.Filter.Count(f.clock(), s, part)
	return set, nil
}

// Reset implements request.FilterStore.
func (f *Filters) Reset(_ context.Context, name string, _ bloom.Shape) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.all, name)
	return nil
}
