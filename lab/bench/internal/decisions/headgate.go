package decisions

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/headgate/headgate/core"

	"github.com/headgate/headgate/lab/bench/internal/measure"
)

// headgate is this project's lines: each algorithm, and several policies on one key.
func headgate() []line {
	made := 0
	one := func(name string, algorithm func(quota) core.Algorithm) line {
		made++
		letter := string(rune('a' + made))
		return line{name: name, kind: measure.Ours, make: func(b *bed, q quota) (decide, error) {
			return b.policies(b.gate, letter, algorithm(q))
		}}
	}
	bucket := one("TokenBucket", func(q quota) core.Algorithm {
		return core.TokenBucket{Rate: q.limit, Per: q.slow(), Burst: q.limit}
	})
	bucket.many, bucket.cluster = true, true
	alone := func(e line) line {
		e.alone = true
		return e
	}
	broken := one("TokenBucket, state with a fraction", func(q quota) core.Algorithm {
		return core.TokenBucket{Rate: 7, Per: 3 * time.Second, Burst: q.limit}
	})
	broken.allowedOnly = true
	asking := line{name: "TokenBucket, no denial known", kind: measure.Ours, deniedOnly: true}
	asking.make = func(b *bed, q quota) (decide, error) {
		return b.policies(b.asking, "z", core.TokenBucket{Rate: q.limit, Per: q.slow(), Burst: q.limit})
	}
	// The first strike blocks, and all after it are denied.
	blocked := one("Block, a blocked client", func(q quota) core.Algorithm {
		return core.Block{Strikes: 1, Within: q.per, For: q.per}
	})
	blocked.deniedOnly = true
	several := func(n int) line {
		return line{
			name: fmt.Sprintf("%d policies, TokenBucket", n), kind: measure.Ours, cluster: true,
			make: func(b *bed, q quota) (decide, error) {
				algorithms := make([]core.Algorithm, n)
				for i := range algorithms {
					algorithms[i] = core.TokenBucket{Rate: q.limit, Per: q.slow(), Burst: q.limit}
				}
				return b.policies(b.gate, fmt.Sprint(n), algorithms...)
			},
		}
	}
	return []line{
		alone(bucket), broken,
		alone(one("FixedWindow", func(q quota) core.Algorithm {
			return core.FixedWindow{Limit: q.limit, Window: q.per}
		})),
		alone(one("SlidingWindow, two counters", func(q quota) core.Algorithm {
			return core.SlidingWindow{Limit: q.limit, Window: q.per}
		})),
		alone(one("SlidingWindow, 10 buckets", func(q quota) core.Algorithm {
			return core.SlidingWindow{Limit: q.limit, Window: q.window(time.Second), Buckets: 10}
		})),
		one("SlidingWindow, 1000 buckets", func(q quota) core.Algorithm {
			return core.SlidingWindow{Limit: q.limit, Window: q.window(time.Second), Buckets: 1000}
		}),
		alone(one("SlidingLog", func(q quota) core.Algorithm {
			return core.SlidingLog{Windows: []core.Window{{Limit: min(q.limit, 10_000), Width: q.window(5 * time.Millisecond)}}}
		})),
		alone(one("Calendar", func(q quota) core.Algorithm {
			return core.Calendar{Limit: q.limit, Every: core.PeriodMonth, In: time.UTC}
		})),
		alone(one("LeakyBucket", func(q quota) core.Algorithm {
			return core.LeakyBucket{Rate: q.limit, Per: q.slow(), Capacity: q.limit}
		})),
		several(2), alone(several(4)), asking, blocked,
	}
}

// slow is the time in which a bucket refills: where the limit is out of reach, a second for each unit, so that state
// outlasts the run here too.
func (q quota) slow() time.Duration {
	if q.limit == generous.limit {
		return time.Duration(q.limit) * time.Second
	}
	return q.per
}

func (q quota) window(brief time.Duration) time.Duration {
	if q.brief {
		return brief
	}
	return q.per
}

// policies decides on policies of these algorithms, all on one key. The name is another one for each line, so that no
// two count together.
func (b *bed) policies(gate *core.Gate, name string, algorithms ...core.Algorithm) (decide, error) {
	charges := make([]core.Charge, len(algorithms))
	for i, a := range algorithms {
		p, err := core.NewPolicy(core.PolicyConfig{Name: b.prefix + name + strings.Repeat("-", i), Algorithm: a})
		if err != nil {
			return nil, fmt.Errorf("make the policy: %w", err)
		}
		charges[i] = core.Charge{Policy: p, Cost: 1}
	}
	keys := b.keys
	if len(charges) == 1 {
		charge := charges[0]
		return func(ctx context.Context, key int) (bool, error) {
			own := charge
			own.Key = keys[key]
			return outcome(gate.Decide(ctx, own))
		}, nil
	}
	return func(ctx context.Context, key int) (bool, error) {
		var own [4]core.Charge
		for i := range charges {
			own[i] = charges[i]
			own[i].Key = keys[key]
		}
		return outcome(gate.Decide(ctx, own[:len(charges)]...))
	}, nil
}

// outcome takes what a failure mode decided for a failure.
func outcome(d core.Decision, err error) (bool, error) {
	if err == nil {
		err = d.Cause
	}
	return d.Allowed, err
}
