package algorithm

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// events is the reference of a sliding log: all charges, neither merged nor searched.
type events struct {
	l     *SlidingLog
	all   []admitted // times on the log's clock, rounded down to ticks
	ahead int64
	over  bool // no entry counts, so the log's clock is Redis's again
}

func (e *events) time(now int64) int64 {
	newest := int64(0)
	if n := len(e.all); n > 0 {
		newest = e.all[n-1].at
		e.ahead = max(e.ahead, newest-now)
	}
	e.over = false
	if e.over = e.ahead > 0 && now-now%e.l.tick > newest && e.live(e.l.windows[0], now+e.ahead) == 0; e.over {
		return now
	}
	return now + e.ahead
}

// forget removes the units that no longer counted when the log was written, so that they stay gone
// if the clock goes back.
func (e *events) forget(at int64) {
	for i := range e.all {
		if a := &e.all[i]; a.at+e.l.windows[0].keep <= at {
			a.units = 0
		}
	}
}

func (e *events) live(w logWindow, at int64) (sum int64) {
	if e.over {
		return 0
	}
	for _, a := range e.all {
		if a.at+w.keep > at {
			sum += a.units
		}
	}
	return sum
}

func (e *events) add(at, n int64) int64 {
	if e.over {
		e.all, e.ahead, e.over = nil, 0, false
	}
	at -= at % e.l.tick
	e.all = append(e.all, admitted{at, n})
	return at + 1
}

func (e *events) fits(at, n int64) bool {
	for _, w := range e.l.windows {
		if e.live(w, at)+n > w.limit {
			return false
		}
	}
	return true
}

func (e *events) force(at, n int64) int64 {
	for _, w := range e.l.windows {
		n = min(n, 2*w.limit-e.live(w, at))
	}
	return max(0, n)
}

func (e *events) give(at, n, receipt int64) (gave bool) {
	if e.over {
		return false
	}
	for i := range e.all {
		a := &e.all[i]
		if a.at == receipt-1 && a.at+e.l.windows[0].keep > at {
			part := min(n, a.units)
			a.units, n, gave = a.units-part, n-part, gave || part > 0
		}
	}
	if gave && !slices.ContainsFunc(e.all, func(a admitted) bool { return a.at == receipt-1 && a.units > 0 }) {
		// The log drops empty entries and entries that no longer count.
		e.all = slices.DeleteFunc(e.all, func(a admitted) bool { return a.units == 0 || a.at+e.l.windows[0].keep <= at })
	}
	return gave
}

// wait returns how long until n units fit, by trying every time at which an entry leaves a window.
func (e *events) wait(w logWindow, at, n int64) time.Duration {
	if n > w.limit {
		return Never
	}
	if e.live(w, at)+n <= w.limit {
		return 0
	}
	best := int64(1 << 62)
	for _, a := range e.all {
		if leaves := a.at + w.keep; leaves > at && leaves < best && e.live(w, leaves)+n <= w.limit {
			best = leaves
		}
	}
	return us(best - at)
}

func anyLog(t *rapid.T) *SlidingLog {
	limit := rapid.Int64Range(40, 60).Draw(t, "limit")
	width := rapid.Int64Range(1, 50).Draw(t, "width")
	switch rapid.IntRange(0, 2).Draw(t, "windows") {
	case 0:
		return must(NewSlidingLog([]Window{{limit, us(width)}}))
	case 1:
		n := rapid.Int64Range(1, 9).Draw(t, "buckets")
		return must(NewBuckets(limit, us(n*width), int(n)))
	}
	return must(NewSlidingLog([]Window{{limit, us(width)}, {limit + 25, us(4 * width)}, {limit - 30, us(width/2 + 100)}}))
}

