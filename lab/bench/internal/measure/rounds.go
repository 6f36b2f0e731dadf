package measure

import (
	"context"
	"fmt"
	"time"
)

// Contender is what is measured: a name, and what it does.
type Contender struct {
	Name string
	// Kind says whose it is, and what may be made of its numbers.
	Kind Kind
	Do   Do
}

// Kind is whose a contender is.
type Kind int

// The kinds of contenders.
const (
	Ours Kind = iota
	Peer
	// Floor is something trivial, which shows what no contender can avoid.
	Floor
)

// Label is the contender's name as it stands in tables.
func (c *Contender) Label() string {
	switch c.Kind {
	case Ours:
		return "**" + c.Name + "**"
	case Floor:
		return "floor: " + c.Name
	default:
		return c.Name
	}
}

// Pair is a contender's slice, and the PINGs that it is compared with: a slice just before it and
// one after it, or those that took turns with its calls, which have no Cost.
type Pair struct {
	Own   Sample
	Pings []Sample
	// Alone is the slice without PINGs that the Cost of Own is of, where that took turns with them.
	Alone Sample
}

// Result is all that was measured of one contender under one load.
type Result struct {
	Contender
	Pairs []Pair
}

// Median is that of a figure over the rounds.
func (r *Result) Median(figure func(*Pair) float64) float64 {
	values := make([]float64, len(r.Pairs))
	for i := range r.Pairs {
		values[i] = figure(&r.Pairs[i])
	}
	return median(values)
}

// median is the middle one, or the mean of the middle two.
func median(values []float64) float64 {
	high := Quantile(values, 0.5)
	if n := len(values); n > 0 && n%2 == 0 {
		return (values[n/2-1] + high) / 2
	}
	return high
}

// ToPing is a figure over that of the PINGs.
func (p *Pair) ToPing(figure func(*Sample) float64) float64 { return figure(&p.Own) / p.Ping(figure) }

// Ping is a figure of the PINGs, the mean where they are of two slices.
func (p *Pair) Ping(figure func(*Sample) float64) float64 {
	var sum float64
	for i := range p.Pings {
		sum += figure(&p.Pings[i])
	}
	return sum / float64(len(p.Pings))
}

// Rounds drives all contenders in each of the rounds, in turn, and begins each round with another one. The reference
// runs between any two of them, or between a lone caller's calls if they are timed. Nobody's first slice counts:
// connections are made and scripts loaded in it.
func (d *Driver) Rounds(
	ctx context.Context, rounds int, load Load, reference Do, contenders []Contender,
) ([]Result, error) {
	results := make([]Result, len(contenders))
	for i, c := range contenders {
		results[i].Contender = c
		warm := load
		warm.Slice /= 4
		if _, err := d.Slice(ctx, warm, c.Do); err != nil {
			return nil, fmt.Errorf("warm %s: %w", c.Name, err)
		}
	}
	before, err := d.Slice(ctx, load, reference)
	if err != nil {
		return nil, fmt.Errorf("warm PING: %w", err)
	}
	for round := range rounds {
		// Steps that share no factor with most lengths, so that neighbours change too.
		first := round * 7
		for i := range contenders {
			at := (first + i) % len(contenders)
			if round%2 == 1 {
				at = len(contenders) - 1 - at
			}
			pair, err := d.pair(ctx, load, before, reference, contenders[at].Do)
			if err != nil {
				return nil, fmt.Errorf("measure %s: %w", contenders[at].Name, err)
			}
			results[at].Pairs = append(results[at].Pairs, pair)
			before = pair.Pings[len(pair.Pings)-1]
		}
	}
	return results, nil
}

// pair measures a contender, and the reference after it or by turns with it.
func (d *Driver) pair(ctx context.Context, load Load, before Sample, reference, do Do) (Pair, error) {
	own, err := d.Slice(ctx, load, do)
	if err != nil {
		return Pair{}, err
	}
	if load.byTurns() {
		pings, calls, err := d.turns(ctx, load, own.P50 < time.Microsecond, reference, do)
		calls.Cost = own.Cost
		return Pair{Own: calls, Pings: []Sample{pings}, Alone: own}, err
	}
	after, err := d.Slice(ctx, load, reference)
	return Pair{Own: own, Pings: []Sample{before, after}}, err
}
