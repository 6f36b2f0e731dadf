package otelgate

import (
	"context"
	"math"
	"sync/atomic"

	"go.opentelemetry.io/otel/metric"
)

// counter is a counter that is read when metrics are collected.
type counter struct {
	observable metric.Float64Observable
	set        metric.ObserveOption
	whole      atomic.Uint64 // the sum of the whole numbers
	rest       atomic.Uint64 // the bits of the sum of the other ones
}

// add adds to the counter.
func (c *counter) add(_ context.Context, value float64) {
	if n := uint64(value); float64(n) == value {
		c.whole.Add(n)
		return
	}
	for {
		old := c.rest.Load()
		if c.rest.CompareAndSwap(old, math.Float64bits(math.Float64frombits(old)+value)) {
			return
		}
	}
}

func (c *counter) value() float64 {
	return float64(c.whole.Load()) + math.Float64frombits(c.rest.Load())
}
