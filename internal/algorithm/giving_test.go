package algorithm

import (
	"math/big"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// honest fails the test unless n units fit after exactly the wait, and do not fit a microsecond
// earlier.
func honest(t interface {
	Helper()
	Fatalf(string, ...any)
}, l Limit, s State, now int64, wait time.Duration, n int64) {
	t.Helper()
	fits := func(after int64) bool {
		s, l := clone(s), At(l, now+after)
		l.Find(s, now+after)
		return s.Fits(l.Cost(n), Terms{})
	}
	if wait == Never {
		after := Longest.Microseconds()
		if f, ok := l.(*FixedWindow); ok && f.grant {
			after = 0 // it is forgotten some time
		}
		if fits(after) {
			t.Fatalf("%d of %+v never fit, but do", n, l)
		}
		return
	}
	after := wait.Microseconds()
	if !fits(after) {
		t.Fatalf("%d of %+v do not fit on %+v after %v", n, l, s, wait)
	}
	if after > 0 && fits(after-1) {
		t.Fatalf("%d of %+v fit on %+v before %v", n, l, s, wait)
	}
}

// The waits of a reading hold after any charges, forced charges and refunds.
func TestReadingsAreExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l, _, _ := anyLimit(t)
		s, now := l.NewState(), start
		for range rapid.IntRange(1, 20).Draw(t, "operations") {
			now += someTime(t, l)
			n := someUnits(t, l, s, now)
			switch rapid.IntRange(0, 4).Draw(t, "operation") {
			case 0:
				force(l, s, now, n)
			case 1:
				if receipt, ok := try(l, s, now, n); ok {
					now += someTime(t, l)
					give(l, s, now, n, receipt)
				}
			default:
				try(l, s, now, n)
			}
			n = someUnits(t, l, s, now)
			honest(t, l, s, now, reading(l, s, now, n).RetryAfter, n)
			r, held := reading(l, s, now, 0), At(l, now)
			if log, ok := held.(*SlidingLog); r.Used > 0 && (!ok || len(log.windows) == 1) {
				honest(t, held, s, now, r.NextAfter, min(r.Remaining+1, r.Limit))
				honest(t, held, s, now, r.ResetAfter, r.Limit)
			}
		}
	})
}

// The reading of an admitted charge equals the next reading.
func TestReadingsCountTheirCharge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l, _, _ := anyLimit(t)
		s, now := l.NewState(), start
		for range rapid.IntRange(1, 20).Draw(t, "charges") {
			now += someTime(t, l)
			held, n := At(l, now), someUnits(t, l, s, now)
			held.Find(s, now)
			c := held.Cost(n)
			reply := s.Reply(c, nil)
			if !s.Fits(c, Terms{}) {
				continue
			}
			s.Commit(c, Terms{})
			got, want := held.Read(reply, c, n), reading(l, s, now, 0)
			if got.RetryAfter != 0 || got.Violated != 0 {
				t.Fatalf("a charge that fits is denied: %+v", got)
			}
			if got.Delay, want.Delay = 0, 0; got != want {
				t.Fatalf("%+v of %+v after a charge of %d, then %+v", got, l, n, want)
			}
		}
	})
}

// Units that are not refunded keep to the bound, for any order of charges, forced charges and
// refunds, on a clock that does not go back. Forced units take room and never give any. A bucket is
// tested by TestLevelIsTheKeptUnits.
func TestKeptUnitsKeepToTheBound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l, width, bound := anyLimit(t)
		if _, ok := l.(*TokenBucket); ok {
			t.Skip("has another bound")
		}
		s, now := l.NewState(), start
		type held struct {
			admitted
			receipt int64
		}
		const none = -1 // the charge has been refunded
		var kept []held
		for range rapid.IntRange(1, 60).Draw(t, "operations") {
			if rapid.Bool().Draw(t, "later") {
				now += someTime(t, l)
			}
			switch rapid.IntRange(0, 5).Draw(t, "operation") {
			case 0:
				force(l, s, now, rapid.Int64Range(1, 2*l.Capacity()).Draw(t, "forced"))
			case 1, 2:
				if len(kept) > 0 {
					i := max(0, len(kept)-1-rapid.IntRange(0, 5).Draw(t, "before the last"))
					n := rapid.OneOf(rapid.Just(kept[i].units), rapid.Int64Range(1, kept[i].units)).Draw(t, "given back")
					give(l, s, now, n, kept[i].receipt)
					if kept[i].units -= n; kept[i].units == 0 {
						kept = append(kept[:i], kept[i+1:]...)
					} else {
						kept[i].receipt = none
					}
				}
			default:
				n := someUnits(t, l, s, now)
				if receipt, ok := try(l, s, now, n); ok {
					kept = append(kept, held{admitted{now, n}, receipt})
				}
			}
		}
		var all []admitted
		for _, k := range kept {
			all = append(all, k.admitted)
		}
		keeps(t, l, width, bound, all)
	})
}

// An immediate refund leaves the key as it was.
func TestImmediateRefundRestoresTheReading(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l, _, _ := anyLimit(t)
		s, now := l.NewState(), start
		for range rapid.IntRange(1, 15).Draw(t, "operations") {
			now += someTime(t, l)
			n := someUnits(t, l, s, now)
			before := reading(l, s, now, n)
			receipt, ok := try(l, s, now, n)
			if !ok {
				continue
			}
			if receipt == 0 {
				t.Fatal("a charge has no receipt")
			}
			if rapid.IntRange(0, 2).Draw(t, "keep") == 0 {
				continue
			}
			if !give(l, s, now, n, receipt) {
				t.Fatal("no refund")
			}
			if after := reading(l, s, now, n); after != before {
				t.Fatalf("%+v became %+v", before, after)
			}
		}
	})
}

// Shares are valid limits. They sum to at most the whole if there is a unit for each.
func TestSharesOfEveryLimit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l, _, _ := anyLimit(t)
		n := rapid.OneOf(rapid.Int64Range(1, 5), rapid.Int64Range(1, 1_000_000)).Draw(t, "n")
		part := l.Share(n)
		if part.Capacity() < 1 || l.Capacity() >= n && part.Capacity()*n > l.Capacity() || part.Capacity() > l.Capacity() {
			t.Fatalf("%d shares of %d of %d", n, part.Capacity(), l.Capacity())
		}
		if log, ok := part.(*SlidingLog); ok {
			for i, w := range l.(*SlidingLog).windows {
				if w.limit = max(1, w.limit/n); log.windows[i] != w {
					t.Fatalf("a share of %+v has %+v", w, log.windows[i])
				}
			}
		}
		if _, ok := l.(*TokenBucket); !ok && part.Window() != l.Window() || part.Tag() != l.Tag() || part.Fields() != l.Fields() {
			t.Fatalf("a share of %+v is %+v", l, part)
		}
		s := part.NewState()
		if _, ok := try(part, s, start, part.Capacity()+1); ok {
			t.Fatal("a share admits more than its capacity")
		}
		if _, ok := try(part, s, start, part.Capacity()); !ok {
			t.Fatal("a share does not admit its capacity")
		}
	})
}

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
				if c := b.Cost(n); s.Fits(c, Terms{}) { // never refunded
					s.Commit(c, Terms{})
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
