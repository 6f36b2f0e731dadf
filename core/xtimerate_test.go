package core_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"golang.org/x/time/rate"
	"pgregory.net/rapid"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/gatetest"
)

// tokensEpsilon is more than the rounding error of a float64 number of tokens, and less than what
// refills in a microsecond.
const tokensEpsilon = 1e-8

// twin is one token bucket in two versions: one of golang.org/x/time/rate and one of a Gate in
// memory. Its methods do the same to both and return both answers.
type twin struct {
	t        testing.TB
	x        *rate.Limiter
	gate     *core.Gate
	clock    *core.ManualClock
	policy   *core.Policy
	key      core.Key
	burst    int
	reserved []twinReservation
}

type twinReservation struct {
	x    *rate.Reservation
	ours *core.Reservation
}

func newTwin(t testing.TB, token time.Duration, burst int) *twin {
	clock := core.NewManualClock(time.UnixMicro(epoch))
	return &twin{
		t: t, x: rate.NewLimiter(rate.Every(token), burst),
		gate: memoryGate(t, core.Config{Clock: clock.Now}), clock: clock,
		policy: limited(t, "p", core.TokenBucket{Rate: 1, Per: token, Burst: int64(burst)}),
		key:    newKey(t, "k"), burst: burst,
	}
}

func (w *twin) charge(n int) core.Charge {
	return core.Charge{Policy: w.policy, Key: w.key, Cost: units(int64(n))}
}

func (w *twin) advance(d time.Duration) { w.clock.Advance(d) }

func (w *twin) allow(n int) (x, ours bool) {
	return w.x.AllowN(w.clock.Now(), n), decide(w.t, w.gate, w.charge(n)).Allowed
}

// reserve returns the delays, or -1 without a reservation. Ours are whole microseconds, so it
// rounds the others.
func (w *twin) reserve(n int) (x, ours time.Duration) {
	w.t.Helper()
	x, ours = -1, -1
	var r twinReservation
	if r.x = w.x.ReserveN(w.clock.Now(), n); r.x.OK() {
		x = r.x.DelayFrom(w.clock.Now()).Round(time.Microsecond)
	}
	reservation, d, err := w.gate.Reserve(context.Background(), math.MaxInt64, w.charge(n))
	noError(w.t, err)
	if r.ours = reservation; reservation != nil {
		ours = d.At(0).Delay
	}
	w.reserved = append(w.reserved, r)
	return x, ours
}

func (w *twin) cancel(i int) {
	w.t.Helper()
	w.reserved[i].x.CancelAt(w.clock.Now())
	if ours := w.reserved[i].ours; ours != nil {
		noError(w.t, ours.Cancel(context.Background()))
	}
}

// tokens returns the whole tokens left, below 0 if tokens are owed.
func (w *twin) tokens() (x, ours int64) {
	w.t.Helper()
	d := peek(w.t, w.gate, w.charge(1))
	return int64(math.Floor(w.x.TokensAt(w.clock.Now()) + tokensEpsilon)), int64(w.burst) - d.At(0).Used
}

// do runs one step of a script: allow, reserve or cancel with a number, or a duration to wait. It
// returns both answers.
func (w *twin) do(step string) (x, ours string) {
	w.t.Helper()
	if d, err := time.ParseDuration(step); err == nil {
		w.advance(d)
	} else {
		var n int
		var word string
		gatetest.Must(fmt.Sscan(step, &word, &n))(w.t)
		switch word {
		case "allow":
			a, b := w.allow(n)
			x, ours = fmt.Sprint(a), fmt.Sprint(b)
		case "reserve":
			a, b := w.reserve(n)
			x, ours = fmt.Sprint(a), fmt.Sprint(b)
		case "cancel":
			w.cancel(n)
		default:
			w.t.Fatal(step)
		}
	}
	a, b := w.tokens()
	return fmt.Sprintf("%s %d left", x, a), fmt.Sprintf("%s %d left", ours, b)
}

func TestSameAsXTimeRate(t *testing.T) {
	tests := []struct {
		name   string
		token  time.Duration
		burst  int
		script string
		last   string // the answer of both to the last step
	}{
		{"costs of zero", time.Second, 3, "allow 0, allow 3, allow 0, reserve 0", "0s 0 left"},
		{"a cost of zero is denied while tokens are owed", time.Second, 3, "reserve 3, reserve 1, allow 0", "false -1 left"},
		{"tokens of a microsecond", time.Microsecond, 1000, "allow 1000, 3us, allow 4, allow 3, reserve 1000", "1ms -1000 left"},
		{"cancels at the time to act", time.Second, 10, "allow 2, reserve 5, cancel 0, allow 8", "true 0 left"},
		{"cancels the last, and then the one before", time.Second, 3, "allow 3, reserve 1, reserve 2, cancel 1, cancel 0, reserve 1", "1s -1 left"},
		{"cancels two without delay", time.Second, 10, "reserve 3, reserve 2, cancel 0, cancel 1, allow 10", "true 0 left"},
		{"cancels two of three", time.Second, 10, "reserve 1, reserve 5, reserve 1, cancel 1, cancel 0", " 9 left"},
		{"cancels once", time.Second, 10, "allow 5, reserve 3, cancel 0, allow 3, 1s, cancel 0", " 3 left"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newTwin(t, tt.token, tt.burst)
			var last string
			for i, step := range strings.Split(tt.script, ", ") {
				x, ours := w.do(step)
				if x != ours {
					t.Errorf("step %d, %s: x/time/rate %q, ours %q", i, step, x, ours)
				}
				last = ours
			}
			gatetest.Equal(t, last, tt.last, "got")
		})
	}
}

