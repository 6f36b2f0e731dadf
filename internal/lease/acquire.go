package lease

import "slices"

// Acquire requests a lease. A second request with the same id extends a held lease, or keeps a
// waiter's place in the queue.
func (s *Scope) Acquire(now int64, q Request) Grant {
	s.begin(now)
	defer s.finish()
	status := Waiting
	r := s.records[q.ID]
	_, held := s.holders.at(q.ID)
	switch {
	case held:
		status = Held
	case r != nil:
		if !q.Background {
			s.hasten(r)
		}
		r.Request = q
		s.patience.put(q.ID, s.now+q.Patience)
		s.refresh(r.Levels)
		s.promote(q.Levels[0].Node, q.ID)
	case s.evicted(q.ID):
		status = Evicted
	default:
		r = &record{ticket: "-", Request: q}
		if s.succeed(r) {
			s.adoptLimits(r.Levels)
			status = Held
		} else {
			status = s.admit(r)
		}
	}
	return s.answer(status, r, &q)
}

// succeed evicts the earlier id of the caller's name, and gives a slot of the same nodes and weights to
// the caller. It reports whether it did.
func (s *Scope) succeed(r *record) bool {
	before := s.named[nameField(&r.Request)]
	if before == "" {
		return false
	}
	was, old := s.evict(before)
	same := was == 1 && slices.EqualFunc(old.Levels, r.Levels, func(a, b Level) bool {
		return a.Node == b.Node && a.Weight == b.Weight
	})
	if same {
		s.keep(r)
		s.grant(r.ID, r, r.Lease)
		s.refresh(r.Levels)
	}
	s.promote(old.Levels[0].Node, "")
	return same
}

// keep keeps the record of a new holder or waiter.
func (s *Scope) keep(r *record) {
	s.records[r.ID] = r
	if field := nameField(&r.Request); field != "" {
		s.named[field] = r.ID
	}
}

// admit grants a lease to a new caller, queues it, or refuses it.
func (s *Scope) admit(r *record) Status {
	s.adoptLimits(r.Levels)
	fits := s.hasRoom(r)
	first := fits
	for _, l := range r.Levels {
		first = first && s.head(l.Node) == ""
	}
	switch {
	case first:
		s.keep(r)
		s.grant(r.ID, r, r.Lease)
		return Held
	case r.Waiters == 0 && !fits:
		return Full
	case r.Waiters > 0 && s.before(r) >= r.Waiters:
		return QueueFull
	}
	return s.queue(r, fits)
}

// queue queues a new caller, whether or not it may wait: granting then goes by the queues alone.
func (s *Scope) queue(r *record, fits bool) Status {
	id, root, leaf := r.ID, r.Levels[0].Node, r.Levels[len(r.Levels)-1].Node
	s.ticket = max(s.ticket+1, s.now)
	r.ticket = digits(s.ticket)
	if r.Background {
		r.ticket = digits(s.ticket + later)
	}
	s.keep(r)
	enqueue(s.waiters, leaf, place{r.ticket, id})
	s.countWaiter(r, 1)
	s.patience.put(id, s.now+r.Patience)
	isFirst := s.waiters[leaf][0].id == id && s.head(leaf) == id
	if isFirst {
		s.refresh(r.Levels)
	}
	// Otherwise the new waiter makes no other ready.
	if fits || isFirst && len(r.Levels) > 1 {
		s.promote(root, id)
	}
	if _, held := s.holders.at(id); r.Waiters == 0 && !held {
		s.drop(id)
		s.promote(root, "") // the ranks are new
		return Full
	}
	return Waiting
}

// answer returns the reply to a caller, whose record is nil if it was refused.
func (s *Scope) answer(status Status, r *record, q *Request) Grant {
	g := Grant{Status: status, Token: s.token, Next: -1, Hold: s.hold}
	if at, held := s.holders.at(q.ID); held {
		g.Status, g.Token = Held, r.token
		g.Left = s.extend(q.ID, r, at, r.Lease) - s.now
	}
	if g.Status == Waiting {
		leaf := q.Levels[len(q.Levels)-1].Node
		i, _ := slices.BinarySearchFunc(s.waiters[leaf], place{r.ticket, q.ID}, place.compare)
		g.Position = int64(i)
	}
	if at, ok := s.holders.first(); ok && g.Status != Held && g.Position == 0 {
		g.Next = max(0, at-s.now)
	}
	for _, l := range q.Levels {
		g.Used = append(g.Used, s.used[l.Node])
	}
	return g
}

// Renew extends leases. The result is the time until each ends, in microseconds: at least 1 for a
// held lease, 0 for an unknown id, -1 for an evicted one.
func (s *Scope) Renew(now, lease int64, ids []string) []int64 {
	s.begin(now)
	defer s.finish()
	left := make([]int64, len(ids))
	for i, id := range ids {
		ends, held := s.holders.at(id)
		if !held {
			if s.evicted(id) {
				left[i] = -1
			}
			continue
		}
		left[i] = max(1, s.extend(id, s.records[id], ends, lease)-s.now)
	}
	return left
}
