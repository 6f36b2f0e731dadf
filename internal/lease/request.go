package lease

// MaxLimit is the largest limit of a level.
const MaxLimit = 1_000_000_000_000

// Level is one of the caps that a lease counts against. Limit and Weight are at least 1.
type Level struct {
	Node          string
	Limit, Weight int64
}

// Request asks for a lease. Times are in microseconds. No text is empty or holds a space. A second
// request with the same ID has the same nodes and weights.
type Request struct {
	ID, Channel string
	Lease       int64 // lifetime of the lease without a renewal
	Patience    int64 // lifetime of a waiter's place in the queue without another acquire
	Longest     int64 // longest hold over all renewals; 0 means no bound
	Waiters     int64 // most waiters at the innermost node; 0 means the caller does not wait
	Priority    int   // 0 to 9, lower numbers first
	Metadata    string
	Levels      []Level // outermost first
}

// Status is the outcome of an acquire.
type Status int64

const (
	Held      Status = 1  // the caller holds the lease
	Waiting   Status = 0  // the caller waits in the queue
	Full      Status = -1 // there is no room, and the caller does not wait
	QueueFull Status = -2 // there is no room, and the queue has Request.Waiters waiters
	Evicted   Status = -3 // the id was forced out; see [Scope.Force]
)

// Grant is the reply to an acquire. Times are in microseconds.
type Grant struct {
	Status   Status
	Token    int64 // fencing token if held, otherwise the last one granted
	Position int64 // position in the queue, from 0
	// Next is the time until the scope's first lease ends, for a refused caller or a first waiter.
	// Otherwise, or if nothing is held, it is -1.
	Next int64
	Hold int64   // mean hold, 0 if unknown
	Left int64   // time until the lease ends, 0 if none is held
	Used []int64 // weight in use at each level
}
