package algorithm

import (
	"math/big"
	"testing"

	"pgregory.net/rapid"
)

// outstanding is a charge that may still be refunded.
type outstanding struct{ at, units, receipt int64 }

// The level is the units charged since the bucket was last full, less the refunds and the time
// since.
func TestLevelIsTheKeptUnits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := anyBucket(t)
		s, now, level := b.NewState(), start, new(big.Rat)
		full, open := now, []outstanding{}
		for range rapid.IntRange(1, 60).Draw(t, "operations") {
			later := rapid.SampledFrom([]int64{0, 0, 1, someTime(t, b)}).Draw(t, "later")
			now, level = now+later, b.drained(level, later)
			if level.Sign() == 0 {
				full, open = now, open[:0]
			}
			n := rapid.Int64Range(1, b.burst).Draw(t, "n")
			switch rapid.IntRange(0, 3).Draw(t, "operation") {
			case 0:
				b.Find(s, now)
				if c := b.Cost(n); b.Fits(s, c, Terms{}) { // never refunded
					b.Commit(s, c, Terms{})
					level.Add(level, rat(c, b.denominator))
				}
			case 1:
				if len(open) == 0 {
					continue
				}
				i := rapid.IntRange(0, len(open)-1).Draw(t, "i")
				back := rapid.Int64Range(1, open[i].units).Draw(t, "back")
				if !give(b, s, now, back, open[i].receipt) {
					t.Fatalf("no refund of a charge at %d of a bucket full at %d", open[i].at, full)
				}
				open = append(open[:i], open[i+1:]...)
				if level.Sub(level, rat(b.Cost(back), b.denominator)).Sign() <= 0 {
					level, full, open = new(big.Rat), now, open[:0]
				}
			default:
				if receipt, ok := try(b, s, now, n); ok {
					open = append(open, outstanding{now, n, receipt})
					level.Add(level, rat(b.Cost(n), b.denominator))
				}
			}
			if got := b.foundLevel(s, now); got.Cmp(level) != 0 {
				t.Fatalf("the level is %v, not %v", got, level)
			}
		}
	})
}
