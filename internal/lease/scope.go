// Package lease grants, renews and releases the leases of a semaphore in plain Go. It is the memory
// store's implementation, and the model that lua/lease/lease.lua is tested against: for equal
// operations at equal times both give equal replies and keep equal states. The contract at the head
// of lua/lease/lease.lua defines the queues and the messages.
package lease

// Claim bounds the first lease of a granted waiter, in microseconds. The waiter renews it to its
// full length; a waiter that has died frees its slot after that time.
const Claim = 5_000_000

// Scope is the state of all nodes that share an outermost key. The zero value is idle, as is a scope
// of NewScope. It is not safe for concurrent use.
type Scope struct {
	holders  deadlines // of leases
	patience deadlines // of waiters' places; "!id": of eviction marks
	records  map[string]*record
	named    map[string]string   // by innermost node and name: the id that holds or waits
	waiters  map[string][]place  // by node, in FIFO order
	ready    map[string][]place  // by node: its ready children
	readyAt  map[string]position // by ready node
	used     map[string]int64    // by node: weight in use
	newest   map[string]newest   // by node, while somebody waits at it or below it
	accounts
	token  int64 // the last one granted, also of a scope that was idle since
	ticket int64 // the last one given while somebody waits
	hold   int64 // mean, in microseconds
	last   int64 // time of the last operation
	ahead  int64 // how far the scope's clock runs ahead of the caller's

	now int64

	// Tell, if not nil, is called with every message to publish.
	Tell func(channel, message string)
}

// newest is the limit at a node in the newest request that names it. It holds for all that wait
// there, so that a raised limit is not kept from callers behind one of the old limit.
type newest struct{ limit, waiters int64 }

// accounts are kept while somebody waits, by class and node. A child has one while it waits or holds, and
// after that until its parent's clock passes it.
type accounts struct {
	account map[string]int64
	clock   map[string]int64   // by parent: a child that comes from idle starts there
	debts   map[string][]place // by parent: idle children whose accounts are ahead of its clock
	since   int64              // when the first account was opened, 0 if there is none
}

func newAccounts() accounts {
	return accounts{
		account: make(map[string]int64), clock: make(map[string]int64), debts: make(map[string][]place),
	}
}

// NewScope returns an idle scope whose tokens are above a given one. It calls tell with every message
// to publish.
func NewScope(token int64, tell func(channel, message string)) *Scope {
	return &Scope{token: token, last: token, Tell: tell}
}

// Token returns the last token granted, or 0.
func (s *Scope) Token() int64 { return s.token }

// Idle reports whether the scope has no holder, no waiter and no eviction mark.
func (s *Scope) Idle() bool { return s.holders.len()+s.patience.len() == 0 }

func (s *Scope) hasRoomAt(r *record, node string) bool {
	for _, l := range r.Levels {
		if l.Node == node {
			limit := l.Limit
			if n, waits := s.newest[node]; waits {
				limit = n.limit
			}
			// A waiter whose weight is above a lowered limit runs alone.
			return s.used[node]+l.Weight <= max(limit, l.Weight)
		}
	}
	return true
}

func (s *Scope) hasRoom(r *record) bool {
	for _, l := range r.Levels {
		if !s.hasRoomAt(r, l.Node) {
			return false
		}
	}
	return true
}

func (s *Scope) addWeight(r *record, sign int64) {
	for _, l := range r.Levels {
		if s.used[l.Node] += sign * l.Weight; s.used[l.Node] == 0 {
			delete(s.used, l.Node)
		}
	}
}

func (s *Scope) grant(id string, r *record, lease int64) {
	r.token, r.granted = max(s.token+1, s.now), s.now
	s.token = r.token
	s.holders.put(id, s.now+lease)
	s.addWeight(r, 1)
}

// extend moves the end of a lease, never back, and returns it, at least now.
func (s *Scope) extend(id string, r *record, ends, lease int64) int64 {
	wanted := s.now + lease
	if r.Longest > 0 {
		wanted = min(wanted, r.granted+r.Longest)
	}
	if wanted > ends {
		s.holders.put(id, wanted)
	}
	return max(wanted, ends, s.now)
}

func (s *Scope) publish(channel, message string) {
	if s.Tell != nil {
		s.Tell(channel, message)
	}
}

// evicted reports whether an id that neither holds nor waits has an eviction mark.
func (s *Scope) evicted(id string) bool {
	until, known := s.patience.at("!" + id)
	return known && until > s.now
}
