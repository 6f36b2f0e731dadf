package core

import "context"

// Limiter decides policies that share a key. It is sugar over a Gate, immutable and safe for concurrent use.
type Limiter struct {
	gate     *Gate
	policies []*Policy
}

// Limiter returns a Limiter of one or more policies, or what is wrong with them.
func (g *Gate) Limiter(policies ...*Policy) (*Limiter, error) {
	charges := make([]Charge, len(policies))
	for i, p := range policies {
		charges[i] = Charge{Policy: p, Key: Key{path: "{x}", outer: 3}}
	}
	if err := (&plan{}).lay("", algorithmDecide, charges); err != nil {
		return nil, err
	}
	return &Limiter{gate: g, policies: append([]*Policy(nil), policies...)}, nil
}

// Allow is AllowN of 1.
func (l *Limiter) Allow(ctx context.Context, key Key) (Decision, error) {
	return l.AllowN(ctx, key, 1)
}

// AllowN spends n of each policy, or nothing. The errors are those of Gate.Decide.
func (l *Limiter) AllowN(ctx context.Context, key Key, n int64) (Decision, error) {
	var inline [inlineResults]Charge
	charges := inline[:0]
	for _, p := range l.policies {
		charges = append(charges, Charge{Policy: p, Key: key, Cost: n})
	}
	return l.gate.Decide(ctx, charges...)
}
