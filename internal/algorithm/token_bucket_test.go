package algorithm

import (
	"cmp"
	"math"
	"math/big"
	"slices"
	"strings"
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

// anyBucket draws buckets whose tokens are whole microseconds, broken ones, and less than one.
func anyBucket(t *rapid.T) *TokenBucket {
	return rapid.SampledFrom([]*TokenBucket{
		mustBucket(t, 1, time.Microsecond, 10),
		mustBucket(t, 1, 3*time.Microsecond, 1),
		mustBucket(t, 10, time.Second, 5),
		mustBucket(t, 300_000, time.Second, 3),
		mustBucket(t, 7, 3*time.Microsecond, 20),
		mustBucket(t, 3, 7*time.Microsecond, 4),
		mustBucket(t, 1<<42, 1, 100),
		mustBucket(t, 0, 0, 8),
	}).Draw(t, "bucket")
}

func rat(c Cost, denominator int64) *big.Rat {
	return new(big.Rat).Add(new(big.Rat).SetInt64(c.Whole), big.NewRat(c.Fraction, denominator))
}

func (b *TokenBucket) foundBacklog(s State, now int64) *big.Rat {
	b.Find(s, now)
	return rat(s.(*bucket).backlog, b.denominator)
}

type spent struct {
	at, n   int64
	cost    Cost
	receipt int64
}

// replay is the backlog at now of a bucket that only ever saw these charges, each when it acts, in exact arithmetic, and
// whether all of them fit. That they fit is the same as that in no window more than the burst and its refill acts.
func (b *TokenBucket) replay(charges []spent, now int64) (backlog *big.Rat, fit bool) {
	backlog, fit = new(big.Rat), true
	var then *big.Rat
	capacity, at := rat(b.capacity, b.denominator), start
	charges = slices.Clone(charges)
	slices.SortStableFunc(charges, func(a, b spent) int { return cmp.Compare(a.at, b.at) })
	drain := func(to int64) {
		if !b.frozen {
			backlog.Sub(backlog, new(big.Rat).SetInt64(to-at))
		}
		if backlog.Sign() < 0 {
			backlog.SetInt64(0)
		}
		at = to
	}
	for _, c := range charges {
		if c.at > now && then == nil {
			drain(now)
			then = new(big.Rat).Set(backlog)
		}
		drain(c.at)
		backlog.Add(backlog, rat(c.cost, b.denominator))
		fit = fit && backlog.Cmp(capacity) <= 0
	}
	if then == nil {
		drain(now)
		then = backlog
	}
	return then, fit
}

// Whatever is charged, left alone and given back in whatever order, on a clock that does not go back: the charges that
// were not given back fit a bucket in which the others never happened, and the bucket is never fuller than that one.
func TestGivingBackIsSafe(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := anyBucket(t)
		state, now := b.NewState(), start
		var kept []spent
		t.Repeat(map[string]func(*rapid.T){
			"wait": func(t *rapid.T) {
				most := max(2*b.capacity.ceil(), 2)
				now += rapid.OneOf(rapid.Int64Range(0, 3), rapid.Int64Range(0, most)).Draw(t, "microseconds")
			},
			"charge": func(t *rapid.T) {
				n := rapid.Int64Range(1, b.burst).Draw(t, "n")
				c := spent{at: now, n: n, cost: b.Cost(n)}
				b.Find(state, now)
				if !b.Fits(state, c.cost, Terms{}) {
					t.Skip("does not fit")
				}
				c.receipt = b.Commit(state, c.cost, Terms{})
				if c.receipt == 0 {
					t.Fatal("a charge has no receipt")
				}
				kept = append(kept, c)
			},
			"reserve": func(t *rapid.T) {
				if b.denominator > 1 {
					t.Skip("leaves up to a microsecond late, because that is what waits are rounded to")
				}
				n := rapid.Int64Range(1, b.burst).Draw(t, "n")
				terms := Terms{Reserve, rapid.Int64Range(0, 3*b.capacity.ceil()).Draw(t, "longest wait")}
				c := spent{at: now, n: n, cost: b.Cost(n)}
				b.Find(state, now)
				if !b.Fits(state, c.cost, terms) {
					t.Skip("does not fit")
				}
				c.at += b.Read(b.Reply(state, c.cost, nil), Cost{}, n).Delay.Microseconds()
				if c.at > now+terms.Bound && !b.frozen {
					t.Fatalf("waits until %d, at %d for at most %d", c.at, now, terms.Bound)
				}
				c.receipt = b.Commit(state, c.cost, terms)
				kept = append(kept, c)
			},
			"give": func(t *rapid.T) {
				if len(kept) == 0 {
					t.Skip("nothing to give back")
				}
				i := rapid.IntRange(0, len(kept)-1).Draw(t, "i")
				b.Find(state, now)
				b.Give(state, kept[i].cost, kept[i].receipt, wholly)
				kept = append(kept[:i:i], kept[i+1:]...)
			},
			"give a part": func(t *rapid.T) {
				if len(kept) == 0 {
					t.Skip("nothing to give back")
				}
				i := rapid.IntRange(0, len(kept)-1).Draw(t, "i")
				if kept[i].n == 1 {
					t.Skip("too little")
				}
				n := rapid.Int64Range(1, kept[i].n-1).Draw(t, "n")
				b.Find(state, now)
				b.Give(state, b.Cost(n), kept[i].receipt, Terms{Operation: Give})
				// A part of a charge is given back at most once.
				rest := kept[i]
				rest.cost = rest.cost.minus(b.Cost(n), b.denominator)
				rest.n, rest.receipt = 1, 0
				kept[i] = rest
			},
			"": func(t *rapid.T) {
				want, fit := b.replay(kept, now)
				if !fit {
					t.Fatalf("what was kept does not fit: %+v", kept)
				}
				if got := b.foundBacklog(state, now); got.Cmp(want) < 0 {
					t.Fatalf("backlog %v at %d, without what was given back %v", got, now, want)
				}
			},
		})
	})
}

