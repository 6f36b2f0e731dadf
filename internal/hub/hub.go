// Package hub is what a Gate lends the packages that stand beside its own: its stores, its keeper
// of leases, its tasks and its names. Package core sets the functions when it is initialized, so
// that none of this is a part of its public API.
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
	// Answers reports whether the server of an outermost part is asked.
	Answers func(ctx context.Context, outermost string) bool
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

// These belong to package core. The types of functions whose type is any stand beside them.
var (
	// Of returns what a *core.Gate lends. It is nil for a nil Gate and for the zero value.
	Of func(gate any) *Hub

	// CheckName returns what is wrong with a name of at most that many bytes.
	CheckName func(name string, longest int) error

	// KeyAt returns the core.Key whose String is path.
	KeyAt func(path string) any

	// Admit decides charges and takes a slot, both or neither. If the store can, it does both in one
	// step and answers the slot. Then, or if the charges are spent and the slot is to be taken
	// alone, Admit calls take with what was spent, and with the error by which the store failed, if
	// it did. It refunds the charges unless take returns true. It leaves the Decision in d, which is
	// zero before.
	//
	//	func(
	//		ctx context.Context, g *core.Gate, slot *request.Slot, outermost string,
	//		d *core.Decision, charges []core.Charge,
	//		take func(paid *core.Reservation, cause error) bool,
	//	) error
	Admit any

	// AdmitSlot is Semaphore.Admit, but keeps the charges, and leaves the Decision in d, which is zero
	// before. A Decision is large: with copies of it in the frames of several functions, a request
	// does not fit in a stack of 8 KiB. Package semaphore sets AdmitSlot.
	//
	//	func(
	//		s *semaphore.Semaphore, ctx context.Context, r semaphore.Request, d *core.Decision,
	//		charges []core.Charge,
	//	) (*semaphore.Lease, error)
	AdmitSlot any

	// Mark spends one strike, which blocks, on a key under a policy whose Algorithm is a core.Block,
	// unless the key is blocked. It keeps the answer, which may be empty, as long as the block lasts.
	// It works on a closed Gate too.
	//
	//	func(context.Context, *core.Gate, *core.Policy, core.Key, []byte) error
	Mark any

	// Answer returns what Mark has kept, or nothing.
	//
	//	func(context.Context, *core.Gate, *core.Policy, core.Key) ([]byte, error)
	Answer any

	// Forgive lets the next block of a key under a policy whose Algorithm is a core.Block be as short
	// as the first one, unless the key is blocked.
	//
	//	func(context.Context, *core.Gate, *core.Policy, core.Key) error
	Forgive any

	// Cool blocks a key under a policy whose Algorithm is a core.Block, for longer each time as growth
	// says, or as the Cooldown does, and returns for how long it is blocked then. Reason returns that of
	// the block that denies. A process that has learnt of a block with a reason heeds it while Redis does
	// not answer, and remembers it whatever else is charged.
	//
	//	func(
	//		ctx context.Context, g *core.Gate, p *core.Policy, key core.Key, growth core.Block, c Cooldown,
	//	) (rest time.Duration, err error)
	//	func(core.Result) int64
	Cool, Reason any

	// Give gives units of a TokenBucket, a LeakyBucket or a FixedWindow back, whoever spent them, at
	// most those that are used, or charges them if the number is negative. A quota is charged by
	// Gate.Adjust alone. It returns by how many units less is used then.
	//
	//	func(g *core.Gate, ctx context.Context, c core.Charge, units int64) (given int64, err error)
	Give any

	// State has a *core.Gate on Redis state a *core.Policy there, as it does with one that it has
	// decided on. StateNothing keeps a new Gate, as that of a tool, from stating any.
	State        func(gate, policy any, planned bool)
	StateNothing func(gate any)

	// Varies reports whether charges of this process under the policy may have limits of their own.
	//
	//	func(*core.Policy) bool
	Varies any

	// Suffix returns what follows the path of a key in the name of what is counted under a policy, such as
	// ":api:tb2". It is empty if nothing is.
	//
	//	func(*core.Policy) string
	Suffix any

	// Entries returns the holders and the waiters of a semaphore below the outermost part of a key, and
	// the time of the store. Package semaphore sets it.
	//
	//	func(context.Context, *semaphore.Semaphore, core.Key) (int64, []lease.Entry, error)
	Entries any

	// Waits reports whether requests with a MaxWait have asked a semaphore in this process, and
	// whether ones without have. Package semaphore sets it.
	//
	//	func(*semaphore.Semaphore) (waits, refuses bool)
	Waits any
)

// Cooldown is a block that Cool begins.
type Cooldown struct {
	// For is how long it lasts, unless the block that runs lasts longer. If it is 0, the growth says,
	// and nothing is blocked where a block has begun in the time Age before.
	For, Age time.Duration
	Reason   int64 // 0 to 9
}
