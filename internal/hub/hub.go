// Package hub is what a Gate lends the packages that stand beside its own: its stores, its keeper
// of leases, its tasks and its names.
package hub

import (
	"context"
	"iter"
	"time"

	"github.com/headgate/headgate/internal/breaker"
	"github.com/headgate/headgate/internal/keeper"
	"github.com/headgate/headgate/internal/redisstore/trips"
	"github.com/headgate/headgate/internal/request"
)

// Hub is what one Gate lends. It must not be changed.
type Hub struct {
	Prefix   string // of the names of keys, with its colon
	Replicas int
	Tasks    *breaker.Tasks
	Keeper   *keeper.Keeper
	// Leases and LocalLeases are the same in memory. LocalLeases grant while Redis fails.
	Leases, LocalLeases request.LeaseStore
	Filters             request.FilterStore
	// Nodes returns the servers of Redis that calls have gone to, and whether the circuit of each is
	// open. Client is the redis.UniversalClient of the user. Its type is any, because the linker keeps
	// go-redis in every program whose Gates have a field of that type. Both are nil in memory.
	Nodes  func() iter.Seq2[string, bool]
	Client any
	Closed func() bool
	// Clock is that of a Gate in memory, in microseconds since 1970. It is nil for one on Redis.
	Clock func() int64
	// Use returns what round trips have carried. It is nil in memory.
	Use func() []trips.Use
	// Observe is core.Config.Observe. It is nil if nobody observes.
	Observe func(context.Context, Event)
}

// Event is a core.Event.
type Event = interface{ EventName() string }

// Pass lets a package of this module call the functions Inside of packages core and semaphore. No
// other module can make one.
type Pass struct{}

// Cooldown is a block that Cool begins.
type Cooldown struct {
	// For is how long it lasts, unless the block that runs lasts longer. If it is 0, the growth says,
	// and nothing is blocked where a block has begun in the time Age before.
	For, Age time.Duration
	Reason   int64 // 0 to 9
}
