package core

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headgate/headgate/internal/bloom"
	"github.com/headgate/headgate/internal/request"
)

var (
	// ErrItem is wrapped by the errors of an item that is empty or longer than MaxItem.
	ErrItem = errors.New("core: unusable item")

	// ErrFilterExists is wrapped by the errors of a Filter whose name is that of one with another
	// size or window. Reset erases the one that exists.
	ErrFilterExists = errors.New("core: a filter of this name and another configuration exists")

	// ErrFilterLost is wrapped by the errors of a Filter of which Redis has lost a key: it evicted it,
	// or an operator deleted it. Items in that part would seem never to have been added. The error
	// ends with Reset, or two windows later.
	ErrFilterLost = errors.New("core: redis has lost a part of the filter")
)

// MaxItem is the most bytes of an item of a Filter.
const MaxItem = 64 << 10

// FilterConfig configures a Filter.
type FilterConfig struct {
	// Name identifies the filter. It has 1 to 64 of the characters A-Z a-z 0-9 _ . and -.
	Name string
	// Items is how many different items the filter is made for, at least 1. With a Window it is how
	// many come in one window. A filter that holds more has more false positives.
	Items int64
	// FalsePositives is the rate of items that seem to be in a filter that holds Items, and are not.
	// It is between 1e-9 and 0.5.
	FalsePositives float64
	// Window, if it is not zero, lets items age out: an item is found for at least a window after it
	// was last added, and for less than two. It is between 1 s and 366 days.
	Window time.Duration
}

// Filter is a set of items that takes few bits for each, and is sometimes wrong in one direction:
// an item that was added is always found, and an item that was not is found at the rate of
// FilterConfig.FalsePositives. It is safe for concurrent use and must not be copied.
//
// All replicas share a filter in Redis. It lies in one hash slot, and takes its memory when items
// are added. A filter without a Window stays until Reset: its keys have no TTL. If Redis loses all
// its data, the filter is empty. A filter has no failure mode: while Redis does not answer, its
// methods return an error.
type Filter struct {
	gate  *Gate
	name  string // the key, without prefix
	shape bloom.Shape
}

// NewFilter returns a Filter, or every fault of the configuration at once. It sends nothing. A
// filter of that name that exists keeps its items.
func NewFilter(g *Gate, cfg FilterConfig) (*Filter, error) {
	var errs []error
	fault := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("core: "+format, args...))
	}
	if g == nil || g.filters == nil {
		fault("the filter's Gate is missing")
	}
	if err := checkName(cfg.Name, 64); err != nil {
		fault("FilterConfig.Name %w", err)
	}
	if cfg.Items < 1 {
		fault("FilterConfig.Items is %d: it must be at least 1", cfg.Items)
	}
	if !(cfg.FalsePositives >= 1e-9 && cfg.FalsePositives <= 0.5) { // false for NaN too
		fault("FilterConfig.FalsePositives is %v: it must be between 1e-9 and 0.5", cfg.FalsePositives)
	}
	if cfg.Window != 0 && (cfg.Window < time.Second || cfg.Window > 366*24*time.Hour) {
		fault("FilterConfig.Window is %v: it must be between 1s and 8784h", cfg.Window)
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	shape, ok := bloom.NewShape(cfg.Items, cfg.FalsePositives, cfg.Window.Microseconds())
	if !ok {
		return nil, fmt.Errorf(
			"core: FilterConfig: %d items at a rate of %v take more than %d MiB",
			cfg.Items, cfg.FalsePositives, bloom.MaxBytes>>20)
	}
	return &Filter{g, "{" + cfg.Name + "}", shape}, nil
}

// Bytes returns the most memory that the bits of the filter take. With a Window that is two
// generations.
func (f *Filter) Bytes() int64 { return f.shape.Bytes() }

// Hashes returns the number of bits that an item sets.
func (f *Filter) Hashes() int { return f.shape.Hashes }

// Add adds an item. The error wraps ErrItem, ErrFilterExists, ErrFilterLost or ErrMisconfigured, or
// says that Redis did not answer. Then the item may have been added.
func (f *Filter) Add(ctx context.Context, item string) error {
	_, err := f.TestAndAdd(ctx, item)
	return err
}

// Test reports whether an item was added, or seems to have been. The errors are those of Add.
func (f *Filter) Test(ctx context.Context, item string) (bool, error) {
	return f.askOne(ctx, item, false)
}

// TestAndAdd adds an item and reports whether it was new, in one step: if several callers add a new
// item, in any processes, at most one of them is told that it is new, and exactly one if the item
// is no false positive. The errors are those of Add.
func (f *Filter) TestAndAdd(ctx context.Context, item string) (isNew bool, err error) {
	found, err := f.askOne(ctx, item, true)
	return err == nil && !found, err
}

// AddAll adds items, in steps of some 1,000 bits. It stops at the first error of a step; the items
// before that are added. All items are checked before the first step. The errors are those of Add.
func (f *Filter) AddAll(ctx context.Context, items []string) error {
	_, err := f.ask(ctx, items, true)
	return err
}

// TestAll is Test for each item, in the steps of AddAll. It returns a result for each item, or for
// those before an error.
func (f *Filter) TestAll(ctx context.Context, items []string) (found []bool, err error) {
	return f.ask(ctx, items, false)
}

// TestAndAddAll is TestAndAdd for each item, in the steps of AddAll. It returns a result for each
// item, or for those before an error. If items holds an item twice, only the first can be new.
func (f *Filter) TestAndAddAll(ctx context.Context, items []string) (isNew []bool, err error) {
	isNew, err = f.ask(ctx, items, true)
	for i := range isNew {
		isNew[i] = !isNew[i]
	}
	return isNew, err
}

