package inspect

import (
	"cmp"
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
)

// Pulse is how long Redis takes, and this process with it.
type Pulse struct {
	Ping     time.Duration // 0 in memory
	Decision time.Duration
}

// asks is a charge whose Peek asks whether Redis decides. Under its key nothing is stored.
var asks = core.Charge{
	Policy: core.Must(core.NewPolicy(core.PolicyConfig{
		Name: "page", Algorithm: core.PerSecond(1), OnFailure: core.FailClosed,
	})),
	Key: core.Must(core.NewKey("page")),
}

// Pulse asks Redis whether it decides, without spending anything.
func (i *Inspector) Pulse(ctx context.Context) (p Pulse, err error) {
	start := time.Now()
	d, err := i.cfg.Gate.Peek(ctx, asks)
	if err = cmp.Or(err, d.Cause); err != nil {
		return p, err
	}
	p.Decision = time.Since(start).Round(time.Microsecond)
	if client, ok := i.hub.Client.(redis.UniversalClient); ok {
		start = time.Now()
		err = client.Ping(ctx).Err()
		p.Ping = time.Since(start).Round(time.Microsecond)
	}
	return p, err
}
