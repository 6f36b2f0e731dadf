// Package trips takes calls to Redis and back. Calls that wait for the same server share a round
// trip, and those whose parcels join share a script. It keeps callers from waiting for a server
// that is known to fail, and sends every script at most once.
package trips

import (
	"context"
	"errors"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/request"
)

// Servers are the servers that a client knows. Each has a queue and a circuit of its own, so that a
// server that stalls holds up no calls to others. It is safe for concurrent use.
type Servers struct {
	link
	cluster *redis.ClusterClient // the client, or nil
	first   *node                // the client's only server; otherwise for keys whose server is not known
	nodes   sync.Map             // address to *node
	routed  atomic.Bool          // the client knows the cluster
}

// New returns the Servers of a client. It sends nothing.
func New(cfg Config) *Servers {
	s := new(Servers)
	s.link.init(cfg)
	s.cluster, _ = cfg.Client.(*redis.ClusterClient)
	one, _ := cfg.Client.(*redis.Client)
	addr := ""
	if one != nil {
		addr = one.Options().Addr
	}
	s.first = newNode(&s.link, addr, one, s.replaced)
	return s
}

// Do sends a call until it is answered. A call that a batch cannot hold goes alone, and one whose
// slot moves from server to server goes again. The call's caller may leave before, because its
// context or its time ends. The error of a call that was not sent by then, or that has certainly
// changed nothing, is a request.Unsent.
func (s *Servers) Do(ctx context.Context, k *Call) error {
	if err := ctx.Err(); err != nil {
		return request.Unsent{Err: err}
	}
	for pause := time.Millisecond; ; pause = min(2*pause, 20*time.Millisecond) {
		n := s.nodeOf(ctx, k.Outermost)
		if !k.Insists && n.circuit.IsOpen() {
			return request.Unsent{Err: ErrOpen}
		}
		switch err := n.queue.do(ctx, k); {
		case err == nil || k.state == stateLeft:
			return err
		case errors.As(err, new(errSplit)):
			k.alone = true
		case redis.HasErrorPrefix(err, "TRYAGAIN") && time.Until(k.End) >= pause:
			if err := sleep(ctx, pause); err != nil {
				return request.Unsent{Err: err}
			}
		case wroteNothing(err):
			return request.Unsent{Err: err}
		default:
			return err
		}
	}
}

// sleep pauses, or returns the error of ctx if that ends.
func sleep(ctx context.Context, pause time.Duration) error {
	select {
	case <-time.After(pause):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// DoAll sends calls that insist, and returns their errors. They wait for no other call, and share a
// round trip to each server, on a connection of their own if own is set. It ends by the deadline of
// ctx, and not with ctx. A call that Do would send again is left to Do.
func (s *Servers) DoAll(ctx context.Context, calls []*Call, own bool) []error {
	at := make(map[*node][]*Call)
	for _, k := range calls {
		n := s.nodeOf(ctx, k.Outermost)
		at[n] = append(at[n], k)
	}
	var others sync.WaitGroup
	for n, some := range at {
		if len(at) == 1 {
			n.queue.doAll(ctx, some, own)
		} else {
			others.Go(func() { n.queue.doAll(ctx, some, own) })
		}
	}
	others.Wait()
	errs := make([]error, len(calls))
	for i, k := range calls {
		errs[i] = k.err
		if errors.As(k.err, new(errSplit)) || redis.HasErrorPrefix(k.err, "TRYAGAIN") {
			others.Go(func() { errs[i] = s.Do(ctx, k) })
		}
	}
	others.Wait()
	return errs
}

// Server returns the address of the server of an outermost part, and whether that is asked.
func (s *Servers) Server(ctx context.Context, outermost string) (addr string, asked bool) {
	n := s.nodeOf(ctx, outermost)
	return n.addr, !n.circuit.IsOpen()
}

// Nodes returns an iterator over the servers that calls have gone to, and whether the circuit of each
// is open. An address is empty if the client does not tell it.
func (s *Servers) Nodes() iter.Seq2[string, bool] {
	return func(yield func(addr string, open bool) bool) {
		if s.cluster == nil || !s.routed.Load() {
			yield(s.first.addr, s.first.circuit.IsOpen())
			return
		}
		s.nodes.Range(func(addr, n any) bool { return yield(addr.(string), n.(*node).circuit.IsOpen()) })
	}
}

// IsQuick reports whether the server of an outermost part is known and was quick to answer last.
func (s *Servers) IsQuick(ctx context.Context, outermost string) bool {
	if s.cluster != nil && !s.routed.Load() {
		return false
	}
	return s.nodeOf(ctx, outermost).queue.isQuick()
}

// nodeOf returns the server of an outermost part.
func (s *Servers) nodeOf(ctx context.Context, outermost string) *node {
	if s.cluster == nil {
		return s.first
	}
	var master *redis.Client
	var err error
	switch {
	case s.routed.Load():
		master, err = s.cluster.MasterForKey(ctx, outermost)
	case s.first.circuit.IsOpen():
		return s.first
	default:
		if master, err = s.firstFind(ctx, outermost); err != nil {
			s.first.doubt(outermost)
		}
	}
	if err != nil {
		return s.first
	}
	addr := master.Options().Addr
	n, ok := s.nodes.Load(addr)
	if !ok {
		n, _ = s.nodes.LoadOrStore(addr, newNode(&s.link, addr, master, s.replaced))
	}
	if n.(*node).client != master { // the client has made a new one for the address
		n = newNode(&s.link, addr, master, s.replaced)
		s.nodes.Store(addr, n)
	}
	return n.(*node)
}

// firstFind asks the client for the server of a key. The client asks the cluster.
func (s *Servers) firstFind(ctx context.Context, outermost string) (*redis.Client, error) {
	var found *redis.Client // a call that is left behind writes it at any time
	err := s.Within(ctx, func(ctx context.Context) (err error) {
		found, err = s.cluster.MasterForKey(ctx, outermost)
		return err
	})
	if err != nil {
		return nil, err
	}
	s.routed.Store(true)
	return found, nil
}

// replaced forgets a server that fails if another has its keys, and otherwise looks for one.
func (s *Servers) replaced(n *node) bool {
	if s.cluster == nil {
		return false
	}
	ctx, suspect := context.Background(), n.suspect.Load().(string)
	if n.client != nil {
		if known, ok := s.nodes.Load(n.addr); !ok || known != n {
			return true // earlier; its last calls doubt it still
		}
		master, err := s.cluster.MasterForKey(ctx, suspect)
		if err == nil && master.Options().Addr != n.addr && s.nodes.CompareAndDelete(n.addr, n) {
			n.notify(Closed, nil)
			return true
		}
	}
	s.cluster.ReloadState(ctx)
	return false
}

// Use is what the round trips to one server have carried, without probes, which pass the queues.
type Use struct {
	Node   string // the server's address
	Trips  uint64
	Failed uint64 // trips that the server did not answer
	Calls  uint64 // of all trips
	Time   time.Duration
}

func (u *Use) add(t *trip, took time.Duration) {
	u.Trips++
	u.Calls += uint64(len(t.calls))
	u.Time += took
}

// Use returns what the round trips to each server have carried. A server that others have replaced
// is missing.
func (s *Servers) Use() []Use {
	all := []Use{s.first.use()}
	s.nodes.Range(func(_, n any) bool {
		all = append(all, n.(*node).use())
		return true
	})
	return all
}

func (n *node) use() Use {
	n.queue.mu.Lock()
	defer n.queue.mu.Unlock()
	u := n.queue.use
	u.Node = n.addr
	return u
}
