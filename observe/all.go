// Package observe gives the events of a Gate to several observers at once. The packages below it are
// such observers: promgate and otelgate make metrics of events, and sloggate writes a log.
package observe

import (
	"context"
	"slices"

	"github.com/headgate/headgate/core"
)

// All returns an observer that gives each event to all observers in turn. It leaves nil ones out, and
// is nil if none is left, so that the Gate makes no events.
//
//	cfg := core.Config{Observe: observe.All(metrics.Observe, logs.Observe)}
func All(observers ...func(context.Context, core.Event)) func(context.Context, core.Event) {
	observers = slices.DeleteFunc(slices.Clone(observers),
		func(o func(context.Context, core.Event)) bool { return o == nil })
	if len(observers) == 0 {
		return nil
	}
	return func(ctx context.Context, e core.Event) {
		for _, o := range observers {
			o(ctx, e)
		}
	}
}
