// Package memstore decides requests on state in this process.
package memstore

import (
	"context"
	"fmt"
	"math/bits"

	"github.com/headgate/headgate/internal/algorithm"
	"github.com/headgate/headgate/internal/request"
)

const shards = 64

// Store is a request.Store in memory. Its methods do not fail. It is safe for concurrent use and
// must not be copied.
type Store struct {
	shards [shards]shard // by KeyHash; first, so that no shard begins inside a cache line
	clock  func() int64  // microseconds
}

// New returns a store of at most maxKeys keys, rounded up to a multiple of 64, on a clock of
// microseconds since 1970.
func New(maxKeys int, clock func() int64) *Store {
	s := &Store{clock: clock}
	for i := range s.shards {
		s.shards[i].keys = make(map[uint64]entry)
		s.shards[i].most = (maxKeys + shards - 1) / shards
	}
	return s
}

// shard returns the one that the key picks. All policies on one key are in one shard, so that a
// request takes one lock.
func (s *Store) shard(c *request.Charge) uint64 { return c.KeyHash % shards }

// Split implements request.Store.
func (s *Store) Split([]*request.Charge) [][]*request.Charge { return nil }

// TakesSlot implements request.Store.
func (s *Store) TakesSlot([]*request.Charge, string) bool { return false }

// Reset implements request.Store.
func (s *Store) Reset(_ context.Context, c *request.Charge) error {
	in := &s.shards[s.shard(c)]
	in.Lock()
	defer in.Unlock()
	_, kept := in.find(c.Hash, c.Key, c.Suffix)
	in.remove(c.Hash, c.Key, c.Suffix)
	if kept.IsAdjusted() {
		kept.Holds = nil
		in.add(c.Hash, entry{key: c.Key, suffix: c.Suffix, kept: kept}, s.clock())
	}
	return nil
}

// Decide implements request.Store.
func (s *Store) Decide(_ context.Context, requests []request.Request) error {
	for i := range requests {
		if err := s.decide(&requests[i]); err != nil {
			return err
		}
	}
	return nil
}

// decide decides a request. It fails only if an adjustment is meant for another period.
func (s *Store) decide(r *request.Request) error {
	var (
		charges [algorithm.MaxCharges]algorithm.Charge
		in      [algorithm.MaxCharges]*shard
		locked  uint64 // a bit for each shard
		fresh   uint32 // a bit for each charge without a state
	)
	for i, c := range r.Charges {
		n := s.shard(c)
		in[i], locked = &s.shards[n], locked|1<<n
	}
	// Requests lock in one order, so that no two wait for each other.
	for rest := locked; rest != 0; rest &= rest - 1 {
		s.shards[bits.TrailingZeros64(rest)].Lock()
	}
	defer func() { // a Clock may panic
		for rest := locked; rest != 0; rest &= rest - 1 {
			s.shards[bits.TrailingZeros64(rest)].Unlock()
		}
	}()
	now, corrects, adjusts := s.clock(), r.Op.Corrects(), r.Op.Adjusts()
	for i, c := range r.Charges {
		if k := c.Adjustment; k != nil && k.Until > 0 && (now < k.From || now >= k.Until) {
			return request.ErrPeriod
		}
		if p, ok := c.Limit.(algorithm.Periodic); ok {
			c.Limit = p.At(now)
		}
		at := &charges[i]
		at.State, at.Kept = in[i].find(c.Hash, c.Key, c.Suffix)
		if at.State == nil {
			at.State = c.Limit.NewState()
			fresh |= 1 << i
		}
		at.Limit, at.Cost, at.Shadow = c.Limit, c.Cost, c.Shadow
		if at.Kept != nil || c.Alone() || corrects {
			at.Kept = keep(c, at.Kept)
		}
		if corrects && !adjusts {
			at.Receipt = c.Receipt()
		}
	}
	terms := algorithm.Terms{
		Operation: r.Op, Bound: r.Bound, Receipts: r.Receipts, Hold: r.Hold,
	}
	reply, changed := algorithm.Run(now, terms, charges[:len(r.Charges)], r.Buffer[:0])
	for i, c := range r.Charges {
		bit := uint32(1) << i
		k := charges[i].Kept
		if k == nil || k.Holds == nil && k.Adjustments == nil {
			continue
		}
		e := entry{key: c.Key, suffix: c.Suffix, state: charges[i].State, kept: k}
		if k.Gone || changed&bit != 0 && e.state.Empty() || fresh&^changed&bit != 0 {
			e.state = nil
		}
		in[i].remove(c.Hash, c.Key, c.Suffix)
		if e.state != nil || !k.Empty() {
			in[i].add(c.Hash, e, now)
		}
		changed &^= bit
	}
	for ; changed != 0; changed &= changed - 1 {
		i := bits.TrailingZeros32(changed)
		switch c := r.Charges[i]; {
		case charges[i].State.Empty():
			in[i].remove(c.Hash, c.Key, c.Suffix)
		case fresh&(1<<i) != 0:
			in[i].add(c.Hash, entry{key: c.Key, suffix: c.Suffix, state: charges[i].State}, now)
		}
	}
	r.Buffer = reply
	r.Settle(reply)
	return nil
}

// keep prepares what is kept beside the state of a charge, which may be nil, for a request.
func keep(c *request.Charge, k *algorithm.Kept) *algorithm.Kept {
	if k == nil {
		k = new(algorithm.Kept)
	}
	if c.HoldFor > 0 && k.Holds == nil {
		k.Holds = new(algorithm.Holds)
	}
	if c.Adjusts && k.Adjustments == nil {
		k.Adjustments = new(algorithm.Adjustments)
	}
	k.HoldFor, k.Correction, k.Gone = c.HoldFor, c.Correction, false
	k.Adjusts, k.Seeds, k.Adjustment, k.Raised = c.Adjusts, c.Seeds, c.Adjustment, 0
	return k
}

// Scan implements request.Store.
func (s *Store) Scan(
	_ context.Context, suffix string, f func(key, value string, now int64) bool,
) error {
	type state struct{ key, value string }
	for i := range s.shards {
		var found []state // f may use the store
		s.shards[i].each(func(e *entry) {
			if e.suffix == suffix && e.state != nil {
				found = append(found, state{e.key, e.state.Value()})
			}
		})
		for _, e := range found {
			if !f(e.key, e.value, s.clock()) {
				return nil
			}
		}
	}
	return nil
}

// Values returns the states as Redis would hold them, by key and suffix, their holds in lines of
// text and time, and their adjustments in lines of field and value. It is for tests.
func (s *Store) Values() map[string]string {
	values := make(map[string]string)
	for i := range s.shards {
		s.shards[i].each(func(e *entry) {
			if e.state != nil {
				values[e.key+e.suffix] = e.state.Value()
			}
			if e.kept == nil {
				return
			}
			if e.kept.IsAdjusted() {
				values[e.key+e.suffix+request.AdjustmentsSuffix] = e.kept.Adjustments.Value()
			}
			e.kept.Holds.Each(func(h algorithm.Hold) {
				values[e.key+e.suffix+request.HoldsSuffix] += fmt.Sprintln(h.Text(), h.Until)
			})
		})
	}
	return values
}
