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
	Cost        Cost
	Denominator int64 // of the cost
	Receipt     int64
}

// Text returns what a hold is stored as.
func (h *Hold) Text() string {
	return fmt.Sprint(h.ID, " ", h.Denominator, " ", h.Cost.Whole, " ", h.Cost.Fraction, " ", h.Receipt)
}

// Holds are those of one state, the first to end first. The zero value is none.
type Holds struct{ all []Hold }

const (
	// maxExpired is the largest number of holds that one request gives back.
	maxExpired = 1000
	// logExpired is for how many of these a hold of a log counts: its refund may rewrite a thousand
	// entries.
	logExpired = 50
)

// Correction is what a settled charge becomes. Costs that a state may not take in one step are in
// two parts.
type Correction struct {
	Held        bool
	Spent       Cost // when it was charged
	Denominator int64
	Refund      bool // By is given back; otherwise it is charged
	By, Whole   [2]Cost
}

func compareHolds(a, b Hold) int {
	return cmp.Or(cmp.Compare(a.Until, b.Until), cmp.Compare(a.Text(), b.Text()))
}

func (s *Holds) add(h Hold) {
	at, found := slices.BinarySearchFunc(s.all, h, compareHolds)
	if !found {
		s.all = slices.Insert(s.all, at, h)
	}
}

// find returns the index of a hold that has not ended, or -1.
func (s *Holds) find(now int64, h Hold) int {
	return slices.IndexFunc(s.all, func(o Hold) bool {
		h.Until = o.Until
		return o == h && o.Until > now
	})
}

// Empty reports whether there are none.
func (s *Holds) Empty() bool { return s == nil || len(s.all) == 0 }

// Expires returns when the last of them ends.
func (s *Holds) Expires() int64 {
	if s.Empty() {
		return 0
	}
	return s.all[len(s.all)-1].Until
}

// Each calls f with each hold.
func (s *Holds) Each(f func(h Hold)) {
	if s != nil {
		for _, h := range s.all {
			f(h)
		}
	}
}