// Giving back at the instant of the charge restores the backlog: exactly where it is a whole number of microseconds,
// and else but for less than one, or two of shorter tokens, by which it is stricter, because receipts are whole.
func TestGivingBackAtOnceRestores(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := anyBucket(t)
		state, now := b.NewState(), start
		for range rapid.IntRange(0, 5).Draw(t, "charges before") {
			now += rapid.Int64Range(0, 5).Draw(t, "microseconds")
			b.Find(state, now)
			if c := b.Cost(rapid.Int64Range(1, b.burst).Draw(t, "n")); b.Fits(state, c, Terms{}) {
				b.Commit(state, c, Terms{})
			}
		}
		now += rapid.Int64Range(0, 5).Draw(t, "microseconds")
		before := b.foundBacklog(state, now)
		cost := b.Cost(rapid.Int64Range(1, b.burst).Draw(t, "n"))
		for range 3 {
			b.Find(state, now)
			if !b.Fits(state, cost, Terms{}) {
				return
			}
			receipt := b.Commit(state, cost, Terms{})
			whole := state.(*bucket).fraction == 0
			b.Find(state, now)
			gave := b.Give(state, cost, receipt, wholly)
			after := b.foundBacklog(state, now)
			more := new(big.Rat).Sub(after, before)
			if more.Sign() < 0 || more.Cmp(big.NewRat(1+b.short(), 1)) >= 0 || whole && more.Sign() != 0 && b.short() == 0 {
				t.Fatalf("backlog %v became %v", before, after)
			}
			if whole && !gave && b.short() == 0 {
				t.Fatal("nothing was given back")
			}
			before = after
		}
	})
}

// A receipt is nothing once its charge has drained, whatever happened since.
func TestOldReceiptGivesNothing(t *testing.T) {
	b := mustBucket(t, 10, time.Second, 5)
	state := b.NewState()
	b.Find(state, start)
	cost := b.Cost(5)
	receipt := b.Commit(state, cost, Terms{})
	b.Find(state, start+500_000)
	b.Commit(state, cost, Terms{})
	b.Find(state, start+500_000)
	if b.Give(state, cost, receipt, wholly) {
		t.Error("gave back a later charge by the receipt of an earlier one")
	}
	// A state made afresh, as after its key has expired, knows nothing of it either.
	state = b.NewState()
	b.Find(state, start+600_000)
	b.Commit(state, cost, Terms{})
	b.Find(state, start+600_000)
	if b.Give(state, cost, receipt, wholly) {
		t.Error("gave back a later charge on a fresh state")
	}
}

