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

	dearest bool // of several prices of one kind the highest counts, and not the last
}

func (r *reader) draft(name string) *draft {
	return &draft{
		reader: r, name: name, prices: map[string]map[int64]*Price{"": {0: new(Price)}},
		model: Model{Units: make(map[string]int64), Factors: make(map[string]int64)},
	}
}

func (d *draft) skip(field, format string, args ...any) { d.unread(d.name, field, format, args...) }

// amount returns a number times 10^exponent, free for 0, and 0 if it was not understood. It rounds
// what a file has computed in floating point.
func (d *draft) amount(field string, v any, exponent int, divisor int64) int64 {
	n, exact, ok := scaled(v, exponent, divisor)
	switch {
	case !ok:
		d.skip(field, "is %.40v: it is no number that is at least 0, or too large", v)
		return 0
	case !exact:
		d.skip(field, "is %.40v: it is rounded to %d", v, n)
	}
	return cmp.Or(n, free)
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

// price sets the price of a kind of token with a label from a number of tokens on.
func (d *draft) price(label string, from int64, kind int, field string, v any, exponent int) {
	n, at := d.amount(field, v, exponent, 1), d.at(label, from)
	d.priced, d.broken = true, d.broken || n == 0
	if d.dearest {
		n = highestOf(at[kind], n)
	}
	at[kind] = n
}

// unit sets the price of 1,000 pieces.
func (d *draft) unit(name, field string, v any, exponent int, divisor int64) {
	if n := d.amount(field, v, exponent, divisor); n != 0 && !(d.dearest && n < d.model.Units[name]) {
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
	base := d.at("", 0)
	if !d.priced && d.pieces && len(d.model.Units) > 0 {
		base[Input], base[Output] = free, free
	}
	highest := int64(0)
	for _, n := range base {
		highest = highestOf(highest, n)
	}
	base[Input], base[Output] = cmp.Or(base[Input], highest), cmp.Or(base[Output], highest)
	if highest == 0 || d.broken {
		d.skip("prices", "of tokens are missing or not understood: the model is left out")
		return
	}
	froms := make(map[int64]bool)
	for _, steps := range d.prices {
		for from := range steps {
			froms[from] = true
		}
	}
	for _, label := range slices.Sorted(maps.Keys(d.prices)) {
		d.steps(label, slices.Sorted(maps.Keys(froms)))
	}
	e.Model = d.model
	d.file.Entries = append(d.file.Entries, e)
}

// steps adds the prices of a label, or those without one, to the model. What a step does not state
// costs as much as in the step below. What a label does not state costs as much as without it, times
// the highest factor of what it states.
func (d *draft) steps(label string, froms []int64) {
	var plain Price
	highest := int64(1000)
	for _, from := range froms {
		plain = over(plain, d.prices[""][from])
		if own := d.prices[label][from]; own != nil {
			highest = max(highest, ratio(*own, plain))
		}
	}
	plain = Price{}
	for _, from := range froms {
		plain = over(plain, d.prices[""][from])
		own := d.prices[label][from]
		switch {
		case label != "":
			price := plain
			for kind, n := range price {
				if n > 0 {
					price[kind] = (n*highest + 999) / 1000
				}
			}
			d.model.Steps = append(d.model.Steps, Step{label, from, over(price, own)})
		case from == 0:
			d.model.Price = plain
		case own != nil:
			d.model.Steps = append(d.model.Steps, Step{"", from, plain})
		}
	}
}

// ratio returns the highest ratio of the prices of a label to those without it in thousandths.
func ratio(labelled, plain Price) (highest int64) {
	for kind, n := range labelled {
		if n > 0 && plain[kind] > 0 {
			highest = max(highest, (n*1000+plain[kind]-1)/plain[kind])
		}
	}
	return min(highest, maxRatio)
}

// over returns the prices of p, which may be nil, and those of base where p has none.
func over(base Price, p *Price) Price {
	if p != nil {
		for kind, n := range p {
			base[kind] = cmp.Or(n, base[kind])
		}
	}
	return base
}

// highestOf returns the higher one of two prices, of which one of 0 is none.
func highestOf(a, b int64) int64 {
	if a == 0 || b > a && b != 0 {
		return b
	}
	return a
}
