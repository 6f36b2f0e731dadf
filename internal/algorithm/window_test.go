package algorithm

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// reading returns the reading of a peek for n units.
func reading(l Limit, s State, now, n int64) Reading {
	l = At(l, now)
	l.Find(s, now)
	return l.Read(s.Reply(l.Cost(n), nil), Cost{}, n)
}

func force(l Limit, s State, now, n int64) (receipt int64) {
	l = At(l, now)
	l.Find(s, now)
	return s.Commit(l.Cost(n), Terms{Op: Force})
}

func give(l Limit, s State, now, n, receipt int64) bool {
	l = At(l, now)
	l.Find(s, now)
	return s.Give(l.Cost(n), receipt)
}

func wantUsed(t *testing.T, l Limit, s State, now, used int64) {
	t.Helper()
	if r := reading(l, s, now, 0); r.Used != used || r.Remaining != max(0, l.Capacity()-used) {
		t.Errorf("used %d, remaining %d instead of %d of %d", r.Used, r.Remaining, used, l.Capacity())
	}
}

// windowed returns limits with consecutive windows: days, and otherwise windows of 10 microseconds.
func windowed() map[string]Limit {
	return map[string]Limit{
		"aligned":    must(NewFixedWindow(5, us(10), false)),
		"from first": must(NewFixedWindow(5, us(10), true)),
		"calendar":   must(NewCalendar(5, Day, zone("Europe/Berlin"), time.Time{}, utc("2025-10-26"))).Current(),
	}
}

// span returns the window at now and the end of the next one.
func span(l Limit, now int64) (from, until, after int64) {
	if from, until = Period(At(l, now)); until > 0 {
		_, after = Period(At(l, until))
		return from, until, after
	}
	f := l.(*FixedWindow)
	from = now
	if !f.fromFirst {
		from -= now % f.width
	}
	return from, from + f.width, from + 2*f.width
}

// If the clock goes back over the start of a period, its charges count at once, and again when it
// starts. Charges of the earlier period are forgotten.
func TestPeriodIsEnteredTwice(t *testing.T) {
	const second = 1_000_000
	l := windowed()["calendar"]
	_, boundary, after := span(l, utc("2025-10-25T12:00").UnixMicro())
	s := l.NewState()
	before, _ := try(l, s, boundary-second, 3)
	receipt, _ := try(l, s, boundary, 2)
	wantUsed(t, l, s, boundary-second, 2)
	if give(l, s, boundary-second, 3, before) {
		t.Error("refunded a charge of an earlier count")
	}
	between, _ := try(l, s, boundary-second, 3)
	if r := reading(l, s, boundary-second, 4); r.Used != 5 || r.RetryAfter != us(second+after-boundary) {
		t.Errorf("%+v", r)
	}
	if r := reading(l, s, boundary-second, 3); r.RetryAfter != us(second) {
		t.Errorf("%+v", r)
	}
	if !give(l, s, boundary-1, 1, between) {
		t.Error("no refund")
	}
	wantUsed(t, l, s, boundary-1, 4)
	wantUsed(t, l, s, boundary-2*second, 4)
	wantUsed(t, l, s, boundary+1, 2)
	try(l, s, boundary+1, 3)
	if give(l, s, boundary+1, 2, between) || !give(l, s, boundary+1, 2, receipt) {
		t.Error("refunded a charge of another period, or not the charge of this one")
	}
	wantUsed(t, l, s, boundary+1, 3)
	wantUsed(t, l, s, after, 0)

	// A step back exactly to the start of the previous period.
	from, _, _ := span(l, boundary-second)
	s = l.NewState()
	before, _ = try(l, s, from, 5)
	try(l, s, boundary, 5)
	if give(l, s, from, 5, before) {
		t.Error("refunded a charge of an earlier count")
	}
	wantUsed(t, l, s, from, 5)
	wantUsed(t, l, s, boundary, 5)
	wantUsed(t, l, s, after, 0)
}

