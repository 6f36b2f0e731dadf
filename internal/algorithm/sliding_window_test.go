package algorithm

import (
	"testing"
)

// twoCounters returns a state at since microseconds after a window's start.
func twoCounters(w *SlidingWindow, before, count, since int64) *counters {
	s := w.NewState().(*counters)
	s.kept = counterPair{start - since, count, before}
	return s
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
