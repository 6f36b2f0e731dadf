package lease

// MaxLimit is the largest limit of a level.
const MaxLimit = 1_000_000_000_000

// Level is one of the caps that a lease counts against. Limit and Weight are at least 1.
type Level struct {
	Node          string
	Limit, Weight int64
}

// Request asks for a lease. Times are in microseconds. No text is empty or holds a space.
type Request struct {
	ID, Channel string
	Lease       int64 // how long a lease lives without being renewed
	Patience    int64 // how long a waiter waits without asking again
	Longest     int64 // how long a lease is renewed at most; 0 for ever
	Waiters     int64 // how many wait at a node at most; 0 not to wait
	Priority    int   // 0 to 9, the lowest first
	Metadata    string
	Levels      []Level // outermost first
}

// Status is what came of a request.
type Status int64

// What comes of a request.
const (
	Held      Status = 1
	Waiting   Status = 0
	Full      Status = -1
	QueueFull Status = -2
	Evicted   Status = -3
)

// Grant is the answer to a request.
type Grant struct {
	Status   Status
	Token    int64   // if it is held, else the last one given
	Position int64   // in its queue, from 0
	Next     int64   // for who was refused or waits first, until the first lease of the scope ends; else, or if there is none, -1
	Hold     int64   // mean, 0 if not known
	Left     int64   // until the lease ends, 0 if none is held
	Used     []int64 // at each level
}
