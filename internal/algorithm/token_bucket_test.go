package algorithm

import (
	"math"
	"math/big"
	"testing"
	"time"

	"pgregory.net/rapid"
)

const start = int64(1_763_700_000_123_457)

func mustBucket(t interface{ Fatal(...any) }, rate int64, per time.Duration, burst int64) *TokenBucket {
	b, err := NewTokenBucket(rate, per, burst)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// anyBucket draws buckets with tokens of whole microseconds, with fractions, and below a
// microsecond.
func anyBucket(t *rapid.T) *TokenBucket {
	return rapid.SampledFrom([]*TokenBucket{
		mustBucket(t, 1, time.Microsecond, 10),
		mustBucket(t, 1, 3*time.Microsecond, 1),
		mustBucket(t, 10, time.Second, 5),
		mustBucket(t, 300_000, time.Second, 3),
		mustBucket(t, 7, 3*time.Microsecond, 20),
		mustBucket(t, 3, 7*time.Microsecond, 4),
		mustBucket(t, 1<<42, 1, 100),
	}).Draw(t, "bucket")
}

func rat(c Cost, denominator int64) *big.Rat {
	return new(big.Rat).Add(new(big.Rat).SetInt64(c.Whole), big.NewRat(c.Fraction, denominator))
}

func (b *TokenBucket) foundLevel(s State, now int64) *big.Rat {
	b.Find(s, now)
	return rat(s.(*bucket).level, b.denominator)
}

// drained returns a level after some microseconds.
func (b *TokenBucket) drained(level *big.Rat, microseconds int64) *big.Rat {
	level = new(big.Rat).Sub(level, new(big.Rat).SetInt64(microseconds))
	if level.Sign() < 0 {
		level.SetInt64(0)
	}
	return level
}

func TestSharesSumToTheWhole(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rate := rapid.Int64Range(1, 1<<42).Draw(t, "rate")
		per := time.Duration(rapid.Int64Range(1, int64(Longest)).Draw(t, "per"))
		burst := rapid.OneOf(rapid.Int64Range(1, 1000), rapid.Int64Range(1, MaxUnits)).Draw(t, "burst")
		b, err := NewTokenBucket(rate, per, burst)
		if err != nil {
			t.Skip(err)
		}
		n := rapid.Int64Range(1, 1_000_000).Draw(t, "n")
		s := b.Share(n).(*TokenBucket)
		if s.burst < 1 || burst >= n && new(big.Int).Mul(big.NewInt(s.burst), big.NewInt(n)).Cmp(big.NewInt(burst)) > 0 {
			t.Fatalf("%d shares of %d from %d", n, s.burst, burst)
		}
		whole := big.NewRat(b.numerator, b.denominator)
		whole.Mul(whole, new(big.Rat).SetInt64(n))
		late := new(big.Rat).Sub(big.NewRat(s.numerator, s.denominator), whole) // more in a share than in all
		switch least := big.NewRat(longest-1, 1); {
		case s.burst == 1 && s.token == (Cost{longest - 1, 0}) && whole.Cmp(least) > 0:
		case late.Sign() < 0 || late.Cmp(big.NewRat(1, 1)) > 0 || whole.Num().IsInt64() && late.Sign() > 0:
			t.Fatalf("a token takes %v longer in %d shares of %+v", late, n, b)
		}
		if s.capacity.Whole >= longest || s.denominator > 1000<<42 {
			t.Fatalf("the share %+v is no valid limit", s)
		}
		// A share counts like any limit.
		state := s.NewState()
		s.Find(state, start)
		if !state.Fits(s.Cost(s.burst), Terms{}) || state.Fits(s.Cost(s.burst+1), Terms{}) {
			t.Fatalf("the share %+v does not hold its burst", s)
		}
	})
}

