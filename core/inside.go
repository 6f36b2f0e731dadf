package core

import (
	"context"
	"time"

	"github.com/headgate/headgate/internal/algorithm"
	"github.com/headgate/headgate/internal/breaker"
	"github.com/headgate/headgate/internal/hub"
	"github.com/headgate/headgate/internal/request"
)

// Inside is for the other packages of this module, which alone can make a hub.Pass.
func Inside(hub.Pass) inside { return inside{} }

// inside has the methods that other packages of this module call.
type inside struct{}

// Of returns what a Gate lends. It is nil for a nil Gate and for the zero value.
func (inside) Of(g *Gate) *hub.Hub {
	if g == nil || g.store == nil {
		return nil
	}
	return &g.lent
}

// CheckName returns what is wrong with a name of at most that many bytes.
func (inside) CheckName(name string, longest int) error { return checkName(name, longest) }

// KeyAt returns the Key whose String is path.
func (inside) KeyAt(path string) Key { return keyAt(path) }

// Outermost returns the outermost part of a Key as its String has it, with its braces. It is empty for the
// zero Key.
func (inside) Outermost(k Key) string { return k.in.Outermost() }

// Spent returns what a Reservation has spent under each of its charges, no two of which are on one key
// under one policy.
func (inside) Spent(r *Reservation) []int64 {
	units := make([]int64, len(r.place))
	for i, at := range r.place {
		if at >= 0 {
			units[i] = r.spent[at].Spent
		}
	}
	return units
}

// Reason returns the reason of the Cooldown that denies.
func (inside) Reason(r Result) int64 { return int64(r.reason) }

// State has a Gate on Redis state a policy there, as it does with one that it has decided on.
func (inside) State(g *Gate, p *Policy, planned bool) {
	if g == nil || p == nil || p.own == nil {
		return
	}
	if planned {
		p.planned.Store(true)
	}
	g.stated.add([]Charge{{Policy: p}})
}

// StateNothing keeps a new Gate, as that of a tool, from stating any policy.
func (inside) StateNothing(g *Gate) { g.stated = nil }

// Varies reports whether charges of this process under the policy may have limits of their own.
func (inside) Varies(p *Policy) bool { return p.varies() }

// Suffix returns what follows the path of a key in the name of what is counted under a policy, such as
// ":api:tb2". It is empty if nothing is.
func (inside) Suffix(p *Policy) string { return p.own.kind.Suffix }

// Mark spends one strike, which blocks, on a key under a policy whose Algorithm is a Block, unless the
// key is blocked. It keeps the answer, which may be empty, as long as the block lasts. It works on a
// closed Gate too. A panic, as in a hook of the client, is an error.
func (inside) Mark(ctx context.Context, g *Gate, p *Policy, key Key, answer []byte) error {
	return breaker.Safely(func() error {
		_, _, err := (&Blocklist{g, p}).send(ctx, key, func(r *request.Request, b *algorithm.Block) {
			r.Op = algorithm.Decide
			r.Charges[0].Cost = b.Cost(1)
			r.Answer, r.AnswerFor = answer, b.Most().Microseconds()
		})
		return err
	})
}

// Answer returns what Mark has kept, or nothing.
func (inside) Answer(ctx context.Context, g *Gate, p *Policy, key Key) ([]byte, error) {
	if err := check([]Charge{{Policy: p, Key: key}}); err != nil {
		return nil, err
	}
	return g.store.Answer(g.bound(ctx), &chargeOn(key, p.own, nil).Charge)
}

// Forgive lets the next block of a key under a policy whose Algorithm is a Block be as short as the
// first one, unless the key is blocked. A panic, as in a hook of the client, is an error.
func (inside) Forgive(ctx context.Context, g *Gate, p *Policy, key Key) error {
	return breaker.Safely(func() error {
		_, _, err := (&Blocklist{g, p}).send(ctx, key, func(r *request.Request, b *algorithm.Block) {
			r.Op = algorithm.Give
			r.Charges[0].Cost = b.Cost(1)
			r.Charges[0].Reply = []int64{algorithm.LastBlock}
		})
		return err
	})
}

// IsQuota reports whether a limit counts units that do not come back before its period ends, so that
// Gate.Adjust works under it.
func (inside) IsQuota(a Algorithm) bool {
	c, err := compile(a)
	return err == nil && (c.calendar != nil || algorithm.QuotaOf(c.limit) != nil)
}

// Block is Blocklist.Block, and returns for how long the key is blocked then. If a Local policy blocks it
// in this process alone, the error is why Redis does not know of that.
func (inside) Block(ctx context.Context, b *Blocklist, key Key, d time.Duration) (rest time.Duration, err error) {
	rest, cause, err := b.block(ctx, key, d)
	if err == nil {
		err = cause
	}
	return rest, err
}

// Cool blocks a key under a policy whose Algorithm is a Block, for longer each time as growth says, or
// as the Cooldown does, and returns for how long it is blocked then. A process that has learnt of a
// block with a reason heeds it while Redis does not answer, and remembers it whatever else is charged. If
// the key is blocked in this process alone, the error beside the rest is why Redis does not know of that. A
// panic, as in a hook of the client, is an error.
func (inside) Cool(
	ctx context.Context, g *Gate, p *Policy, key Key, growth Block, c hub.Cooldown,
) (rest time.Duration, err error) {
	grown, err := compile(growth)
	if err != nil {
		return 0, err
	}
	limit := grown.limit.(*algorithm.Block)
	cost := limit.Since(c.Age, c.Reason)
	if c.For > 0 {
		cost = limit.ByHand(c.For, c.Reason)
	}
	err = breaker.Safely(func() error {
		told, cause, err := (&Blocklist{g, p}).send(ctx, key, func(r *request.Request, _ *algorithm.Block) {
			r.Op = algorithm.Force
			r.Charges[0].Limit = limit
			r.Charges[0].Cost = cost
		})
		if err != nil {
			return err
		}
		var reason int64
		rest, reason = limit.Rest(told.Reply, cost)
		heed(g, p, key, rest, reason)
		return cause
	})
	return rest, err
}

// heed has this process heed a block that it has learnt of while Redis does not answer.
func heed(g *Gate, p *Policy, key Key, rest time.Duration, reason int64) {
	if rest == 0 || g.source == SourceMemory { // a Gate in memory has blocked the key itself
		return
	}
	b := p.own.current().(*algorithm.Block)
	c := chargeOn(key, p.own, b)
	c.Cost = b.ByHand(rest, reason)
	requests := []request.Request{{Terms: algorithm.Terms{Op: algorithm.Force}, Charges: []*request.Charge{&c.Charge}}}
	_ = g.local.Decide(context.Background(), requests) // memory does not fail
}

// heedCooldowns is heed for the cooldowns that deny.
func (g *Gate) heedCooldowns(d *Decision, charges []Charge) {
	for i, r := range d.Results() {
		if r.reason > 0 && !r.Allowed && r.Source == SourceRedis {
			heed(g, r.Policy, charges[i].Key, r.RetryAfter, int64(r.reason))
		}
	}
}
