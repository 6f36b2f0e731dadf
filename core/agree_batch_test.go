package core_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/redistest"
)

// batchLockstep sends requests that share a script. They have few policies and keys, so that one
// request sees the effects of another.
type batchLockstep struct {
	*lockstep
	policies   []int
	keys       int
	refundable [][2]*core.ScriptRequest // requests that can be refunded
	requests   strings.Builder          // the requests of this script, for a failure message
}

// compact is policies whose arguments have a compact form.
var compact = []string{"whole", "million", "month", "changing-whole"}

// indexOf returns the index of a policy in mixedPolicies.
func indexOf(name string) int {
	return slices.IndexFunc(mixedPolicies, func(p core.PolicyConfig) bool { return p.Name == name })
}

// pick chooses the policies and keys of the next scripts.
func (b *batchLockstep) pick() {
	b.policies = b.rng.Perm(len(mixedPolicies))[:1+b.rng.IntN(3)]
	if b.rng.IntN(2) == 0 { // a policy whose arguments have a compact form
		b.policies[0] = indexOf(compact[b.rng.IntN(len(compact))])
	}
	b.keys = 1 + b.rng.IntN(2)
}

// charges returns the same random charges for both Gates.
func (b *batchLockstep) charges(most int) (both [2][]core.Charge) {
	for range 1 + b.rng.IntN(most) {
		at := b.policies[b.rng.IntN(len(b.policies))]
		burst := int64(10)
		if b, ok := mixedPolicies[at].Algorithm.(core.TokenBucket); ok {
			burst = b.Burst
		}
		key, cost := b.lockstep.keys[b.rng.IntN(b.keys)], b.cost(burst)
		for i := range both {
			both[i] = append(both[i], core.Charge{Policy: b.lockstep.policies[i][at], Key: key, Cost: cost})
		}
	}
	return b.ask(both)
}

// compactCharges returns charges under policies whose arguments have a compact form.
func (b *batchLockstep) compactCharges() (both [2][]core.Charge) {
	for _, at := range b.rng.Perm(len(compact))[:1+b.rng.IntN(3)] {
		at = indexOf(compact[at])
		cost := 1 + b.rng.Int64N(2)
		for i := range both {
			both[i] = append(both[i], core.Charge{Policy: b.lockstep.policies[i][at], Key: b.lockstep.keys[0], Cost: cost})
		}
	}
	return b.ask(both)
}

// drawPlan returns the number of the limits of policies whose limits alternate.
func (b *batchLockstep) drawPlan() int {
	if b.alternate {
		return b.rng.IntN(12)
	}
	return 0
}

// request returns a random request for both Gates, or nil if it would have no effect.
func (b *batchLockstep) request() (both [2]*core.ScriptRequest) {
	plan := b.drawPlan()
	if b.rng.IntN(4) == 0 && len(b.refundable) > 0 {
		at := b.rng.IntN(len(b.refundable))
		whole, units := b.rng.IntN(3) > 0, 1+b.rng.Int64N(3)
		for i, a := range b.refundable[at] {
			both[i] = a.Refund(whole, units)
		}
		b.refundable = append(b.refundable[:at], b.refundable[at+1:]...)
		fmt.Fprintf(&b.requests, "  refund whole %v, units %d\n", whole, units)
		return both
	}
	op, bound := "decide", int64(0)
	switch b.rng.IntN(8) {
	case 0:
		op = "peek"
	case 1, 2:
		op, bound = "reserve", b.rng.Int64N(3_000_000)+b.rng.Int64N(2)*1_000_000
	case 3:
		op, bound = "atmost", 1+b.rng.Int64N(12)
	case 4:
		op = "force"
	}
	return b.newRequests(plan, op, bound, b.charges(4))
}

