package algorithm

import (
	"cmp"
	"fmt"
	"slices"
)

// Hold is the units of one charge that go back at a time, unless they are settled or the hold is
// renewed before.
type Hold struct {
	Until       int64  // microseconds
	ID          string // of the request
	Units       int64
	Cost        Cost  // of the units
	Denominator int64 // of the cost
	Receipt     int64
}

// Text returns what a hold is stored as.
func (h *Hold) Text() string {
	return fmt.Sprint(h.ID, " ", h.Units, " ", h.Denominator, " ", h.Cost.Whole, " ", h.Cost.Fraction, " ", h.Receipt)
}

// Holds are those of one state, the first to end first. The zero value is none.
type Holds struct {
	All    []Hold
	Totals map[int64]int64 // units that are held, by totalOf
}

// totalOf returns in which total of Holds a charge counts that has this receipt. Charges of one
// window have one receipt, and count in that window alone.
func totalOf(l Limit, receipt int64) int64 {
	if f, ok := l.(*FixedWindow); ok && !f.grant {
		return receipt
	}
	return 0
}

// units returns how many units are held that count now, given the reply to a charge of the state.
func (s *Holds) units(l Limit, reply []int64) int64 {
	if f, ok := l.(*FixedWindow); ok && !f.grant {
		return s.Totals[reply[3]-f.width+1] // the receipt of the window that the reply is about
	}
	return s.Totals[0]
}

// note adds to a total, or takes some away if units are below 0.
func (s *Holds) note(total, units int64) {
	if s.Totals == nil {
		s.Totals = make(map[int64]int64)
	}
	if s.Totals[total] += units; s.Totals[total] == 0 {
		delete(s.Totals, total)
	}
}

const (
	// maxExpired is the largest number of holds that one request gives back.
	maxExpired = 1000
	// entriesPerHold is how many entries of a log a refund rewrites in the time that one of another
	// state takes. A hold of a log counts for more than one accordingly.
	entriesPerHold = 20
)

// Correction is what a settled charge becomes.
type Correction struct {
	Held        bool
	Units       int64
	Spent       Cost // of the units, when they were charged
	Denominator int64
	Refund      bool // By is given back; otherwise it is charged
	By          Cost
	Whole       Cost // is charged if the hold has ended
}

func compareHolds(a, b Hold) int {
	return cmp.Or(cmp.Compare(a.Until, b.Until), cmp.Compare(a.Text(), b.Text()))
}

func (s *Holds) add(h Hold) {
	at, found := slices.BinarySearchFunc(s.All, h, compareHolds)
	if !found {
		s.All = slices.Insert(s.All, at, h)
	}
}

// find returns the index of a hold that has not ended, or -1.
func (s *Holds) find(now int64, h Hold) int {
	return slices.IndexFunc(s.All, func(o Hold) bool {
		h.Until = o.Until
		return o == h && o.Until > now
	})
}

// Empty reports whether there are none.
func (s *Holds) Empty() bool { return s == nil || len(s.All) == 0 }

// Expires returns when the last of them ends.
func (s *Holds) Expires() int64 {
	if s.Empty() {
		return 0
	}
	return s.All[len(s.All)-1].Until
}
