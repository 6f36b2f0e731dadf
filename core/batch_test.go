package core_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/redistest"
)

// crowd is requests that meet in one script: of few policies and keys, so that what one does,
// another finds.
type crowd struct {
	*lockstep
	policies []int
	keys     int
	spent    [][2]*core.Asked // that can be given back
	text     strings.Builder  // what was asked
}

// pick chooses the policies and keys of the next scripts.
func (c *crowd) pick() {
	c.policies = c.rng.Perm(len(mixed))[:1+c.rng.IntN(3)]
	if c.rng.IntN(2) == 0 { // one of those that scripts are asked for in short
		plain := []string{"whole", "million", "month"}[c.rng.IntN(3)]
		c.policies[0] = slices.IndexFunc(mixed, func(p core.PolicyConfig) bool { return p.Name == plain })
	}
	c.keys = 1 + c.rng.IntN(2)
}

// charges are the same for both gates.
func (c *crowd) charges(most int) (both [2][]core.Charge) {
	for range 1 + c.rng.IntN(most) {
		at := c.policies[c.rng.IntN(len(c.policies))]
		burst := int64(10)
		if b, ok := mixed[at].Algorithm.(core.TokenBucket); ok {
			burst = b.Burst
		}
		key, cost := c.lockstep.keys[c.rng.IntN(c.keys)], c.cost(burst)
		for i := range both {
			both[i] = append(both[i], core.Charge{Policy: c.lockstep.policies[i][at], Key: key, Cost: cost})
		}
	}
	return both
}

// limits is a context in which policies that change have one of their limits.
func (c *crowd) limits() context.Context {
	if c.turns {
		return withPlan(c.Context(), c.rng.IntN(12))
	}
	return c.Context()
}

// ask is any request, or none where it would have no effect.
func (c *crowd) ask() (both [2]*core.Asked) {
	ctx := c.limits()
	if c.rng.IntN(4) == 0 && len(c.spent) > 0 {
		at := c.rng.IntN(len(c.spent))
		whole, units := c.rng.IntN(3) > 0, 1+c.rng.Int64N(3)
		for i, a := range c.spent[at] {
			both[i] = a.Back(ctx, whole, units)
		}
		c.spent = append(c.spent[:at], c.spent[at+1:]...)
		fmt.Fprintf(&c.text, "  give %v %d\n", whole, units)
		return both
	}
	op, bound := "decide", int64(0)
	switch c.rng.IntN(8) {
	case 0:
		op = "peek"
	case 1, 2:
		op, bound = "reserve", c.rng.Int64N(3_000_000)+c.rng.Int64N(2)*1_000_000
	case 3:
		op, bound = "atmost", 1+c.rng.Int64N(12)
	case 4:
		op = "force"
	}
	return c.lay(ctx, op, bound, c.charges(4))
}

func (c *crowd) lay(ctx context.Context, op string, bound int64, charges [2][]core.Charge) (both [2]*core.Asked) {
	for i, g := range []*core.Gate{c.redis, c.memory} {
		for j := range charges[i] {
			if op == "atmost" { // what Gate.AtMost asks for
				charges[i][j].Cost = min(charges[i][j].Cost, 1)
			}
		}
		a, err := g.Ask(ctx, op, bound, charges[i]...)
		if err != nil {
			c.Fatal(err)
		}
		both[i] = a
	}
	fmt.Fprintf(&c.text, "  %s %d:", op, bound)
	for _, x := range charges[0] {
		fmt.Fprintf(&c.text, " %s %s %d,", x.Policy.Name(), x.Key, x.Cost)
	}
	c.text.WriteString("\n")
	return both
}

// compare compares the answers to a request in Redis and in memory.
func (c *crowd) compare(what string, i int, receipts bool, both [2]*core.Asked) {
	c.Helper()
	own, d := both[0].Reply(receipts)
	model, e := both[1].Reply(receipts)
	if own != model || show(d) != show(e) {
		c.Fatalf("%s, request %d at %d\n%sredis:  %s %s\nmemory: %s %s", what, i, c.clock.now(), &c.text, own, show(d), model, show(e))
	}
}