func (b *batchLockstep) newRequests(plan int, op string, bound int64, charges [2][]core.Charge) (both [2]*core.ScriptRequest) {
	for i, g := range []*core.Gate{b.redis, b.memory} {
		for j := range charges[i] {
			if op == "atmost" { // as in the helper atMost
				charges[i][j].Cost = min(charges[i][j].Cost, 1)
			}
		}
		a := gatetest.Must(g.NewRequest(op, bound, under(plan, charges[i]...)...))(b)
		both[i] = a
	}
	fmt.Fprintf(&b.requests, "  %s %d:", op, bound)
	for _, x := range charges[0] {
		fmt.Fprintf(&b.requests, " %s %s %d,", x.Policy.Name(), x.Key, x.Cost)
	}
	b.requests.WriteString("\n")
	return both
}

// compare compares the answers of Redis and memory to one request.
func (b *batchLockstep) compare(what string, i int, receipts bool, both [2]*core.ScriptRequest) {
	b.Helper()
	own, d := both[0].Reply(receipts)
	model, e := both[1].Reply(receipts)
	if own != model || show(d) != show(e) {
		b.Fatalf("%s, request %d at %d\n%sredis:  %s %s\nmemory: %s %s", what, i, b.clock.Now().UnixMicro(), &b.requests, own, show(d), model, show(e))
	}
}

// oneCaller decides up to 30 requests of one caller in one script.
func (b *batchLockstep) oneCaller(n int) {
	b.Helper()
	var asked [2][]*core.ScriptRequest
	var keeps, receipts []bool
	for range 2 + b.rng.IntN(29) {
		before := len(b.refundable)
		both := b.request()
		if both[0] == nil {
			continue
		}
		keeps = append(keeps, len(b.refundable) == before)
		receipts = append(receipts, b.rng.IntN(2) == 0)
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
	for i, g := range []*core.Gate{b.redis, b.memory} {
		noError(b, g.DecideInOne(b.Context(), asked[i]))
	}
	for i := range asked[0] {
		both := [2]*core.ScriptRequest{asked[0][i], asked[1][i]}
		b.compare("script "+fmt.Sprint(n), i, receipts[i], both)
		// Nobody refunds a charge without a receipt: the script may name none, and the model does.
		if keeps[i] && receipts[i] && !both[0].Is("force") {
			b.refundable = append(b.refundable, both)
		}
	}
	b.refundable = b.refundable[max(0, len(b.refundable)-40):]
}

// manyCallers decides the requests of up to 30 callers in one script. Many of them are identical.
// It returns how many were merged.
func (b *batchLockstep) manyCallers(n int) (merged int) {
	b.Helper()
	var asked [2][]*core.ScriptRequest
	alike, shared := b.rng.IntN(2) == 0, b.rng.IntN(2) == 0
	likes := [][2][]core.Charge{b.charges(1), b.compactCharges(), b.compactCharges()}
	from := b.rng.IntN(len(likes))
	likes = likes[from:min(from+1+b.rng.IntN(2), len(likes))]
	for range 1 + b.rng.IntN(6) {
		plan, charges := b.drawPlan(), b.charges(3)
		op, bound := "decide", int64(0)
		// Requests that are alike are of one or two kinds, and those of a kind differ only in their keys,
		// or in the first of them.
		if key := b.lockstep.keys[b.rng.IntN(len(b.lockstep.keys))]; alike {
			like := likes[b.rng.IntN(len(likes))]
			for i := range charges {
				charges[i] = slices.Clone(like[i])
				for j := range charges[i] {
					if j == 0 || !shared {
						charges[i][j].Key = key
					}
				}
			}
		} else if n := b.rng.IntN(8); n == 0 {
			op = "peek"
		} else if n == 1 {
			op, bound = "reserve", 1_000_000
		}
		for range 1 + b.rng.IntN(5)*b.rng.IntN(2) {
			if both := b.newRequests(plan, op, bound, charges); both[0] != nil {
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
	b.rng.Shuffle(len(asked[0]), func(i, j int) {
		for _, a := range asked {
			a[i], a[j] = a[j], a[i]
		}
	})
	return b.shared(n, asked)
}

// shared compares the answers to the requests of callers that share a script. It returns how many were
// merged.
func (b *batchLockstep) shared(n int, asked [2][]*core.ScriptRequest) (merged int) {
	b.Helper()
	order, merged, err := b.redis.DecideShared(b.Context(), asked[0])
	noError(b, err)
	for _, i := range order {
		noError(b, b.memory.DecideInOne(b.Context(), asked[1][i:i+1]))
	}
	for i := range asked[0] {
		b.compare("callers "+fmt.Sprint(n), i, false, [2]*core.ScriptRequest{asked[0][i], asked[1][i]})
	}
	return merged
}

// Redis gives many requests in one script, and callers that share a script, the same answers and
// leaves the same state as the model that decides them one after the other at the same time.
func TestScriptAgreesWithModelOnBatches(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		b := &batchLockstep{lockstep: newLockstep(t, s)}
		merged := 0
		for n := range operations(s) / 2 {
			if n%10 == 0 {
				b.pick()
				b.alternate = b.rng.IntN(2) == 0
			}
			b.move()
			b.requests.Reset()
			if b.rng.IntN(3) == 0 {
				merged += b.manyCallers(n)
			} else {
				b.oneCaller(n)
			}
			b.compareStates()
		}
		t.Logf("%d callers merged", merged)
		if merged < operations(s)/20 {
			t.Errorf("only %d callers merged", merged)
		}
	})
}

// Equal requests of many callers are charged at once, if they fit. Before that is known, no sum of their
// costs is a time.
func TestMergedCallersOfLongBuckets(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		b := &batchLockstep{lockstep: newLockstep(t, s)}
		var asked [2][]*core.ScriptRequest
		for range 30 {
			for i, g := range []*core.Gate{b.redis, b.memory} {
				var charges []core.Charge
				for _, name := range []string{"century", "month"} {
					policy := b.lockstep.policies[i][indexOf(name)]
					charges = append(charges, core.Charge{Policy: policy, Key: b.lockstep.keys[0], Cost: 1})
				}
				a := gatetest.Must(g.NewRequest("decide", 0, charges...))(b)
				a.WithoutReceipts()
				asked[i] = append(asked[i], a)
			}
		}
		if merged := b.shared(0, asked); merged == 0 {
			t.Error("no callers merged")
		}
		b.compareStates()
	})
}

