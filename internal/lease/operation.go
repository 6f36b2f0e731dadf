package lease

// begin moves the scope's clock to now, never back, and drops the leases and places that have
// expired.
func (s *Scope) begin(now int64) {
	if s.records == nil {
		*s = Scope{
			holders: newDeadlines(), patience: newDeadlines(),
			records: make(map[string]*record), named: make(map[string]string), waiters: make(map[string][]place),
			ready: make(map[string][]place), readyAt: make(map[string]position),
			used: make(map[string]int64), newest: make(map[string]newest), accounts: newAccounts(),
			token: s.token, last: s.last, Tell: s.Tell,
		}
	}
	if now+s.ahead < s.last {
		s.ahead = s.last - now
	}
	s.now = now + s.ahead
	roots := make(map[string]bool)
	for _, d := range []*deadlines{&s.holders, &s.patience} {
		for _, id := range d.expired(s.now, maxExpired) {
			if _, r := s.drop(id); r != nil {
				roots[r.Levels[0].Node] = true
			} else {
				d.remove(id)
			}
		}
	}
	s.promoteAll(roots)
}

// finish resets an idle scope to its last token, as the script does. The token is a time too: the
// scope's clock does not step back behind it.
func (s *Scope) finish() {
	s.last = s.now
	if s.patience.len() == 0 {
		s.ticket, s.accounts = 0, newAccounts()
		clear(s.ready) // requests may have placed a node below different parents
		clear(s.readyAt)
	}
	if s.Idle() {
		*s = *NewScope(s.token, s.Tell)
	}
}
