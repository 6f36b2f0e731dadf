package redisstore

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/algorithm"
	"github.com/headgate/headgate/internal/deadline"
	"github.com/headgate/headgate/internal/request"
)

// call is what one caller asks of a server: requests, items of a filter, or one operation whose
// arguments the caller has written, such as those on leases.
type call struct {
	outermost string // part of its keys, which picks the hash slot

	requests []request.Request
	merges   bool // the one request merges with equal ones
	alone    bool // shares its script with no other
	words    int  // of the reply
	weight   int  // words, and what the script does without telling

	filter filterCall // if it asks a filter

	arguments          // KEYS and ARGV of an operation on leases; the command of another operation
	script    *script  // of the operation
	acquires  string   // the id of the slot that it asks for
	releases  []string // the ids of the slots that it gives back
	insists   bool     // is sent although the server is known to fail
	mixed     bool     // the reply holds texts too

	ctx     context.Context // of the caller
	entered time.Time
	turn    time.Time // until then it waits for its turn at a server that answers
	end     time.Time // until then it waits for a server that does not

	reply    []int64 // until the caller has it
	values   []any   // the reply, if it is mixed
	err      error
	why      error // it has left
	panicked any
	state    callState     // the queue's lock guards it
	told     chan struct{} // is sent to when the call is answered or has left
}

type callState uint8

const (
	callWaits   callState = iota
	callLeads             // its caller sends it
	callEncodes           // the sender reads its requests
	callSent
	callAnswered
	callLeft
)

// leaseWeight is the weight of an operation on leases. It takes the server 5 µs at a key that nobody
// else uses, 15 µs beside other holders, and 30 µs in a queue.
const leaseWeight = 10

// shortWeight is the weight of an operation on leases in the short form, which takes the server 2 µs.
const shortWeight = 4

// acquireCall returns the call of a decision.
func (s *Store) acquireCall(ctx context.Context, requests []request.Request) *call {
	k := s.newCall()
	k.requests = requests
	k.outermost = requests[0].Charges[0].Outermost()
	slot := requests[0].Slot
	k.alone = requests[0].Alone()
	k.merges = len(requests) == 1 && mergeable(&requests[0])
	for i := range requests {
		r := &requests[i]
		k.words += r.Words()
		k.weight += r.Words()
		if r.Op == algorithm.Give {
			k.weight += len(r.Charges)
		}
	}
	if k.alone {
		k.weight += leaseWeight
	}
	if slot != nil {
		k.weight += leaseWeight
		k.acquires = slot.Request.ID
	}
	k.bound(ctx, s.Timeout)
	return k
}

// bound gives the call its time: half of it to wait for its turn, so that the other half is left
// for the round trip.
func (k *call) bound(ctx context.Context, timeout time.Duration) {
	now := time.Now()
	k.end = now.Add(timeout)
	if at, ok := deadline.Untimed(ctx); ok && at.Before(k.end) {
		k.end = at
	}
	k.turn = now.Add(k.end.Sub(now) / 2)
}

// newCall returns an empty call, perhaps one that was released.
func (s *Store) newCall() *call {
	if k, ok := s.calls.Get().(*call); ok {
		return k
	}
	return &call{told: make(chan struct{}, 1)}
}

// release lets a call be used again, unless its caller has left: a sender may still hold it then. A
// client whose calls may be left behind may still hold the arguments.
func (s *Store) release(k *call) {
	if k.state == callLeft {
		return
	}
	var own arguments
	if s.inline {
		k.clear(0)
		own = k.arguments
	}
	*k = call{told: k.told, arguments: own}
	s.calls.Put(k)
}

// attempts is how often a request is sent if a calendar's period ends on the way.
const attempts = 3

// Decide implements request.Store. Requests that take a slot share no script with others.
func (s *Store) Decide(ctx context.Context, requests []request.Request) error {
	k := s.acquireCall(ctx, requests)
	defer s.release(k)
	return s.outcome(ctx, s.decide(ctx, k))
}

// Insist is Decide for a server that is known to fail, and for one whose connections are slow to
// begin.
func (s *Store) Insist(ctx context.Context, requests []request.Request) error {
	k := s.acquireCall(ctx, requests)
	defer s.release(k)
	k.insists = true
	k.turn = time.Now().Add(s.patience)
	k.end = k.turn
	return s.decide(ctx, k)
}

