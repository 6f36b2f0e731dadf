// Package bloom keeps Bloom filters that all replicas of a service share in Redis: sets that take
// few bits for each item, and are sometimes wrong in one direction.
//
//	seen, err := bloom.New(gate, bloom.Config{Name: "seen", Items: 1_000_000, FalsePositives: 0.001})
//	isNew, err := seen.TestAndAdd(ctx, "item")
//	if err == nil && isNew[0] {
//		// nobody has added the item before
//	}
package bloom

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/bloom"
	"github.com/headgate/headgate/internal/hub"
	"github.com/headgate/headgate/internal/request"
)

var (
	// ErrItem is wrapped by the errors of an item that is empty or longer than MaxItem.
	ErrItem = errors.New("bloom: unusable item")

	// ErrExists is wrapped by the errors of a Filter whose name is that of one with another
	// size or window. Reset erases the one that exists.
	ErrExists = errors.New("bloom: a filter of this name and another configuration exists")

	// ErrLost is wrapped by the errors of a Filter of which Redis has lost a key: it evicted it,
	// or an operator deleted it. Items in that part would seem never to have been added. The error
	// ends with Reset, or two windows later.
	ErrLost = errors.New("bloom: redis has lost a part of the filter")
)

// MaxItem is the most bytes of an item of a Filter.
const MaxItem = 64 << 10

// Config configures a Filter.
type Config struct {
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
// Config.FalsePositives. It is safe for concurrent use and must not be copied.
//
// All replicas share a filter in Redis. It lies in one hash slot, and takes its memory when items
// are added. A filter without a Window stays until Reset: its keys have no TTL. If Redis loses all
// its data, the filter is empty. A filter has no failure mode: while Redis does not answer, its
// methods return an error.
type Filter struct {
	hub   *hub.Hub
	key   string // {name}
	shape bloom.Shape
}

// New returns a Filter, or every fault of the configuration at once. It sends nothing. A
// filter of that name that exists keeps its items.
func New(gate *core.Gate, cfg Config) (*Filter, error) {
	var errs []error
	fault := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("bloom: "+format, args...))
	}
	lent := core.Inside(hub.Pass{}).Of(gate)
	if lent == nil {
		fault("the Gate is missing")
	}
	if err := core.Inside(hub.Pass{}).CheckName(cfg.Name, 64); err != nil {
		fault("Config.Name %w", err)
	}
	if cfg.Items < 1 {
		fault("Config.Items is %d: it must be at least 1", cfg.Items)
	}
	if !(cfg.FalsePositives >= 1e-9 && cfg.FalsePositives <= 0.5) { // false for NaN too
		fault("Config.FalsePositives is %v: it must be between 1e-9 and 0.5", cfg.FalsePositives)
	}
	if cfg.Window != 0 && (cfg.Window < time.Second || cfg.Window > 366*24*time.Hour) {
		fault("Config.Window is %v: it must be between 1s and 8784h", cfg.Window)
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	shape, ok := bloom.NewShape(cfg.Items, cfg.FalsePositives, cfg.Window.Microseconds())
	if !ok {
		return nil, fmt.Errorf(
			"bloom: Config: %d items at a rate of %v take more than %d MiB",
			cfg.Items, cfg.FalsePositives, bloom.MaxBytes>>20)
	}
	return &Filter{lent, "{" + cfg.Name + "}", shape}, nil
}

// Name returns the name of the filter.
func (f *Filter) Name() string { return f.key[1 : len(f.key)-1] }

// Bytes returns the most memory that the bits of the filter take. With a Window that is two
// generations.
func (f *Filter) Bytes() int64 { return f.shape.Bytes() }

// Hashes returns the number of bits that an item sets.
func (f *Filter) Hashes() int { return f.shape.Hashes }

// Add adds items, in steps of some 1,000 bits. It stops at the first error of a step; the items
// before that are added. All items are checked before the first step. The error wraps ErrItem,
// ErrExists, ErrLost, core.ErrMisconfigured or core.ErrClosed, or says that Redis did not answer.
// Then an item may have been added.
func (f *Filter) Add(ctx context.Context, items ...string) error {
	_, err := f.ask(ctx, items, true)
	return err
}

// Test reports for each item whether it was added, or seems to have been. It returns a result for
// each item, or for those before an error. The steps and the errors are those of Add.
func (f *Filter) Test(ctx context.Context, items ...string) (found []bool, err error) {
	return f.ask(ctx, items, false)
}

// TestAndAdd adds items and reports for each whether it was new, in one step: if several callers add
// a new item, in any processes, at most one of them is told that it is new, and exactly one if the
// item is no false positive. If items holds an item twice, only the first can be new. It returns a
// result for each item, or for those before an error. The steps and the errors are those of Add.
func (f *Filter) TestAndAdd(ctx context.Context, items ...string) (isNew []bool, err error) {
	isNew, err = f.ask(ctx, items, true)
	for i := range isNew {
		isNew[i] = !isNew[i]
	}
	return isNew, err
}

// stepBits is the number of bits that one script looks at, so that it takes less than a
// millisecond.
const stepBits = 1024

func (f *Filter) ask(ctx context.Context, items []string, add bool) (found []bool, err error) {
	defer f.tell(ctx, time.Now(), &err)
	if f.hub.Closed() {
		return nil, core.ErrClosed
	}
	for _, item := range items {
		if err := checkItem(item); err != nil {
			return nil, err
		}
	}
	step := max(1, stepBits/f.shape.Hashes)
	asked := make([]bloom.Item, 0, min(step, len(items)))
	found = make([]bool, 0, len(items))
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
	replies, err := f.hub.Filters.Ask(ctx, f.key, f.shape, asked)
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

var errLost = fmt.Errorf("%w: Reset empties it", ErrLost)

// explain adds the filter's name to an error.
func (f *Filter) explain(err error) error {
	var other request.OtherShape
	if errors.As(err, &other) {
		o := other.Shape
		return fmt.Errorf("%w: %s has %d bits, %d of an item, and a window of %v", ErrExists,
			f.Name(), o.PartBits()*o.Parts, o.Hashes, time.Duration(o.Window)*time.Microsecond)
	}
	return fmt.Errorf("%w (filter %s)", err, f.Name())
}

// Reset empties the filter, whatever its size and window are. It is empty at once for all
// processes. Then Reset frees the memory in short steps, and keeps items that others add meanwhile.
// After an error another Reset frees the rest.
func (f *Filter) Reset(ctx context.Context) (err error) {
	defer f.tell(ctx, time.Now(), &err)
	if f.hub.Closed() {
		return core.ErrClosed
	}
	if err := f.hub.Filters.Reset(ctx, f.key, f.shape); err != nil {
		return f.explain(err)
	}
	return nil
}
