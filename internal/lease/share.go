package lease

import (
	"fmt"
	"math"
	"slices"
)

// The room at a node goes to its ready children by fair queueing. The account of a child is the
// slot time that it has used, divided by its share: for each of its leases that has ended, the
// weight multiplied by the time for which it was held. Leases that are held count with the mean
// hold. The next lease goes to the child whose account would then be the lowest.
//
// Accounts are in microseconds of a weight of 1, or of a hundredth of the parent's limit if that is
// above 100.
const (
	parts      = 100                   // of a limit
	maxAccount = 8_000_000_000_000_000 // below 2^53; all slots for 2.5 years without an idle moment
	maxCost    = 1_000_000_000_000_000
	maxCredit  = 2  // mean holds that an account may be behind
	maxCleared = 2  // debts that one grant clears
	minDebts   = 64 // at a parent, kept with any number of holders and waiters
)

// cost returns what a hold adds to the account of a child.
func cost(hold, weight, limit, share int64) int64 {
	rate := float64(weight*parts) / float64(max(1, share)*max(limit, parts))
	return int64(min(math.Ceil(float64(hold)*rate), maxCost))
}

func digits(n int64) string { return fmt.Sprintf("%016d", n) }

// classOf returns what stands before the names of nodes in the accounts of a class: those who wait in
// the background, and who did when they were granted their lease, have accounts and clocks of their own.
func classOf(ticket string) string {
	if inBackground(ticket) {
		return "!"
	}
	return ""
}

func (s *Scope) setAccount(node string, n int64) {
	s.account[node] = min(n, maxAccount)
	if s.since == 0 {
		s.since = s.now
	}
}

// rankAt returns the rank of a ready child whose head is r, and keeps its account within bounds: a
// new account starts at the clock; an old one is at most maxCredit such leases behind; that of a
// child below its floor is not ahead.
//
// A rank is '1', the account after a lease for the head, and the head's ticket. Children below their
// floors have '0' and no account. So they come first, in the order of their tickets. If the head waits
// in the background, the rank begins with '3' for '1' and with '2' for '0'.
func (s *Scope) rankAt(child string, r *record, parent Level) string {
	l := Level{Weight: 1}
	for _, own := range r.Levels {
		if own.Node == child {
			l = own
		}
	}
	class := classOf(r.ticket)
	own, used, clock := class+child, s.used[child], s.clock[class+parent.Node]
	held := cost(s.hold, used+l.Weight, parent.Limit, l.Share)
	account, known := s.account[own]
	if !known {
		account = clock
	}
	account = max(account, clock-maxCredit*held)
	floor, above := "0", "1"
	if class != "" {
		floor, above = "2", "3"
	}
	if used < l.Floor {
		s.setAccount(own, min(account, clock))
		return floor + digits(0) + r.ticket
	}
	s.setAccount(own, account)
	return above + digits(s.account[own]+held) + r.ticket
}

// charge adds a lease that has ended to the accounts of its nodes, from the time at which the first
// account was opened.
func (s *Scope) charge(r *record) {
	class := classOf(r.ticket)
	for i := 1; i < len(r.Levels) && s.since > 0; i++ {
		l, parent := r.Levels[i], r.Levels[i-1]
		account, known := s.account[class+l.Node]
		if !known {
			account = s.clock[class+parent.Node]
		}
		held := s.now - max(r.granted, s.since)
		s.setAccount(class+l.Node, account+cost(held, l.Weight, parent.Limit, l.Share))
	}
}

// advance moves the clocks at the parents of a waiter's nodes to half a mean hold after the
// accounts of the nodes, never back, and closes idle accounts that they pass. So new children
// cannot overtake an old one for ever. A lease below a floor moves no clock, because the account
// may be far ahead.
func (s *Scope) advance(r *record) {
	class := classOf(r.ticket)
	for i := 1; i < len(r.Levels); i++ {
		l, parent := r.Levels[i], class+r.Levels[i-1].Node
		clock := s.account[class+l.Node] + cost(s.hold, l.Weight, r.Levels[i-1].Limit, l.Share)/2
		at, isReady := s.readyAt[l.Node]
		if !isReady || at.rank[0] == '0' || at.rank[0] == '2' || clock <= s.clock[parent] {
			continue
		}
		s.clock[parent] = min(clock, maxAccount)
		debts := s.debts[parent]
		for _, debt := range slices.Clone(debts[:min(maxCleared, len(debts))]) {
			if debt.rank > digits(clock) {
				break
			}
			dequeue(s.debts, parent, debt)
			_, isReady := s.readyAt[debt.id]
			if s.account[class+debt.id] <= clock && s.used[debt.id] == 0 && !isReady {
				delete(s.account, class+debt.id)
			}
		}
	}
}
