package algorithm

import (
	"math/big"
	"math/rand/v2"
	"testing"
	"time"
)

// twoCounters returns a state at since microseconds after a window's start.
func twoCounters(w *SlidingWindow, before, count, since int64) *counters {
	s := w.NewState().(*counters)
	s.kept = counterPair{start - since, count, before}
	return s
}

// closedForm returns the wait in microseconds until n units fit. The window started since
// microseconds ago and holds count units; the previous one holds before.
func closedForm(limit, width, before, count, since, n int64) int64 {
	part := func(a, b int64) *big.Rat { return new(big.Rat).SetFrac64(a, b) }
	one := part(1, 1)
	wait := new(big.Rat).Sub(one, part(since, width))
	if count+n <= limit {
		wait.SetInt64(0)
		if before > 0 {
			wait.Sub(new(big.Rat).Sub(one, part(limit-count-n, before)), part(since, width))
		}
	} else if later := new(big.Rat).Sub(one, part(limit-n, count)); later.Sign() > 0 {
		wait.Add(wait, later)
	}
	if wait.Mul(wait, part(width, 1)); wait.Sign() < 0 {
		return 0
	}
	rest := new(big.Int)
	whole, _ := new(big.Int).DivMod(wait.Num(), wait.Denom(), rest)
	if rest.Sign() > 0 {
		whole.Add(whole, big.NewInt(1))
	}
	return whole.Int64()
}

func TestSlidingWaitIsTheClosedForm(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		limit := 1 + random.Int64N([]int64{5, 1000, 1_000_000}[random.IntN(3)])
		width := 1 + random.Int64N([]int64{20, 1_000_000, maxProduct / limit}[random.IntN(3)])
		w := must(NewSlidingWindow(limit, min(us(width), Longest/4)))
		if width = w.width; w.tick != 1 {
			t.Fatalf("a tick of %+v is not a microsecond", w)
		}
		before, count := random.Int64N(2*limit+1), random.Int64N(2*limit+1)
		since, n := random.Int64N(width), 1+random.Int64N(limit)
		if before+count == 0 {
			since = 0
		}
		got := reading(w, twoCounters(w, before, count, since), start, n).RetryAfter
		if want := closedForm(limit, width, before, count, since, n); got != us(want) {
			t.Fatalf("%v instead of %v: %d before and %d in %d of %d, for %d of %d", got, us(want), before, count, since, width, n, limit)
		}
	}
}

// It tries small windows microsecond by microsecond.
func TestSlidingWaitIsTheFirstThatFits(t *testing.T) {
	for limit := int64(1); limit <= 4; limit++ {
		for width := int64(1); width <= 9; width += 2 {
			w := must(NewSlidingWindow(limit, us(width)))
			for i := range (2*limit + 1) * (2*limit + 1) * width * limit {
				n, rest := 1+i%limit, i/limit
				since, rest := rest%width, rest/width
				s := twoCounters(w, rest/(2*limit+1), rest%(2*limit+1), since)
				want := int64(0)
				for later := clone(s); ; want++ {
					if w.Find(later, start+want); w.Fits(later, w.Cost(n), Terms{}) {
						break
					}
				}
				if got := reading(w, s, start, n).RetryAfter; got != us(want) {
					t.Fatalf("%v instead of %v for %d of %+v on %+v", got, us(want), n, w, s.kept)
				}
			}
		}
	}
}

// The wait is exact to the microsecond even if a tick is longer.
func TestSlidingWaitOfLongTicks(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for _, w := range []*SlidingWindow{
		must(NewSlidingWindow(1_000_000_000_000, time.Second)), must(NewSlidingWindow(MaxCount/1000, Longest/4)),
		must(NewSlidingWindow(1000, 365*24*time.Hour)), must(NewSlidingWindow(MaxCount/1000, us(1999))),
		must(NewSlidingWindow(7_777_777, Longest/4-us(1))),
	} {
		if w.tick == 1 {
			t.Errorf("a tick of %+v is one microsecond", w)
		}
		for range 1000 {
			before, count := random.Int64N(2*w.limit+1), random.Int64N(2*w.limit+1)
			s := twoCounters(w, before, count, random.Int64N(w.width))
			n := 1 + random.Int64N(w.limit)
			if random.IntN(3) == 0 {
				n = []int64{1, w.limit, max(1, w.limit-count)}[random.IntN(3)]
			}
			honest(t, w, s, start, reading(w, s, start, n).RetryAfter, n)
		}
	}
}

