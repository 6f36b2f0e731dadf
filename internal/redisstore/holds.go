package redisstore

import (
	"strconv"

	"github.com/headgate/headgate/internal/algorithm"
	"github.com/headgate/headgate/internal/request"
)

// admission writes what lua/admit/admit.lua reads behind the request: the arguments of the holds,
// of the adjustments and of the slot.
func (b *batch) admission(r *request.Request) {
	from := len(b.words)
	length := func() (n int64) {
		n, from = int64(len(b.words)-from), len(b.words)
		return n
	}
	if r.Holds() || r.Op == algorithm.Settle {
		b.holds(r)
	}
	holds := length()
	if r.Adjusts() || r.Op.Adjusts() {
		b.adjustments(r)
	}
	adjustments := length()
	if r.Slot != nil {
		b.name("acquire")
		b.acquire(&r.Slot.Request)
	}
	slot := length()
	b.int(int64(len(b.keys)))
	b.int(holds)
	b.int(adjustments)
	b.int(slot)
}

func (b *batch) holds(r *request.Request) {
	switch r.Op {
	case algorithm.Settle, algorithm.Renew:
		b.name(r.Op.String())
	default:
		b.name("hold")
	}
	b.name(r.Hold)
	set, receipt := int64(len(b.keys)), int64(1)
	for i, c := range r.Charges {
		receipt += int64(c.Fields)
		at := int64(0)
		if c.HoldFor > 0 {
			set++
			at = set
		} else if r.Op != algorithm.Settle {
			continue
		}
		b.int(int64(b.keyOf[i]) + 1)
		b.int(b.limitAt[b.limitOf[i]])
		b.int(at)
		k := c.Correction
		if k == nil {
			b.int(c.HoldFor)
			b.name(spent(c.Units, c.Cost, c.Limit.Denominator()))
			b.int(receipt)
			continue
		}
		if k.Held {
			b.int(c.HoldFor)
		} else {
			b.int(0)
		}
		b.name(spent(c.Spent, k.Spent, k.Denominator))
		b.int(c.Receipt())
		if r.Op == algorithm.Settle {
			b.flag(k.Refund)
			for _, cost := range [...]algorithm.Cost{k.By, k.Whole} {
				b.int(cost.Whole)
				b.int(cost.Fraction)
			}
		}
	}
}

func (b *batch) adjustments(r *request.Request) {
	operation := ""
	if r.Op.Adjusts() {
		operation = r.Op.String()
	}
	b.name(operation)
	number, at := int64(0), b.later()
	hash := int64(len(b.keys))
	for _, c := range r.Charges {
		if c.HoldFor > 0 {
			hash++
		}
	}
	for i, c := range r.Charges {
		if c.Adjusts {
			number++
			b.int(b.limitAt[b.limitOf[i]])
			b.int(hash + number)
			b.flag(c.Seeds && r.Op.Seeds())
		}
	}
	b.set(at, number)
	switch k := r.Charges[0].Adjustment; r.Op {
	case algorithm.Adjust:
		b.name(k.ID)
		for _, n := range [...]int64{k.Keep, k.Units, k.Raise, k.Ends} {
			b.int(n)
		}
	case algorithm.AtLeast:
		b.int(k.Units)
		b.int(int64(k.Seeds))
	}
}

// spent is the text of units and of their cost in the holds of lua/admit/admit.lua.
func spent(units int64, c algorithm.Cost, denominator int64) string {
	text := strconv.AppendInt(nil, units, 10)
	text = strconv.AppendInt(append(text, ' '), denominator, 10)
	text = strconv.AppendInt(append(text, ' '), c.Whole, 10)
	return string(strconv.AppendInt(append(text, ' '), c.Fraction, 10))
}