func TestNewTokenBucketNamesEveryFault(t *testing.T) {
	tests := []struct {
		name   string
		rate   int64
		per    time.Duration
		burst  int64
		faults []string
	}{
		{"good", 1, time.Second, 1, nil},
		{"frozen", 0, 0, 1, nil},
		{"fastest", 1 << 42, 1, MaxUnits, nil},
		{"slowest", 1, Longest - time.Microsecond, 1, nil},
		{"everything negative", -1, -1, -1, []string{"Rate is -1", "Per is -1ns", "Burst is -1"}},
		{"everything zero", 0, 0, 0, []string{"Burst is 0"}},
		{"too fast, no period, no burst", 1<<42 + 1, 0, 0, []string{"Rate is 4398046511105", "Per is 0", "Burst is 0"}},
		{"period without rate", 0, time.Second, 1, []string{"Rate is 0 but Per is 1s"}},
		{"burst too large", 1 << 42, 1, math.MaxInt64, []string{"Burst is 9223372036854775807"}},
		{"a century", 1, Longest, 1, []string{"Burst takes more than 100 years"}},
		{"centuries", 1, 30 * 24 * time.Hour, 1_000_000, []string{"Burst takes more than 100 years"}},
		{"beyond 64 bits", 1, math.MaxInt64, MaxUnits, []string{"Burst takes more than 100 years"}},
		{"frozen, too large", 0, 0, MaxCount + 1, []string{"Burst is 1000000000000001"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b, err := NewTokenBucket(tt.rate, tt.per, tt.burst)
			if (b == nil) != (err != nil) || (err != nil) != (tt.faults != nil) {
				t.Fatalf("%v, %v", b, err)
			}
			if err == nil {
				return
			}
			for _, f := range tt.faults {
				if !strings.Contains(err.Error(), f) {
					t.Errorf("%q does not say %q", err, f)
				}
			}
			if n := len(strings.Split(err.Error(), "\n")); n != len(tt.faults) {
				t.Errorf("%d faults instead of %d: %v", n, len(tt.faults), err)
			}
		})
	}
}

func TestSharesSumToTheWhole(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rate := rapid.Int64Range(0, 1<<42).Draw(t, "rate")
		per := time.Duration(rapid.Int64Range(1, int64(Longest)).Draw(t, "per"))
		if rate == 0 {
			per = 0
		}
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
		if s.frozen {
			if !b.frozen && burst >= n {
				// Its capacity is at most the whole's, but a token's length may be beyond 64 bits.
				if token := new(big.Int).Mul(big.NewInt(b.numerator), big.NewInt(n)); token.IsInt64() {
					t.Fatalf("a share of %+v is frozen", b)
				}
			}
		} else {
			whole := big.NewRat(b.numerator, b.denominator)
			if part := big.NewRat(s.numerator, s.denominator); part.Cmp(whole.Mul(whole, new(big.Rat).SetInt64(n))) != 0 {
				t.Fatalf("a token takes %v in a share, %v in all", part, wholly)
			}
		}
		if s.capacity.Whole >= longest || s.denominator > 1000<<42 {
			t.Fatalf("the share %+v is no valid limit", s)
		}
		// A share counts as any limit does.
		state := s.NewState()
		s.Find(state, start)
		if !s.Fits(state, s.Cost(s.burst), Terms{}) || s.Fits(state, s.Cost(s.burst+1), Terms{}) {
			t.Fatalf("the share %+v does not hold its burst", s)
		}
	})
}

// A cost and its number of tokens are inverse, and never fits what is above the burst.
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
		if tokens, rest := b.tokens(c); tokens != n || rest != 0 {
			t.Fatalf("the cost of %d is %d tokens and %d parts", n, tokens, rest)
		}
		state := b.NewState()
		b.Find(state, start)
		if above := rapid.Int64Range(b.burst+1, math.MaxInt64).Draw(t, "above"); b.Fits(state, b.Cost(above), Terms{}) || !b.Fits(state, c, Terms{}) {
			t.Fatal("the burst does not decide what fits")
		}
	})
}