func (s *Store) decide(ctx context.Context, k *call) error {
	for range attempts {
		if now := s.serverTime.Load(); now != 0 {
			// One limit of a period that has passed would keep the whole batch from being decided.
			renewPeriods(k.requests, now)
		}
		if err := s.ask(ctx, k); err != nil {
			return err
		}
		now, passed := periodPassed(k.reply)
		if !passed {
			err := k.decode(k.reply)
			if slot := k.requests[0].Slot; err == nil && slot != nil && slot.Answered && !slot.Grant.Lone {
				s.crowds.note(slot.Scope, true)
			}
			return err
		}
		s.serverTime.Store(now)
		if k.requests[0].IsBound() {
			return request.ErrPeriod
		}
		renewPeriods(k.requests, now)
	}
	return ErrPeriod
}

// ask sends a call until it is answered. A call that a batch cannot hold goes alone, and one whose
// slot moves from server to server goes again.
func (s *Store) ask(ctx context.Context, k *call) error {
	if err := ctx.Err(); err != nil {
		return request.Unsent{Err: err}
	}
	for pause := time.Millisecond; ; pause = min(2*pause, 20*time.Millisecond) {
		n := s.nodeOf(ctx, k.outermost)
		if !k.insists && n.circuit.IsOpen() {
			return request.Unsent{Err: ErrOpen}
		}
		err := n.queue.do(ctx, k)
		switch {
		case err == nil || k.state == callLeft:
			return err
		case errors.As(err, new(errSplit)):
			k.alone = true
			continue
		case !redis.HasErrorPrefix(err, "TRYAGAIN") || time.Until(k.end) < pause:
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// nodeOf returns the server of an outermost part. On a cluster each has its own, so that a server
// that stands still holds up no calls to others.
func (s *Store) nodeOf(ctx context.Context, outermost string) *node {
	client, ok := s.Client.(*redis.ClusterClient)
	if !ok {
		return s.server
	}
	var master *redis.Client
	var err error
	switch {
	case s.routed.Load():
		master, err = client.MasterForKey(ctx, outermost)
	case s.server.circuit.IsOpen():
		return s.server
	default:
		if master, err = s.firstFind(ctx, client, outermost); err != nil {
			s.server.doubt(outermost)
		}
	}
	if err != nil {
		return s.server
	}
	addr := master.Options().Addr
	if n, ok := s.nodes.Load(addr); ok && n.(*node).client == master {
		return n.(*node)
	}
	n := newNode(s, addr, master)
	s.nodes.Store(addr, n)
	return n
}

// firstFind asks the client for the server of a key. The client asks the cluster.
func (s *Store) firstFind(ctx context.Context, client *redis.ClusterClient, outermost string) (*redis.Client, error) {
	var found *redis.Client // a call that is left behind writes it at any time
	err := s.within(ctx, func(ctx context.Context) (err error) {
		found, err = client.MasterForKey(ctx, outermost)
		return err
	})
	if err != nil {
		return nil, err
	}
	s.routed.Store(true)
	return found, nil
}

// isOwn reports whether the call is an operation whose arguments are written.
func (k *call) isOwn() bool { return k.script != nil }

// brief returns the number of words of a brief reply, or 0 if the script may give none.
func (k *call) brief() int {
	if !k.merges {
		return 0
	}
	return len(k.requests[0].Charges)
}

// maxMerged is the largest number of units of a charge that merges: sums of a batch stay exact.
const maxMerged = 1 << 40

// mergeable reports whether equal requests can be decided as one. Then each caller needs to know
// nothing but its reply. It doubles the throughput of a hot key and saves three quarters of the
// server's work (BenchmarkThroughput/hot).
func mergeable(r *request.Request) bool {
	if r.Op != algorithm.Decide || r.Slot != nil || r.Receipts {
		return false
	}
	for _, c := range r.Charges {
		if _, ok := c.Limit.(algorithm.Mergeable); !ok || c.Shadow || c.HoldFor > 0 || c.Adjusts || c.Units < 1 ||
			c.Units > min(maxMerged, c.Limit.Capacity()) {
			return false
		}
	}
	return true
}
