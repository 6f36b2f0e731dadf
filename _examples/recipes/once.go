package recipes

import (
	"context"
	"errors"
	"time"

	"github.com/headgate/headgate/core"
)

// Hourly runs a job once in each hour, however many replicas call it. Call it from a ticker of an
// hour in every replica, some minutes after the hour has begun.
func Hourly(gate *core.Gate, job func(context.Context) error) func(context.Context) error {
	tick := core.Must(core.NewPolicy(core.PolicyConfig{
		Name:      "hourly",
		Algorithm: core.FixedWindow{Limit: 1, Window: time.Hour},
		OnFailure: core.FailClosed, // otherwise each replica runs the job while Redis is down
	}))
	key := core.Must(core.NewKey("report"))
	return func(ctx context.Context) error {
		r, d, err := gate.Charge(ctx, core.Charge{Policy: tick, Key: key})
		if err != nil {
			return err
		}
		if !d.Allowed {
			return nil // another replica has run it in this hour, or Redis is down
		}
		if err := job(ctx); err != nil {
			return errors.Join(err, r.Cancel(ctx)) // another replica may try in this hour
		}
		return nil
	}
}
