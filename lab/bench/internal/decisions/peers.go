package decisions

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"github.com/throttled/throttled/v2"
	throttledstore "github.com/throttled/throttled/v2/store/goredisstore.v9"
	ulule "github.com/ulule/limiter/v3"
	ululestore "github.com/ulule/limiter/v3/drivers/store/redis"
	"github.com/zeromicro/go-zero/core/limit"
	zeroredis "github.com/zeromicro/go-zero/core/stores/redis"

	"github.com/headgate/headgate/lab/bench/internal/measure"
)

// peers is other libraries, as their documentation shows them, on the same client where they take one.
func peers() []line {
	return []line{
		{name: "redis_rate v10 (GCRA)", kind: measure.Peer, many: true, cluster: true, alone: true, make: redisRate(1)},
		{name: "redis_rate v10, 4 calls (not all or nothing)", kind: measure.Peer, allowedOnly: true, make: redisRate(4)},
		{name: "ulule/limiter v3 (fixed window)", kind: measure.Peer, many: true, cluster: true, alone: true, make: ululeLimiter},
		{name: "throttled v2 (GCRA)", kind: measure.Peer, cluster: true, alone: true, make: throttledLimiter},
		{name: "go-zero PeriodLimit (fixed window)", kind: measure.Peer, make: periodLimit},
		{name: "go-zero TokenLimit (token bucket)", kind: measure.Peer, make: tokenLimit},
	}
}

func redisRate(calls int) func(*bed, quota) (decide, error) {
	return func(b *bed, q quota) (decide, error) {
		limiter := redis_rate.NewLimiter(b.client)
		limit := redis_rate.Limit{Rate: int(q.limit), Burst: int(q.limit), Period: q.slow()}
		names := make([][]string, calls)
		for i := range names {
			names[i] = prefixed(b.names, b.prefix+strings.Repeat("-", calls-1+i))
		}
		return func(ctx context.Context, key int) (bool, error) {
			for i := range names {
				r, err := limiter.Allow(ctx, names[i][key], limit)
				if err != nil || r.Allowed == 0 {
					return false, err
				}
			}
			return true, nil
		}, nil
	}
}

func ululeLimiter(b *bed, q quota) (decide, error) {
	store, err := ululestore.NewStoreWithOptions(b.client, ulule.StoreOptions{Prefix: "limiter" + b.prefix})
	if err != nil {
		return nil, fmt.Errorf("make the store: %w", err)
	}
	limiter := ulule.New(store, ulule.Rate{Period: q.per, Limit: q.limit})
	names := b.names
	return func(ctx context.Context, key int) (bool, error) {
		r, err := limiter.Get(ctx, names[key])
		return err == nil && !r.Reached, err
	}, nil
}

func throttledLimiter(b *bed, q quota) (decide, error) {
	store, err := throttledstore.NewCtx(b.client, "throttled"+b.prefix)
	if err != nil {
		return nil, fmt.Errorf("make the store: %w", err)
	}
	limiter, err := throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{
		MaxRate: throttled.PerDuration(int(q.limit), q.slow()), MaxBurst: int(q.limit) - 1,
	})
	if err != nil {
		return nil, fmt.Errorf("make the limiter: %w", err)
	}
	names := b.names
	return func(ctx context.Context, key int) (bool, error) {
		limited, _, err := limiter.RateLimitCtx(ctx, names[key], 1)
		return err == nil && !limited, err
	}, nil
}

// zero is go-zero's own client, which its limiters insist on.
func (b *bed) zero() (*zeroredis.Redis, error) {
	client, err := zeroredis.NewRedis(zeroredis.RedisConf{
		Host: b.addr, Type: zeroredis.NodeType, Protocol: 3, MaintNotifications: "disabled", PingTimeout: time.Second,
	})
	if err != nil {
		return nil, fmt.Errorf("make go-zero's client: %w", err)
	}
	return client, nil
}

func periodLimit(b *bed, q quota) (decide, error) {
	client, err := b.zero()
	if err != nil {
		return nil, err
	}
	limiter := limit.NewPeriodLimit(int(q.per/time.Second), int(q.limit), client, "period"+b.prefix)
	names := b.names
	return func(ctx context.Context, key int) (bool, error) {
		code, err := limiter.TakeCtx(ctx, names[key])
		return code == limit.Allowed || code == limit.HitQuota, err
	}, nil
}

// tokenLimit refills a whole token a second at least, for it knows no lower rate. It hides a Redis that fails behind a
// limiter of this process; the reads per decision tell.
func tokenLimit(b *bed, q quota) (decide, error) {
	client, err := b.zero()
	if err != nil {
		return nil, err
	}
	limiters := make([]*limit.TokenLimiter, len(b.names))
	for i, name := range b.names {
		limiters[i] = limit.NewTokenLimiter(1, int(q.limit), client, "token"+b.prefix+name)
	}
	return func(ctx context.Context, key int) (bool, error) {
		return limiters[key].AllowCtx(ctx), nil
	}, nil
}

func prefixed(names []string, prefix string) []string {
	all := make([]string, len(names))
	for i, name := range names {
		all[i] = prefix + name
	}
	return all
}

// floors is what is trivial and counts nothing right.
func floors() []line {
	script := redis.NewScript(`
local at = tonumber(redis.call('GET', KEYS[1]) or 0) + 1
redis.call('SET', KEYS[1], at, 'PX', '3600000')
return at`)
	return []line{
		{name: "INCR", kind: measure.Floor, cluster: true, allowedOnly: true,
			make: func(b *bed, _ quota) (decide, error) {
				names := prefixed(b.names, "incr"+b.prefix)
				return func(ctx context.Context, key int) (bool, error) {
					err := b.client.Incr(ctx, names[key]).Err()
					return err == nil, err
				}, nil
			}},
		{name: "EVALSHA of a GET and a SET PX", kind: measure.Floor, cluster: true, allowedOnly: true, alone: true,
			make: func(b *bed, _ quota) (decide, error) {
				names := prefixed(b.names, "script"+b.prefix)
				return func(ctx context.Context, key int) (bool, error) {
					err := script.Run(ctx, b.client, []string{names[key]}).Err()
					return err == nil, err
				}, nil
			}},
		{name: "the EVALSHA of a TokenBucket", kind: measure.Floor, allowedOnly: true, make: sending},
		{
			name: "one EVALSHA for all who wait, a GET and a SET PX each",
			kind: measure.Floor, allowedOnly: true, make: sharing,
		},
	}
}