// The cost of n tokens is n tokens, and a cost above the burst never fits.
func TestCostsAreExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b, err := NewTokenBucket(rapid.Int64Range(1, 1<<42).Draw(t, "rate"),
			time.Duration(rapid.Int64Range(1, int64(Longest)).Draw(t, "per")), rapid.Int64Range(1, MaxUnits).Draw(t, "burst"))
		if err != nil {
			t.Skip(err)
		}
		n := rapid.Int64Range(0, b.burst).Draw(t, "n")
		c := b.Cost(n)
		want := new(big.Rat).Mul(new(big.Rat).SetInt64(n), big.NewRat(b.numerator, b.denominator))
		if rat(c, b.denominator).Cmp(want) != 0 || c.Fraction < 0 || c.Fraction >= b.denominator {
			t.Fatalf("the cost of %d is %+v, exactly %v", n, c, want)
		}
		if units := b.units(c); units != n {
			t.Fatalf("the cost of %d is %d tokens", n, units)
		}
		state := b.NewState()
		b.Find(state, start)
		above := rapid.Int64Range(b.burst+1, math.MaxInt64).Draw(t, "above")
		if state.Fits(b.Cost(above), Terms{}) || !state.Fits(c, Terms{}) {
			t.Fatal("the burst does not decide what fits")
		}
	})
}

// Limits take turns on one key. Each sees the whole level, admits what its own capacity has left,
// and never misreads a fraction of another denominator.
func TestLimitChanges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limits := []*TokenBucket{
			mustBucket(t, 300_000, time.Second, 30), mustBucket(t, 7, 3*time.Microsecond, 20), mustBucket(t, 1, 50*time.Microsecond, 2),
		}
		state, now := limits[0].NewState(), start
		level := new(big.Rat)
		for range 20 {
			b := rapid.SampledFrom(limits).Draw(t, "limit")
			later := rapid.Int64Range(0, 100).Draw(t, "microseconds")
			now, level = now+later, b.drained(level, later)
			found := b.foundLevel(state, now)
			if more := new(big.Rat).Sub(found, level); more.Sign() < 0 || more.Cmp(big.NewRat(1, 1)) >= 0 {
				t.Fatalf("%+v found %v of %v", b, found, level)
			}
			n := rapid.Int64Range(1, b.burst).Draw(t, "n")
			after := new(big.Rat).Add(found, rat(b.Cost(n), b.denominator))
			if _, ok := try(b, state, now, n); ok != (after.Cmp(rat(b.capacity, b.denominator)) <= 0) {
				t.Fatalf("%d of %+v at %v: %t", n, b, found, ok)
			} else if ok {
				level = after
			}
		}
	})
}

func TestAtMostIsTheLargestThatFits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		charges := func() (all []Charge) {
			for i := range rapid.IntRange(1, 4).Draw(t, "charges") {
				b := anyBucket(t)
				s := b.NewState()
				b.Find(s, start)
				s.Commit(b.Cost(rapid.Int64Range(0, b.burst).Draw(t, "spent")), Terms{})
				all = append(all, Charge{Kept: Kept{State: s}, Limit: b, Cost: b.Cost(rapid.Int64Range(1, 3).Draw(t, "units")), Rules: Rules{Shadow: i > 0 && rapid.Bool().Draw(t, "shadow")}})
			}
			return all
		}()
		bound := rapid.OneOf(rapid.Int64Range(1, 30), rapid.Int64Range(1, MaxUnits)).Draw(t, "bound")
		fits := func(n int64) bool {
			for _, c := range charges {
				left := rat(c.Limit.(*TokenBucket).capacity, c.Limit.Denominator())
				left.Sub(left, c.Limit.(*TokenBucket).foundLevel(c.State, start))
				cost := rat(c.Cost, c.Limit.Denominator())
				if !c.Shadow && cost.Mul(cost, new(big.Rat).SetInt64(n)).Cmp(left) > 0 {
					return false
				}
			}
			return true
		}
		want := int64(0)
		for n := int64(1); n <= min(bound, 200) && fits(n); n++ {
			want = n
		}
		if want == 200 {
			t.Skip("too large to count")
		}
		reply, _ := Run(start, Terms{Op: AtMost, Bound: bound}, charges, nil)
		if reply[0] != want {
			t.Fatalf("granted %d, want %d", reply[0], want)
		}
	})
}

// A token may be longer than a share can count, and far shorter than the level that another limit left.
func TestExtremeTokens(t *testing.T) {
	slow, err := NewTokenBucket(1, Longest-time.Microsecond, 1)
	if err != nil {
		t.Fatal(err)
	}
	fast, err := NewTokenBucket(1<<42, 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	if share := slow.Share(1_000_000); share.Window() != Longest-time.Microsecond {
		t.Errorf("%+v", share)
	}
	if n := fast.units(Cost{Whole: longest - 1}); n != math.MaxInt64 {
		t.Errorf("%d tokens", n)
	}
}