// A script that fails has written nothing, so each of its requests can be sent again alone. One key is
// of another type, one has no state of the algorithm.
func TestFailedBatchWritesNothing(t *testing.T) {
	t.Parallel()
	for name, algorithm := range map[string]core.Algorithm{
		"bucket": core.PerMinute(60), "thirds": core.PerSecond(3), "window": core.FixedWindow{Limit: 9, Window: time.Minute},
		"sliding": core.SlidingWindow{Limit: 9, Window: time.Minute},
		"log":     core.SlidingLog{Windows: []core.Window{{Limit: 9, Width: time.Minute}}},
	} {
		redistest.Each(t, func(t *testing.T, s *redistest.Server) {
			g, client := redisGate(t, s.Client(t), core.Config{Prefix: s.Prefix}), s.Client(t)
			c := core.Charge{Policy: limited(t, name, algorithm), Key: newKey(t, "spoiled"), Cost: 1}
			decide(t, g, c)
			spoiled := client.Keys(t.Context(), s.Prefix+"*").Val()
			gatetest.Need(t, len(spoiled), 1, "%v", spoiled)
			for _, spoil := range []func() error{
				client.Set(t.Context(), spoiled[0], "nonsense", time.Minute).Err,
				func() error {
					client.Del(t.Context(), spoiled[0])
					return client.LPush(t.Context(), spoiled[0], "x").Err()
				},
			} {
				noError(t, spoil())
				var asked []*core.ScriptRequest
				for _, key := range []core.Key{newKey(t, "good"), c.Key} {
					c.Key = key
					r := gatetest.Must(g.NewRequest("decide", 0, c))(t)
					r.WithoutReceipts()
					asked = append(asked, r)
				}
				if _, _, err := g.DecideShared(t.Context(), asked); err == nil {
					t.Error("a batch with a spoiled key was decided")
				}
				if names := client.Keys(t.Context(), s.Prefix+"*").Val(); len(names) != 1 {
					t.Errorf("%s: keys after a batch that failed: %v", name, names)
				}
			}
		})
	}
}
