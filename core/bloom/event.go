package bloom

import (
	"context"
	"time"
)

// Event is a call of a method of a Filter. It is a core.Event.
type Event struct {
	Filter *Filter
	Err    error
	Took   time.Duration
}

// EventName returns "filter".
func (e *Event) EventName() string { return "filter" }

// tell tells the observer of a call.
func (f *Filter) tell(ctx context.Context, start time.Time, err *error) {
	if f.hub.Observe != nil {
		f.hub.Observe(ctx, &Event{Filter: f, Err: *err, Took: time.Since(start)})
	}
}
