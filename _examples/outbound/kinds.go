package main

import (
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/provider"
)

// kind is one kind of provider, and the limit that its users keep. That leaves some room for requests
// that the network delays.
type kind struct {
	name, allows string
	provider     provider.Config
	rule         core.Algorithm // or nil
	unit         core.Unit
	limit        string // the name that the provider's headers give the limit
	streams      int64
	// asked is how many requests a second the replicas make together: twice what is allowed.
	asked int
	// perSecond is how many requests or tokens the provider allows in a second, besides the first ones, or
	// how many seconds of streams.
	perSecond, first float64
}

var kinds = []kind{
	{
		name: "bucket", allows: "60 requests/s, 30 at once", asked: 120, perSecond: 60, first: 3,
		provider: provider.Config{
			Form:   provider.OpenAI,
			Limits: []provider.Limit{{Unit: provider.Requests, N: 60, Per: time.Second, Burst: 30}},
			Took:   50 * time.Millisecond,
		},
		rule: core.TokenBucket{Rate: 60, Per: time.Second, Burst: 3}, unit: core.UnitRequests,
	},
	{
		name: "window", allows: "600 requests each 10 s", asked: 120, perSecond: 60, first: 3,
		provider: provider.Config{
			Form:   provider.GitHub,
			Limits: []provider.Limit{{Unit: provider.Requests, N: 600, Per: 10 * time.Second, Window: true}},
			Took:   50 * time.Millisecond,
		},
		rule: core.TokenBucket{Rate: 590, Per: 10 * time.Second, Burst: 3}, unit: core.UnitRequests, limit: "requests",
	},
	{
		name: "log", allows: "600 requests in any 10 s", asked: 120, perSecond: 60, first: 3,
		provider: provider.Config{
			Form:   provider.Millis,
			Limits: []provider.Limit{{Unit: provider.Requests, N: 600, Per: 10 * time.Second, Log: true}},
			Took:   50 * time.Millisecond,
		},
		rule: core.TokenBucket{Rate: 590, Per: 10 * time.Second, Burst: 3}, unit: core.UnitRequests,
	},
	{
		name: "tokens", allows: "60,000 tokens/min, 6,000 at once", asked: 50, perSecond: 1000, first: 600,
		provider: provider.Config{
			Form:    provider.Anthropic,
			Limits:  []provider.Limit{{Unit: provider.Tokens, N: 60_000, Per: time.Minute, Burst: 6000}},
			Usage:   func(q provider.Request) (int64, int64) { return 10, q.MaxTokens / 2 },
			Refunds: true, Took: 50 * time.Millisecond,
		},
		rule: core.TokenBucket{Rate: 60_000, Per: time.Minute, Burst: 600}, unit: core.UnitTokens,
	},
	{
		name: "cap", allows: "40 streams of 2 s at a time", asked: 40, perSecond: 40, streams: 40,
		provider: provider.Config{Form: provider.OpenAI, Streams: 40, Took: 2 * time.Second},
	},
}

// units returns how many requests or tokens the provider has given, without the first ones, or for how
// many seconds its streams ran.
func (k *kind) units(n provider.Counts, all []provider.Arrival) (units float64) {
	switch {
	case k.unit == core.UnitTokens:
		return float64(n.Tokens) - k.first
	case k.streams == 0:
		return float64(n.Accepted) - k.first
	}
	end := all[len(all)-1].At
	for _, a := range all {
		if !a.Refused {
			units += min(k.provider.Took, end.Sub(a.At)).Seconds()
		}
	}
	return units
}
