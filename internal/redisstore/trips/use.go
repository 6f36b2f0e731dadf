package trips

import "time"

// Use is what the round trips to one server have carried, without probes and
// renewals of leases, which pass the queues.
type Use struct {
	Node   string // the server's address
	Trips  uint64
	Failed uint64 // trips that the server did not answer
	Calls  uint64 // of all trips
	Time   time.Duration
}

func (u *Use) add(t *trip, took time.Duration, err error) {
	u.Trips++
	u.Calls += uint64(len(t.calls))
	u.Time += took
	if err != nil {
		u.Failed++
	}
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
