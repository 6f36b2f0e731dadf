package core_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
)

// history is one random history on several keys, all of which stand alike after it.
type history struct {
	*testing.T
	g        *core.Gate
	c        *core.ManualClock
	rng      *rand.Rand
	policy   *core.Policy
	raisable bool
	keys     []core.Key
	held     [][]*core.Reservation // of each key
	n        int                   // steps so far
}

func newHistory(
	t *testing.T, g *core.Gate, c *core.ManualClock, rng *rand.Rand, cfg core.PolicyConfig, keys int,
) *history {
	h := &history{T: t, g: g, c: c, rng: rng, raisable: cfg.Raisable}
	h.policy = newPolicy(t, cfg)
	for i := range keys {
		h.keys = append(h.keys, newKey(t, "k", cfg.Name, fmt.Sprint(i, " ", rng.Uint64())))
	}
	h.held = make([][]*core.Reservation, keys)
	return h
}

// charge returns a charge on key i.
func (h *history) charge(i int, cost int64) core.Charge {
	return core.Charge{Policy: h.policy, Key: h.keys[i], Cost: cost}
}

// step does one thing on every key: it raises the limit, corrects what is used, or charges, settles,
// cancels and abandons.
func (h *history) step() {
	h.n++
	cost, actual, op := 1+h.rng.Int64N(4), h.rng.Int64N(9), h.rng.IntN(9)
	pick := h.rng.IntN(8)
	ends := h.c.Now().Add(time.Duration(1+h.rng.Int64N(200_000_000)) * time.Microsecond)
	raise := core.Adjustment{
		ID: fmt.Sprint(h.n), Policy: h.policy, Units: h.rng.Int64N(7) - 3, Raise: 1 + h.rng.Int64N(5), Until: ends,
	}
	for i := range h.keys {
		held := h.held[i]
		switch {
		case op < 2 && h.raisable:
			raise.Key = h.keys[i]
			adjust(h, h.g, raise)
		case op < 4 && pick < len(held):
			settle(h, held[pick], actual)
			h.held[i] = slices.Delete(held, pick, pick+1)
		case op < 5 && pick < len(held):
			cancel(h, held[pick])
			h.held[i] = slices.Delete(held, pick, pick+1)
		default:
			r, _, err := h.g.Charge(h.Context(), h.charge(i, cost))
			if err != nil {
				h.Fatal(err)
			}
			if r != nil {
				r.Abandon() // a hold runs out by the clock of the test
				h.held[i] = append(held, r)
			}
		}
	}
}

func (h *history) move(most time.Duration) {
	h.c.Advance(time.Duration(h.rng.Int64N(most.Microseconds()+1)) * time.Microsecond)
}

// Waits are exact while raises end, debts are owed and refunds pay some of them.
func TestWaitsOfRaisesAreExact(t *testing.T) {
	t.Parallel()
	eachGate(t, func(t *testing.T, g *core.Gate, c *core.ManualClock) {
		seed := rand.Uint64()
		rng := rand.New(rand.NewPCG(seed, 0))
		for _, cfg := range []core.PolicyConfig{
			{Name: "window", Raisable: true, Algorithm: core.FixedWindow{Limit: 5, Window: time.Minute}},
			{Name: "minutes", Raisable: true, Algorithm: core.Calendar{Limit: 5, Every: core.PeriodMinute, In: time.UTC}},
			{Name: "frozen", Raisable: true, Algorithm: frozen(5)},
		} {
			for range rounds(t, 120) {
				c.Set(time.UnixMicro(epoch))
				h := newHistory(t, g, c, rng, cfg, 7)
				for range 1 + rng.IntN(12) {
					h.step()
					h.move(15 * time.Second)
				}
				cost := 1 + rng.Int64N(9)
				if err := checkWaits(t, g, c, func(i int) core.Charge { return h.charge(i, cost) }); err != nil {
					t.Fatalf("seed %d, %s: %v", seed, cfg.Name, err)
				}
			}
		}
	})
}

// A hold that has expired has gone, whether or not somebody asked in between.
func TestAskingChangesNothing(t *testing.T) {
	t.Parallel()
	eachGate(t, func(t *testing.T, g *core.Gate, c *core.ManualClock) {
		seed := rand.Uint64()
		rng := rand.New(rand.NewPCG(seed, 0))
		for i, a := range []core.Algorithm{
			core.FixedWindow{Limit: 5, Window: time.Minute},
			core.FixedWindow{Limit: 5, Window: time.Minute, FromFirst: true},
			core.Calendar{Limit: 5, Every: core.PeriodMinute, In: time.UTC},
			core.SlidingWindow{Limit: 5, Window: time.Minute},
			core.SlidingWindow{Limit: 5, Window: time.Minute, Buckets: 6},
			core.SlidingLog{Windows: []core.Window{{Limit: 5, Width: time.Minute}}},
			core.PerMinute(5), core.TokenBucket{Rate: 7, Per: time.Minute, Burst: 5},
			core.LeakyBucket{Rate: 5, Per: time.Minute, Capacity: 5}, frozen(5),
		} {
			_, shared := a.(core.Calendar)
			fixed, ok := a.(core.FixedWindow)
			cfg := core.PolicyConfig{Name: fmt.Sprint("p", i), Algorithm: a, Hold: 20 * time.Second}
			cfg.Raisable = shared || ok && !fixed.FromFirst
			for range rounds(t, 80) {
				c.Set(time.UnixMicro(epoch))
				h := newHistory(t, g, c, rng, cfg, 2)
				for range 1 + rng.IntN(10) {
					h.step()
					for range rng.IntN(4) {
						h.move(20 * time.Second)
						peek(t, g, h.charge(1, 1))
					}
				}
				one, other := show(peek(t, g, h.charge(0, 1))), show(peek(t, g, h.charge(1, 1)))
				if one != other {
					t.Fatalf("seed %d, %T%+v\nnobody asked: %s\nsomebody did: %s", seed, a, a, one, other)
				}
			}
		}
	})
}