// A key may be met by another limit of its name, while a new one is rolled out. Each allows what its own capacity has
// left, and no fraction of the other's denominator is misread.
func TestLimitChanges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limits := []*TokenBucket{
			mustBucket(t, 300_000, time.Second, 30), mustBucket(t, 7, 3*time.Microsecond, 20), mustBucket(t, 1, 50*time.Microsecond, 2),
		}
		state, now := limits[0].NewState(), start
		for range 20 {
			b := rapid.SampledFrom(limits).Draw(t, "limit")
			now += rapid.Int64Range(0, 100).Draw(t, "microseconds")
			b.Find(state, now)
			s := state.(*bucket)
			// What one limit forgave, a narrower one does not forgive again.
			if s.backlog.Whole > max(b.capacity.Whole, s.within+1)+1 || s.backlog.Fraction < 0 || s.backlog.Fraction >= b.denominator {
				t.Fatalf("%+v found %+v", b, s)
			}
			if c := b.Cost(rapid.Int64Range(1, b.burst).Draw(t, "n")); b.Fits(state, c, Terms{}) {
				before := rat(s.backlog, b.denominator)
				b.Commit(state, c, Terms{})
				if after := b.foundBacklog(state, now); after.Sub(after, rat(c, b.denominator)).Cmp(before) != 0 {
					t.Fatalf("%v is not %v and %+v", after, before, c)
				}
			}
		}
	})
}

// Limits take turns on one key, in whatever order, and what was charged under one is given back under another: what was
// kept fits the widest of them, as if the others had none of their own. Nothing is forgiven twice.
func TestTurnsFitTheWidest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var limits []*TokenBucket
		for range rapid.IntRange(2, 4).Draw(t, "limits") {
			per := rapid.SampledFrom([]time.Duration{time.Microsecond, 7 * time.Microsecond, 50 * time.Microsecond}).Draw(t, "per")
			limits = append(limits, mustBucket(t, rapid.Int64Range(1, 9).Draw(t, "rate"), per, rapid.Int64Range(1, 20).Draw(t, "burst")))
		}
		widest := slices.MaxFunc(limits, func(a, b *TokenBucket) int { return cmp.Compare(a.capacity.Whole, b.capacity.Whole) })
		state, now := widest.NewState(), start
		type turn struct {
			at      int64
			cost    *big.Rat
			under   *TokenBucket
			n       int64
			receipt int64
		}
		var kept []turn
		for range rapid.IntRange(1, 40).Draw(t, "operations") {
			if rapid.Bool().Draw(t, "later") {
				now += rapid.OneOf(rapid.Int64Range(0, 3), rapid.Int64Range(0, 200)).Draw(t, "microseconds")
			}
			b := rapid.SampledFrom(limits).Draw(t, "limit")
			b.Find(state, now)
			if len(kept) > 0 && rapid.IntRange(0, 3).Draw(t, "give") == 0 {
				i := rapid.IntRange(max(0, len(kept)-4), len(kept)-1).Draw(t, "i")
				c, receipt := Back(kept[i].under, b, kept[i].n, kept[i].receipt)
				b.Give(state, c, receipt, wholly)
				kept = append(kept[:i:i], kept[i+1:]...)
			} else {
				n := rapid.Int64Range(1, b.burst).Draw(t, "n")
				c := b.Cost(n)
				if !b.Fits(state, c, Terms{}) {
					continue
				}
				kept = append(kept, turn{now, rat(c, b.denominator), b, n, b.Commit(state, c, Terms{})})
			}
			// What narrower limits admit at their own rates may not fit the widest one, but what that admits does, to the
			// microsecond.
			backlog, at := new(big.Rat), start
			for _, k := range kept {
				backlog.Sub(backlog, new(big.Rat).SetInt64(k.at-at))
				if at = k.at; backlog.Sign() < 0 {
					backlog.SetInt64(0)
				}
				if backlog.Add(backlog, k.cost); k.under == widest && backlog.Cmp(rat(widest.capacity.plus(Cost{1, 0}, widest.denominator), widest.denominator)) >= 0 {
					t.Fatalf("%v ahead at %d, of %+v", backlog, at, widest)
				}
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
				b.Commit(s, b.Cost(rapid.Int64Range(0, b.burst).Draw(t, "spent")), Terms{})
				all = append(all, Charge{State: s, Limit: b, Cost: b.Cost(rapid.Int64Range(1, 3).Draw(t, "units")), Shadow: i > 0 && rapid.Bool().Draw(t, "shadow")})
			}
			return all
		}()
		bound := rapid.OneOf(rapid.Int64Range(1, 30), rapid.Int64Range(1, MaxUnits)).Draw(t, "bound")
		fits := func(n int64) bool {
			for _, c := range charges {
				left := rat(c.Limit.(*TokenBucket).capacity, c.Limit.Denominator())
				left.Sub(left, c.Limit.(*TokenBucket).foundBacklog(c.State, start))
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
		reply, _ := Run(start, AtMost, bound, charges, nil)
		if reply[0] != want {
			t.Fatalf("granted %d, want %d", reply[0], want)
		}
	})
}
