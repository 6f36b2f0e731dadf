package redisstore

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/breaker"
	"github.com/headgate/headgate/internal/redisstore/trips"
	"github.com/headgate/headgate/internal/request"
)

// Config configures a Store.
type Config struct {
	Client redis.UniversalClient
	Prefix string // of every name, with the colon behind it
	// Cluster says that one script decides only keys of one hash slot.
	Cluster bool
	// Timeout bounds a decision.
	Timeout time.Duration
	// Tasks run what sends and probes.
	Tasks *breaker.Tasks
	// Probe returns a request on a key of that outermost part that decides nothing for anybody.
	Probe func(outermost string) request.Request
	// Reword returns the error that callers see in place of one of a Store, of its Leases or of its
	// Filters. Its context is the caller's. A nil Reword leaves errors as they are, and so does
	// Insist.
	Reword func(ctx context.Context, err error) error
	// Notify receives what becomes of a server. It may be nil.
	Notify func(context.Context, trips.Notice)
	// Clock takes the place of Redis's own, in microseconds, if Script returns scripts on a clock that
	// is passed as their last ARGV. Both are nil in production, where replicas with different clocks
	// would disagree.
	Clock  func() int64
	Script func(name string) string
}