// stepBits is the number of bits that one script looks at, so that it takes less than a
// millisecond.
const stepBits = 1024

// askOne is ask for one item. A call that shares its round trip makes 1 allocation, not 3.
func (f *Filter) askOne(ctx context.Context, item string, add bool) (found bool, err error) {
	defer f.tell(ctx, time.Now(), &err)
	if f.gate.isClosed() {
		return false, ErrClosed
	}
	if err := checkItem(item); err != nil {
		return false, err
	}
	var answer [1]bool
	_, err = f.send(ctx, answer[:0], []bloom.Item{f.shape.Item(item, add)})
	return answer[0], err
}

func (f *Filter) ask(ctx context.Context, items []string, add bool) (found []bool, err error) {
	defer f.tell(ctx, time.Now(), &err)
	if f.gate.isClosed() {
		return nil, ErrClosed
	}
	for _, item := range items {
		if err := checkItem(item); err != nil {
			return nil, err
		}
	}
	found = make([]bool, 0, len(items))
	step := max(1, stepBits/f.shape.Hashes)
	asked := make([]bloom.Item, 0, min(step, len(items)))
	for len(items) > 0 {
		n := min(step, len(items))
		asked = asked[:0]
		for _, item := range items[:n] {
			asked = append(asked, f.shape.Item(item, add))
		}
		items = items[n:]
		if found, err = f.send(ctx, found, asked); err != nil {
			return found, err
		}
	}
	return found, nil
}

func checkItem(item string) error {
	if item == "" {
		return fmt.Errorf("%w: it is empty", ErrItem)
	}
	if len(item) > MaxItem {
		return fmt.Errorf(
			"%w: it has %d bytes, at most %d are possible", ErrItem, len(item), MaxItem)
	}
	return nil
}

// send asks the store for items of one step and appends whether each was found, up to an error.
func (f *Filter) send(ctx context.Context, found []bool, asked []bloom.Item) ([]bool, error) {
	replies, err := f.gate.filters.Ask(ctx, f.name, f.shape, asked)
	if err != nil {
		return found, f.explain(err)
	}
	for _, r := range replies {
		if r == bloom.Lost {
			return found, f.explain(errLost)
		}
		found = append(found, r == bloom.Present)
	}
	return found, nil
}

var errLost = fmt.Errorf("%w: Reset empties it", ErrFilterLost)

// explain adds the filter's name to an error.
func (f *Filter) explain(err error) error {
	var other request.OtherShape
	if errors.As(err, &other) {
		o := other.Shape
		return fmt.Errorf("%w: %s has %d bits, %d of an item, and a window of %v", ErrFilterExists,
			f.name, o.PartBits()*o.Parts, o.Hashes, time.Duration(o.Window)*time.Microsecond)
	}
	return fmt.Errorf("%w (filter %s)", err, f.name)
}

func (f *Filter) tell(ctx context.Context, start time.Time, err *error) {
	if f.gate.observe != nil {
		f.gate.tell(ctx, &FilterEvent{Filter: f, Err: *err, Took: time.Since(start)})
	}
}

// FilterEvent is a call of a method of a Filter.
type FilterEvent struct {
	Filter *Filter
	Err    error
	Took   time.Duration
}

// EventName returns "filter".
func (e *FilterEvent) EventName() string { return "filter" }

// Reset empties the filter, whatever its size and window are. It is empty at once for all
// processes. Then Reset frees the memory in short steps, and keeps items that others add meanwhile.
// After an error another Reset frees the rest.
func (f *Filter) Reset(ctx context.Context) (err error) {
	defer f.tell(ctx, time.Now(), &err)
	if f.gate.isClosed() {
		return ErrClosed
	}
	if err := f.gate.filters.Reset(ctx, f.name, f.shape); err != nil {
		return f.explain(err)
	}
	return nil
}

// FilterStats is how full a Filter is.
type FilterStats struct {
	Bits int64   // of the filter; with a Window, of both generations
	Set  int64   // how many of them are set
	Fill float64 // Set / Bits
	// Items estimates the number of different items. With a Window, an item that was added in both
	// generations counts twice.
	Items int64
	// FalsePositives estimates the rate of items that seem to be in the filter now and are not.
	FalsePositives float64
}

// Stats counts the bits of the filter, in steps of at most 1 MiB. It may miss items that are added
// meanwhile. The errors are those of Add.
func (f *Filter) Stats(ctx context.Context) (stats FilterStats, err error) {
	defer f.tell(ctx, time.Now(), &err)
	if f.gate.isClosed() {
		return stats, ErrClosed
	}
	items, rates := 0.0, 0.0
	for part := range f.shape.Parts {
		set, err := f.gate.filters.Count(ctx, f.name, f.shape, part)
		if err == nil && min(set[0], set[1]) < 0 {
			err = errLost
		}
		if err != nil {
			return FilterStats{}, f.explain(err)
		}
		stats.Set += set[0] + set[1]
		items += f.shape.Items(set[0]) + f.shape.Items(set[1])
		rates += 1 - (1-f.shape.Rate(set[0]))*(1-f.shape.Rate(set[1]))
	}
	stats.Bits = f.shape.PartBits() * f.shape.Parts
	if f.shape.Window > 0 {
		stats.Bits *= 2
	}
	stats.Fill = float64(stats.Set) / float64(stats.Bits)
	stats.Items = int64(items + 0.5)
	stats.FalsePositives = rates / float64(f.shape.Parts)
	return stats, nil
}