func TestSlidingUsedIsRoundedUp(t *testing.T) {
	w := must(NewSlidingWindow(10, us(10)))
	for _, tt := range []struct{ before, count, since, used, remaining int64 }{
		{0, 0, 0, 0, 10}, {10, 0, 0, 10, 0}, {10, 0, 9, 1, 9}, {1, 0, 0, 1, 9}, {1, 0, 9, 1, 9}, {5, 2, 5, 5, 5}, {5, 3, 3, 7, 3},
		{3, 9, 4, 11, 0}, {20, 20, 0, 40, 0}, {0, 7, 9, 7, 3}, {10, 5, 5, 10, 0},
	} {
		s := twoCounters(w, tt.before, tt.count, tt.since)
		r := reading(w, s, start, 1)
		if r.Used != tt.used || r.Remaining != tt.remaining {
			t.Errorf("%+v: used %d, remaining %d", tt, r.Used, r.Remaining)
		}
		if fits := w.Fits(s, w.Cost(tt.remaining), Terms{}); fits != (tt.used <= 10) || w.Fits(s, w.Cost(tt.remaining+1), Terms{}) {
			t.Errorf("%+v: Remaining is not what fits", tt)
		}
	}
}

func TestIdleSlidingWindowStartsAnew(t *testing.T) {
	w := must(NewSlidingWindow(10, us(10)))
	for _, tt := range []struct{ idle, used, wait int64 }{{9, 10, 1 + 10}, {10, 10, 10}, {15, 5, 5}, {19, 1, 1}, {20, 0, 0}, {21, 0, 0}, {100, 0, 0}} {
		s := w.NewState()
		try(w, s, start, 10)
		r := reading(w, s, start+tt.idle, 10)
		if r.Used != tt.used || r.RetryAfter != us(tt.wait) || r.ResetAfter != us(tt.wait) {
			t.Errorf("after %d: %+v", tt.idle, r)
		}
		if s.Expires() != start+20 {
			t.Errorf("expires %d after it started", s.Expires()-start)
		}
	}
	// After two idle windows, the next window starts with its first charge.
	s := w.NewState()
	try(w, s, start, 10)
	try(w, s, start+27, 10)
	wantUsed(t, w, s, start+36, 10)
	wantUsed(t, w, s, start+38, 9)
}

func TestSlidingWindowAfterLimitChanges(t *testing.T) {
	w, lower := must(NewSlidingWindow(100, us(1000))), must(NewSlidingWindow(10, us(1000)))
	s := w.NewState()
	try(w, s, start, 100)
	if r := reading(lower, clone(s), start, 1); r.Used != 100 || r.Remaining != 0 || r.RetryAfter != us(1000+550) || r.ResetAfter != us(2000) {
		t.Errorf("in the window: %+v", r)
	}
	if r := reading(lower, clone(s), start+1000, 1); r.Used != 20 || r.RetryAfter != us(550) {
		t.Errorf("in the next: %+v", r)
	}
	if r := reading(lower, clone(s), start+1000, 11); r.RetryAfter != Never {
		t.Errorf("of too many: %+v", r)
	}
	wantUsed(t, w, s, start, 100) // a peek with the lower limit forgot nothing
	wantUsed(t, must(NewSlidingWindow(200, us(1000))), s, start+500, 100)
	wantUsed(t, must(NewSlidingWindow(100, us(2000))), clone(s), start+1500, 100)
	wantUsed(t, must(NewSlidingWindow(100, us(500))), clone(s), start+750, 50)
}

func TestSlidingWindowRefundsThePreviousWindow(t *testing.T) {
	w := must(NewSlidingWindow(10, us(10)))
	s := w.NewState()
	receipt, _ := try(w, s, start, 6)
	try(w, s, start+10, 2)
	if !give(w, s, start+10, 4, receipt) {
		t.Error("no refund")
	}
	wantUsed(t, w, s, start+10, 4)
	if give(w, s, start+20, 2, receipt) {
		t.Error("refunded a charge of a window that no longer counts")
	}
}

func TestSlidingWindowAfterAStepBack(t *testing.T) {
	w := must(NewSlidingWindow(10, us(10)))
	s := w.NewState()
	try(w, s, start, 6)
	try(w, s, start+10, 2)
	if back := start - 1_000_000; !w.Find(s, back) || s.Expires() != back+20 {
		t.Errorf("expires at %d after a step back to %d", s.Expires(), back)
	}
	wantUsed(t, w, s, start-1_000_000, 8)
	wantUsed(t, w, s, start-1_000_000+20, 0)
}
