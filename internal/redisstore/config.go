package redisstore

import (
	"context"

	"github.com/headgate/headgate/internal/redisstore/trips"
	"github.com/headgate/headgate/internal/request"
)

// Config configures a Store.
type Config struct {
	// Config is that of the Servers. Their Probe is a call of the Store's.
	trips.Config
	Prefix string // of every name, with the colon behind it
	// Probe returns a request on a key of that outermost part that decides nothing for anybody.
	Probe func(outermost string) request.Request
	// Reword returns the error that callers see in place of one of a Store, of its Leases or of its
	// Filters. Its context is the caller's. A nil Reword leaves errors as they are, and so does
	// Insist.
	Reword func(ctx context.Context, err error) error
	// Clock takes the place of Redis's own, in microseconds, if Script returns scripts on a clock that
	// is passed as their last ARGV. Both are nil in production, where replicas with different clocks
	// would disagree.
	Clock  func() int64
	Script func(name string) string
}
