package lease

// Release drops holders and waiters and grants the room they leave. Releasing an evicted id clears its
// eviction mark.
func (s *Scope) Release(now int64, ids []string) { s.dropAll(now, ids, false) }

// Force evicts holders and waiters: it does what Release does, publishes the eviction to them, and
// marks their ids. Acquire refuses a marked id. The mark expires one lease length after the
// holder's lease, or the waiter's place, would have expired. The result is 1 for each id that held, 2
// for each that waited, and 0 for each unknown one.
func (s *Scope) Force(now int64, ids []string) []int64 { return s.dropAll(now, ids, true) }

func (s *Scope) dropAll(now int64, ids []string, force bool) []int64 {
	s.begin(now)
	defer s.finish()
	roots, dropped := make(map[string]bool), make([]int64, len(ids))
	for i, id := range ids {
		drop := s.drop
		if force {
			drop = s.evict
		}
		was, r := drop(id)
		dropped[i] = was
		if r != nil {
			roots[r.Levels[0].Node] = true
		}
		switch {
		case was == 1 && !force:
			s.hold = MeanHold(s.hold, s.now-r.granted)
		case was == 0 && !force && s.evicted(id):
			s.patience.remove("!" + id)
		}
	}
	s.promoteAll(roots)
	return dropped
}

// evict drops a holder or a waiter, tells it so, and marks its id. It returns what drop does.
func (s *Scope) evict(id string) (was int64, r *record) {
	ends, held := s.holders.at(id)
	if !held {
		ends, _ = s.patience.at(id)
	}
	if was, r = s.drop(id); was > 0 {
		s.patience.put("!"+id, ends+r.Lease)
		s.publish(r.Channel, "!"+id)
	}
	return was, r
}