func TestLogAgreesWithReference(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := anyLog(t)
		s, now := l.NewState().(*entries), start
		ref := &events{l: l}
		// The totals wrap around during the test.
		s.all = []logEntry{{start - start%l.tick, modulus - 5}}
		s.total = modulus - 5 + rapid.Int64Range(1, 4).Draw(t, "units")
		l.Find(s, now)
		s.store(false)
		ref.add(start, s.total-modulus+5)
		var receipts []admitted
		for range rapid.IntRange(1, 80).Draw(t, "operations") {
			now += rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(0, 3), rapid.Int64Range(0, 150), rapid.Int64Range(-60, 0)).Draw(t, "microseconds")
			n := rapid.OneOf(rapid.Int64Range(1, 3), rapid.Int64Range(1, 70)).Draw(t, "n")
			at := ref.time(now)
			steps := len(s.all) > 0 && now+s.keptAhead < s.last().time
			if l.Find(s, now) != steps {
				t.Fatalf("Find changed the state: %t", !steps)
			}
			if steps {
				ref.forget(at)
			}
			if s.time != at {
				t.Fatalf("time %d instead of %d", s.time, at)
			}
			switch rapid.IntRange(0, 5).Draw(t, "operation") {
			case 0:
				want := int64(0)
				if part := ref.force(at, l.Cost(n).Whole); part > 0 {
					want = ref.add(at, part)
				}
				if got := s.Commit(l.Cost(n), Terms{Op: Force}); got != want {
					t.Fatalf("receipt %d instead of %d", got, want)
				}
				ref.forget(at)
			case 1, 2:
				if len(receipts) == 0 {
					break
				}
				r := rapid.SampledFrom(receipts).Draw(t, "receipt")
				if got, want := s.Give(l.Cost(n), r.at), ref.give(at, l.Cost(n).Whole, r.at); got != want {
					t.Fatalf("refunded: %t instead of %t", got, want)
				} else if got {
					ref.forget(at)
				}
			default:
				fits := s.Fits(l.Cost(n), Terms{})
				if fits != ref.fits(at, n) {
					t.Fatalf("%d fit: %t", n, fits)
				}
				if fits {
					receipt := s.Commit(l.Cost(n), Terms{})
					if want := ref.add(at, n); receipt != want {
						t.Fatalf("receipt %d instead of %d", receipt, want)
					}
					receipts = append(receipts, admitted{receipt, n})
					ref.forget(at)
				}
			}
			for i := range s.all {
				if e := s.all[i]; e.before < 0 || e.before >= modulus || s.total < 0 || s.total >= modulus {
					t.Fatalf("a total is not below the modulus: %+v", s)
				}
			}
			if len(s.all) > 0 && s.keptAhead == ref.ahead && s.expires != s.last().time+max(l.windows[0].keep-ref.ahead, l.tick) {
				t.Fatalf("expires at %d", s.expires)
			}
			same(t, l, s, ref, now)
		}
	})
}

// same fails the test unless a log and its reference give the same reply.
func same(t *rapid.T, l *SlidingLog, s *entries, ref *events, now int64) {
	at := ref.time(now)
	for _, n := range []int64{0, 1, 5, l.Capacity(), l.largest(), l.largest() + 1} {
		l.Find(s, now)
		r := l.Read(s.Reply(l.Cost(n), nil), Cost{}, n)
		violated, longest, reset := uint8(0), time.Duration(0), int64(0)
		for i, w := range l.windows {
			wait := ref.wait(w, at, n)
			if longest = max(longest, wait); wait > 0 {
				violated |= 1 << w.at
			}
			if s.live[i] != ref.live(w, at) {
				t.Fatalf("%d in window %d instead of %d", s.live[i], i, ref.live(w, at))
			}
		}
		for _, a := range ref.all {
			if a.units > 0 && !ref.over {
				reset = max(reset, a.at+l.windows[0].keep-at)
			}
		}
		if r.RetryAfter != longest || r.Violated != violated || r.ResetAfter != us(reset) {
			t.Fatalf("%d: %+v instead of %v, %b and %v", n, r, longest, violated, us(reset))
		}
	}
}

// Force fills a log with its largest number of entries, and a full log loses no charge.
func TestLogFilledByForce(t *testing.T) {
	for _, l := range []*SlidingLog{must(NewSlidingLog([]Window{{5, us(1000)}})), must(NewBuckets(5, us(8), 8))} {
		s := l.NewState()
		for i := range int64(20) {
			force(l, s, start+i, 1)
			if e := s.(*entries); int64(len(e.all)-e.first) > l.most {
				t.Fatalf("%d entries of %d", len(e.all), l.most)
			}
		}
		used := int64(10)
		if l.tick == 1 && l.windows[0].width == 8 {
			used = 9
		}
		wantUsed(t, l, s, start+19, used)
		wantUsed(t, l, s, start+19+1010, 0)
	}
}

func TestLogDropsOldEntries(t *testing.T) {
	l := must(NewSlidingLog([]Window{{1000, us(100)}}))
	s := l.NewState().(*entries)
	for i := range int64(5000) {
		try(l, s, start+i, 1)
		if len(s.all) > 2*100+2 {
			t.Fatalf("keeps %d entries for a window of 100", len(s.all))
		}
	}
	wantUsed(t, l, s, start+4999, 100)
}

// After a step back the log's clock leads until Redis's clock has caught up. Otherwise it would
// show the same times again, and a receipt would match another charge.
func TestLogClockShowsNoTimeTwice(t *testing.T) {
	l := must(NewBuckets(10, us(10_000), 10))
	at := start - start%10_000
	for _, caught := range []int64{0, 1, 999, 11_000, 50_000} {
		s := l.NewState()
		try(l, s, at+20_000, 1)
		old, _ := try(l, s, at, 9)
		now := at + 20_000 + caught
		if s.Expires() < at+21_000 {
			t.Errorf("expires at %d, before %d", s.Expires(), at+20_000)
		}
		if _, ok := try(l, s, now, 10); !ok {
			t.Fatal("no unit fits an empty log")
		}
		if give(l, s, now, 9, old) {
			t.Errorf("%d later a receipt refunded another charge", caught)
		}
	}
}