// inOne decides up to 30 requests in one script.
func (c *crowd) inOne(n int) {
	c.Helper()
	var asked [2][]*core.Asked
	var keeps, receipts []bool
	for range 2 + c.rng.IntN(29) {
		before := len(c.spent)
		both := c.ask()
		if both[0] == nil {
			continue
		}
		keeps = append(keeps, len(c.spent) == before)
		receipts = append(receipts, c.rng.IntN(2) == 0)
		for i := range both {
			if !receipts[len(receipts)-1] {
				both[i].WithoutReceipts()
			}
			asked[i] = append(asked[i], both[i])
		}
	}
	if len(asked[0]) == 0 {
		return
	}
	for i, g := range []*core.Gate{c.redis, c.memory} {
		if err := g.DecideInOne(c.Context(), asked[i]); err != nil {
			c.Fatal(err)
		}
	}
	for i := range asked[0] {
		both := [2]*core.Asked{asked[0][i], asked[1][i]}
		c.compare("script "+fmt.Sprint(n), i, receipts[i], both)
		if keeps[i] && !both[0].Is("force") {
			c.spent = append(c.spent, both)
		}
	}
	c.spent = c.spent[max(0, len(c.spent)-40):]
}

// shared decides requests of up to 30 callers, many of whom want the very same, in one script. It
// returns how many were merged.
func (c *crowd) shared(n int) (merged int) {
	c.Helper()
	var asked [2][]*core.Asked
	alike := c.rng.IntN(2) == 0
	first := c.charges(1)
	for range 1 + c.rng.IntN(6) {
		ctx, charges := c.limits(), c.charges(3)
		op, bound := "decide", int64(0)
		if key := c.lockstep.keys[c.rng.IntN(len(c.lockstep.keys))]; alike { // but for the keys
			for i := range charges {
				charges[i] = slices.Clone(first[i])
				charges[i][0].Key = key
			}
		} else if n := c.rng.IntN(8); n == 0 {
			op = "peek"
		} else if n == 1 {
			op, bound = "reserve", 1_000_000
		}
		for range 1 + c.rng.IntN(5) {
			if both := c.lay(ctx, op, bound, charges); both[0] != nil {
				for i := range both {
					both[i].WithoutReceipts()
					asked[i] = append(asked[i], both[i])
				}
			}
		}
	}
	if len(asked[0]) == 0 {
		return 0
	}
	c.rng.Shuffle(len(asked[0]), func(i, j int) {
		for _, a := range asked {
			a[i], a[j] = a[j], a[i]
		}
	})
	order, merged, err := c.redis.DecideShared(c.Context(), asked[0])
	if err != nil {
		c.Fatal(err)
	}
	for _, i := range order {
		if err := c.memory.DecideInOne(c.Context(), asked[1][i:i+1]); err != nil {
			c.Fatal(err)
		}
	}
	for i := range asked[0] {
		c.compare("callers "+fmt.Sprint(n), i, false, [2]*core.Asked{asked[0][i], asked[1][i]})
	}
	return merged
}

// What many requests in one script, and callers who share one, are told and leave behind is what
// the model tells them one after the other at the same time.
func TestScriptAgreesWithModelOnBatches(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		seed := rand.Uint64()
		t.Cleanup(func() {
			if t.Failed() {
				t.Logf("seed %d", seed)
			}
		})
		c := &crowd{lockstep: newLockstep(t, s, seed)}
		merged := 0
		for n := range operations(s) / 2 {
			if n%10 == 0 {
				c.pick()
				c.turns = c.rng.IntN(2) == 0
			}
			c.move()
			c.text.Reset()
			if c.rng.IntN(3) == 0 {
				merged += c.shared(n)
			} else {
				c.inOne(n)
			}
			c.compareStates()
		}
		t.Logf("%d callers merged", merged)
		if merged < operations(s)/20 {
			t.Errorf("only %d callers merged", merged)
		}
	})
}