// A debt above a lowered limit is paid by as many windows as it takes, whether somebody asks in them or not.
func TestDebtAboveALoweredLimit(t *testing.T) {
	for name, l := range windowed() {
		t.Run(name, func(t *testing.T) {
			from, until, after := span(l, utc("2025-10-26T12:00").UnixMicro())
			s := l.NewState()
			try(l, s, from, 5)
			force(l, s, from, 5)
			lowered := l.Share(5)
			wantUsed(t, lowered, s, from, 10)
			end := from
			for range 6 {
				_, end, _ = span(l, end)
			}
			if late := s.Expires() - end; late < 0 || late > 0 && name != "calendar" {
				t.Errorf("expires %d after %d", late, end)
			}
			honest(t, At(lowered, from), s, from, us(end-from), 1)
			wantUsed(t, lowered, clone(s), end-1, 1)
			wantUsed(t, lowered, s, until, 5)
			honest(t, At(lowered, until), s, until, us(end-until), 1)
			wantUsed(t, lowered, s, after, 4)
			force(lowered, s, after, 1)
			wantUsed(t, lowered, s, end-1, 2)
			wantUsed(t, lowered, s, end, 1)
		})
	}
}

// A step back neither frees counted units nor locks the key for longer than a window from then on.
func TestWindowsAfterAStepBack(t *testing.T) {
	for name, l := range windowed() {
		t.Run(name, func(t *testing.T) {
			now := utc("2025-10-26T12:00").UnixMicro()
			s := l.NewState()
			try(l, s, now, 5)
			back := now - 1_000_000_000_000
			from, until, _ := span(l, back)
			if f := l.(*FixedWindow); f.calendar == nil {
				from, until = back, back+f.width
			}
			if !At(l, back).Find(s, back) {
				t.Error("the state is not stored as it was found")
			}
			if at := s.(*window).kept.start; at < from || at > back {
				t.Errorf("starts at %d, not from %d to %d", at, from, back)
			}
			wantUsed(t, l, s, back, 5)
			wantUsed(t, l, s, until-1, 5)
			wantUsed(t, l, s, until, 0)
		})
	}
}

// An expired state equals a new one, under every limit that made it.
func TestExpiredStateEqualsNewState(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l, _, _ := anyLimit(t)
		s, now := l.NewState(), start
		for range rapid.IntRange(1, 10).Draw(t, "operations") {
			if now += someTime(t, l); rapid.Bool().Draw(t, "back") {
				now -= 2 * someTime(t, l)
			}
			n := someUnits(t, l, s, now)
			if rapid.Bool().Draw(t, "force") {
				force(l, s, now, n)
			} else {
				try(l, s, now, n)
			}
		}
		if _, ok := l.(*TokenBucket); ok && l.Window() == Never {
			t.Skip("never expires")
		}
		now = max(now, s.Expires())
		fresh := l.NewState()
		for range 5 {
			n := someUnits(t, l, fresh, now)
			if got, want := reading(l, s, now, n), reading(l, fresh, now, n); got != want {
				t.Fatalf("%+v of an expired state, %+v of none: %T %+v at %d", got, want, l, s, now)
			}
			_, got := try(l, s, now, n)
			if _, want := try(l, fresh, now, n); got != want {
				t.Fatalf("%d fit: %t after an expired state, %t after none", n, got, want)
			}
			now += someTime(t, l)
		}
	})
}

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
					if w.Find(later, start+want); later.Fits(w.Cost(n), Terms{}) {
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
		if fits := s.Fits(w.Cost(tt.remaining), Terms{}); fits != (tt.used <= 10) || s.Fits(w.Cost(tt.remaining+1), Terms{}) {
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

// Units that were clamped to raises which have ended since fit as what they are clamped to now.
func TestClampedUnitsFallWithTheLimit(t *testing.T) {
	f := must(NewFixedWindow(100, us(1000), false))
	s := f.NewState()
	f.Find(s, 0)
	reply := s.Reply(f.Cost(150), nil)
	if wait := f.Later(reply, 150, 0, false); wait != Never {
		t.Errorf("150 units of 100 fit after %v", wait)
	}
	if wait := f.Later(reply, 150, 0, true); wait != 0 {
		t.Errorf("clamped units fit after %v, want now", wait)
	}
}
