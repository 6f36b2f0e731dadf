package lease

import "math"

// Release gives leases up and takes waiters out of their queues. It says for each which it was: 1 or 2, 0 if neither.
func (s *Scope) Release(now int64, ids []string) []int64 { return s.end(now, ids, false) }

// Force does what Release does to others, tells them, and keeps them out for what is left of their leases and one more.
func (s *Scope) Force(now int64, ids []string) []int64 { return s.end(now, ids, true) }

func (s *Scope) end(now int64, ids []string, force bool) []int64 {
	s.begin(now)
	defer s.finish()
	roots, all := make(map[string]bool), make([]int64, len(ids))
	for i, id := range ids {
		ends, held := s.holders.at(id)
		if !held {
			ends, _ = s.patience.at(id)
		}
		was, r := s.drop(id)
		all[i] = was
		if r != nil {
			roots[r.Levels[0].Node] = true
		}
		switch {
		case was == 1 && !force:
			took := s.now - r.granted
			if s.hold == 0 {
				s.hold = took
			} else {
				s.hold += int64(math.Floor(float64(took-s.hold) / 8))
			}
			s.hold = max(1, s.hold)
		case was > 0 && force:
			s.patience.put("!"+id, ends+r.Lease)
			s.tell(r.Channel, "!"+id)
		case was == 0 && !force && s.evicted(id):
			s.patience.remove("!" + id)
		}
	}
	s.promoteAll(roots)
	return all
}

// evicted says whether it was forced out, of who neither holds nor waits.
func (s *Scope) evicted(id string) bool {
	until, known := s.patience.at("!" + id)
	return known && until > s.now
}
