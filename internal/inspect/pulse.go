package inspect

import (
	"cmp"
	"context"
	"time"

	"github.com/headgate/headgate/core"
)

// asks is a charge whose Peek asks whether Redis decides. Under its key nothing is stored.
var asks = core.Charge{
	Policy: core.Must(core.NewPolicy(core.PolicyConfig{
		Name: "page", Algorithm: core.PerSecond(1), OnFailure: core.FailClosed,
	})),
	Key: core.Must(core.NewKey("page")),
}

// Pulse asks Redis whether it decides, without spending anything, and returns how long that took.
func (i *Inspector) Pulse(ctx context.Context) (took time.Duration, err error) {
	start := time.Now()
	d, err := i.cfg.Gate.Peek(ctx, asks)
	return time.Since(start).Round(time.Microsecond), cmp.Or(err, d.Cause)
}
