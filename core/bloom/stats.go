package bloom

import (
	"context"
	"time"

	"github.com/headgate/headgate/core"
)

// Stats is how full a Filter is.
type Stats struct {
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
func (f *Filter) Stats(ctx context.Context) (stats Stats, err error) {
	defer f.tell(ctx, time.Now(), &err)
	if f.hub.Closed() {
		return stats, core.ErrClosed
	}
	items, rates := 0.0, 0.0
	for part := range f.shape.Parts {
		set, err := f.hub.Filters.Count(ctx, f.key, f.shape, part)
		if err == nil && min(set[0], set[1]) < 0 {
			err = errLost
		}
		if err != nil {
			return Stats{}, f.explain(err)
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