// Random scripts get the same answers if they cancel only the last reservation, and only until its
// time to act.
func TestRandomScriptsAreTheSameAsXTimeRate(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		const second = int64(time.Second / time.Microsecond)
		token := time.Duration(rapid.Int64Range(100, second).Draw(r, "token")) * time.Microsecond
		burst := rapid.IntRange(1, 20).Draw(r, "burst")
		w := newTwin(t, token, burst)
		type held struct {
			n         int
			made, act time.Time
		}
		var all []held // as in w.reserved
		newest := -1   // -1 if a charge followed or it was cancelled
		same := func(what string, x, ours any) {
			if x != ours {
				r.Fatalf("%s: x/time/rate %v, ours %v", what, x, ours)
			}
		}
		for range rapid.IntRange(1, 60).Draw(r, "steps") {
			now := w.clock.Now()
			switch rapid.IntRange(0, 5).Draw(r, "step") {
			case 0:
				w.advance(time.Duration(rapid.Int64Range(0, 2*int64(burst)*token.Microseconds()).Draw(r, "wait")) * time.Microsecond)
			case 1:
				w.advance(time.Duration(rapid.IntRange(0, burst).Draw(r, "tokens")) * token)
			case 2:
				n := rapid.IntRange(0, burst+1).Draw(r, "allow")
				x, ours := w.allow(n)
				same("allow", x, ours)
				if ours && n > 0 {
					newest = -1
				}
			case 3, 4:
				n := rapid.IntRange(1, burst+1).Draw(r, "reserve")
				x, ours := w.reserve(n)
				same("reserve", x, ours)
				if all = append(all, held{n, now, now.Add(ours)}); ours >= 0 {
					newest = len(all) - 1
				}
			case 5:
				// In float64 the time to act may be a nanosecond early, and so be over when it
				// comes.
				if newest < 0 || !all[newest].made.Equal(now) && !all[newest].act.After(now) {
					continue
				}
				w.cancel(newest)
				newest = -1
			}
			x, ours := w.tokens()
			same("tokens", x, ours)
		}
	})
}

// The last step of each script deliberately gets different answers. A Reserve of 0 charges nothing, so it
// does not wait.
func TestDiffersFromXTimeRate(t *testing.T) {
	tests := []struct {
		name    string
		burst   int
		script  string
		x, ours string
	}{
		{"cancelled a moment after the time to act", 10, "reserve 5, 1us, cancel 0", " 5 left", " 10 left"},
		{"cancelled after the time to act: only what has not refilled", 10, "reserve 10, 4s, cancel 0", " 4 left", " 10 left"},
		{"cancelled after the time to act, and others were charged since", 10, "reserve 4, 1s, allow 6, 1s, cancel 0", " 2 left", " 6 left"},
		{"cancelled while a larger later one waits", 3, "allow 3, reserve 1, reserve 2, cancel 0", " -3 left", " -2 left"},
		{"cancelled while a smaller later one waits", 10, "reserve 10, reserve 5, reserve 2, cancel 1", " -4 left", " -2 left"},
		{"reserved after a cancel while a smaller later one waits", 10, "reserve 10, reserve 5, reserve 2, cancel 1, reserve 3", "7s -7 left", "5s -5 left"},
		{"cancelled after the later one, which waited", 10, "reserve 6, reserve 8, cancel 1, cancel 0", " 6 left", " 10 left"},
		{"cancelled twice", 10, "reserve 5, cancel 0, allow 10, cancel 0", " 5 left", " 0 left"},
		{"reserves nothing while tokens are owed", 3, "reserve 3, reserve 1, reserve 0", "1s -1 left", "0s -1 left"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newTwin(t, time.Second, tt.burst)
			var x, ours string
			for step := range strings.SplitSeq(tt.script, ", ") {
				x, ours = w.do(step)
			}
			if x != tt.x || ours != tt.ours {
				t.Errorf("x/time/rate %q and ours %q, want %q and %q", x, ours, tt.x, tt.ours)
			}
		})
	}
}
