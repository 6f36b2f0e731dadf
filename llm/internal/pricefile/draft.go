package pricefile

import (
	"cmp"
	"maps"
	"slices"
)

// draft is a model that is being read.
type draft struct {
	*reader
	name  string
	model Model
	// prices are those that a file states, by label and value, "" for none, and by where they begin.
	prices map[string]map[int64]*Price
	priced bool // the file states a price of tokens
	pieces bool // a model of which it states none is billed by the piece
	broken bool // one that was not understood, for which another would be charged
}

func (r *reader) draft(name string) *draft {
	return &draft{
		reader: r, name: name, prices: map[string]map[int64]*Price{"": {0: new(Price)}},
		model: Model{Units: make(map[string]int64), Factors: make(map[string]int64)},
	}
}

func (d *draft) skip(field, format string, args ...any) { d.unread(d.name, field, format, args...) }

// amount returns a number times 10^exponent, free for 0, and 0 if it was not understood.
func (d *draft) amount(field string, v any, exponent int, divisor int64) int64 {
	n, ok := scaled(v, exponent, divisor)
	if !ok {
		d.skip(field, "is %.40v: it is no integer of the unit that is counted", v)
		return 0
	}
	if n == 0 {
		return free
	}
	return n
}

// at returns the prices of a label from a number of tokens on.
func (d *draft) at(label string, from int64) *Price {
	if d.prices[label] == nil {
		d.prices[label] = make(map[int64]*Price)
	}
	if d.prices[label][from] == nil {
		d.prices[label][from] = new(Price)
	}
	return d.prices[label][from]
}

// price sets the price of a kind of token.
func (d *draft) price(to *int64, field string, v any, exponent int) {
	d.priced = true
	if *to = d.amount(field, v, exponent, 1); *to == 0 {
		d.broken = true
	}
}

// unit sets the price of 1,000 pieces.
func (d *draft) unit(name, field string, v any, exponent int, divisor int64) {
	if n := d.amount(field, v, exponent, divisor); n != 0 {
		d.model.Units[name] = n
	}
}

// factor sets a factor that a file states as a number.
func (d *draft) factor(label, field string, v any) {
	if n := d.amount(field, v, 3, 1); n != 0 {
		d.model.Factors[label] = n
	}
}

// add adds the model to the file, unless it has no prices of tokens.
func (d *draft) add(e Entry) {
	base := *d.at("", 0)
	if !d.priced && d.pieces && len(d.model.Units) > 0 {
		base.Input, base.Output = free, free
	}
	highest := int64(0)
	for _, f := range base.fields() {
		if *f != 0 && (highest == 0 || *f > highest) {
			highest = *f
		}
	}
	base.Input, base.Output = cmp.Or(base.Input, highest), cmp.Or(base.Output, highest)
	if base.Input == 0 || d.broken {
		d.skip("prices", "of tokens are missing or not understood: the model is left out")
		return
	}
	d.model.Price = base
	for _, from := range slices.Sorted(maps.Keys(d.prices[""])) {
		if from > 0 { // a price that a step does not state is that of the step below
			base = over(base, *d.prices[""][from])
			d.model.Steps = append(d.model.Steps, Step{from, base})
		}
	}
	for label, steps := range d.prices {
		if label != "" {
			d.ratio(label, steps)
		}
	}
	e.Model = d.model
	d.file.Entries = append(d.file.Entries, e)
}

// ratio sets the factor of a label of which the file states prices: the highest, rounded up, if they
// have several.
func (d *draft) ratio(label string, steps map[int64]*Price) {
	highest, exact := int64(0), true
	for from, p := range steps {
		whole, part := complete(d.stated(from)), *p
		for i, f := range part.fields() {
			base := *whole.fields()[i]
			switch {
			case *f == 0 || *f == free && base == free:
			case *f < 0 || base < 0 || *f > maxRatio:
				d.skip(label, "has a price of nothing, or is far dearer: it is not priced")
				return
			default:
				factor := (*f*1000 + base - 1) / base
				exact = exact && *f*1000%base == 0 && (highest == 0 || factor == highest)
				highest = max(highest, factor)
			}
		}
	}
	if !exact {
		d.skip(label, "has no one factor in thousandths for all prices: %d counts", highest)
	}
	if highest != 0 {
		d.model.Factors[label] = highest
	}
}

// stated returns the prices of the model for a prompt of that many tokens.
func (d *draft) stated(prompt int64) Price {
	price := d.model.Price
	for _, s := range d.model.Steps {
		if s.From <= prompt {
			price = s.Price
		}
	}
	return price
}

// maxRatio is the highest price whose thousandfold is below 2^63.
const maxRatio = 1 << 52

// fields returns the prices, to be set.
func (p *Price) fields() [10]*int64 {
	return [...]*int64{
		&p.Input, &p.CacheRead, &p.CacheWrite, &p.CacheWriteLong, &p.AudioIn, &p.ImageIn,
		&p.Output, &p.AudioOut, &p.ImageOut, &p.Reasoning,
	}
}

// over returns the prices of p, and those of base where p has none.
func over(base, p Price) Price {
	for i, f := range p.fields() {
		*f = cmp.Or(*f, *base.fields()[i])
	}
	return p
}

// complete returns the prices with those of other kinds in place of 0, as llm.Price says.
func complete(p Price) Price {
	write := cmp.Or(p.CacheWrite, p.Input)
	return over(Price{
		CacheRead: p.Input, CacheWrite: write, CacheWriteLong: write, AudioIn: p.Input, ImageIn: p.Input,
		AudioOut: p.Output, ImageOut: p.Output, Reasoning: p.Output,
	}, p)
}
