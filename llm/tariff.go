package llm

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Free is a price of nothing, and a factor of nothing. A price of 0 is one that is not set.
const Free = -1

// Price is the prices of a million tokens of each kind in micro-dollars, the millionth part of a
// dollar: 3 dollars are 3,000,000. Input and Output are both set, or nothing is. A price of 0 is
// that of another kind, and Free is a price of nothing.
type Price struct {
	Input          int64
	CacheRead      int64 // 0 means Input
	CacheWrite     int64 // 0 means Input
	CacheWriteLong int64 // 0 means CacheWrite
	AudioIn        int64 // 0 means Input
	ImageIn        int64 // 0 means Input
	Output         int64
	AudioOut       int64 // 0 means Output
	ImageOut       int64 // 0 means Output
	Reasoning      int64 // of the part of Output that is reasoning; 0 means Output
}

// Step is the prices of requests with longer prompts, with a label, or both.
type Step struct {
	// Label is the label and its value for which the prices hold, such as service_tier:flex. Empty
	// means a response without any label that has prices. If a response has several such labels, the
	// dearest price of each kind counts. A label needs a step From 0.
	Label string
	// From is the least number of tokens of the prompt, cached ones included, for which the prices
	// hold. The last From that a prompt reaches decides the whole request, output too. For prices
	// above 200,000 tokens it is 200,001. Without a Label it is at least 1.
	From int64
	// Price replaces Tariff.Price whole. Its Input and Output are required.
	Price Price
}

// Tariff is what a request to one model costs: its tokens times their prices and their factors, and
// its units times theirs. The cost is an integer of micro-dollars, rounded up once.
type Tariff struct {
	Price Price
	// Steps are other prices for longer prompts and for labels, in any order.
	Steps []Step
	// Units are the prices of 1,000 pieces in micro-dollars, or Free, by the name of the unit:
	// web_search at 10 dollars for 1,000 is 10,000,000. The unit "request" counts each request once.
	// A unit of a response that is not here is charged at the highest price that any model of
	// Config.Models has for it, and reported; see ResponseEvent.Unknown.
	Units map[string]int64
	// Factors multiply the price of tokens, not of units, in thousandths, or are Free. Their keys are
	// a label and its value: half price for service_tier:flex is 500. The factors of several labels
	// multiply. A label with prices in Steps has none. Without either the usual values, such as
	// service_tier:default or geo:global, count as 1,000. Any other is charged the highest factor
	// that any model of Config.Models has for the label, at least 1,000, and reported; see
	// ResponseEvent.Unknown.
	Factors map[string]int64
}

func (t *Tariff) isZero() bool {
	return t.Price == Price{} && len(t.Steps)+len(t.Units)+len(t.Factors) == 0
}

func (t *Tariff) clone() Tariff {
	return Tariff{t.Price, slices.Clone(t.Steps), maps.Clone(t.Units), maps.Clone(t.Factors)}
}

// check checks a tariff. One that prices something has prices of tokens.
func (t *Tariff) check(at string, fault func(string, ...any)) {
	t.Price.check(at+".Price", !t.isZero(), fault)
	t.checkSteps(at, fault)
	for _, name := range slices.Sorted(maps.Keys(t.Units)) {
		if p := t.Units[name]; p != Free && p <= 0 {
			fault("%s.Units[%q] is %d: it must be at least 1, or Free", at, name, p)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(t.Factors)) {
		if f := t.Factors[key]; f != Free && f <= 0 {
			fault("%s.Factors[%q] is %d: it must be at least 1, or Free", at, key, f)
		}
		checkLabel(at+".Factors", key, fault)
	}
}

func (t *Tariff) checkSteps(at string, fault func(string, ...any)) {
	seen := make(map[Step]bool)
	for i, s := range t.Steps {
		begin := Step{Label: s.Label, From: s.From}
		switch {
		case s.From < 0 || s.From == 0 && s.Label == "":
			fault("%s.Steps[%d].From is %d: it must be at least 1, or 0 with a Label", at, i, s.From)
		case seen[begin]:
			fault("%s.Steps[%d].From is %d, like that of another step", at, i, s.From)
		}
		seen[begin] = true
		s.Price.check(fmt.Sprintf("%s.Steps[%d].Price", at, i), true, fault)
	}
	for i, s := range t.Steps {
		if s.Label == "" {
			continue
		}
		where := fmt.Sprintf("%s.Steps[%d].Label", at, i)
		checkLabel(where, s.Label, fault)
		if _, both := t.Factors[s.Label]; both || !seen[Step{Label: s.Label}] {
			fault("%s is %q: it needs a step From 0, and no factor", where, s.Label)
		}
	}
}

func checkLabel(at, key string, fault func(string, ...any)) {
	if label, value, ok := strings.Cut(key, ":"); !ok || label == "" || value == "" {
		fault("%s has %q: it is no label and value, such as service_tier:flex", at, key)
	}
}

func (p Price) check(at string, required bool, fault func(string, ...any)) {
	for _, n := range p.fields() {
		if *n < Free {
			fault("%s has %d: it must be at least 1, or Free", at, *n)
			return
		}
	}
	switch {
	case p == Price{} && required:
		fault("%s is empty: set Input and Output, each may be Free", at)
	case p != Price{} && (p.Input == 0 || p.Output == 0):
		fault("%s is %+v: set both Input and Output, each may be Free", at, p)
	}
}

// fields returns the prices, to be changed, in the order of the fields.
func (p *Price) fields() [10]*int64 {
	return [...]*int64{
		&p.Input, &p.CacheRead, &p.CacheWrite, &p.CacheWriteLong, &p.AudioIn, &p.ImageIn,
		&p.Output, &p.AudioOut, &p.ImageOut, &p.Reasoning,
	}
}

// complete returns the prices with those of other kinds in place of 0, and Free where one is.
func (p Price) complete() Price {
	p.CacheRead, p.CacheWrite = cmp.Or(p.CacheRead, p.Input), cmp.Or(p.CacheWrite, p.Input)
	p.CacheWriteLong = cmp.Or(p.CacheWriteLong, p.CacheWrite)
	p.AudioIn, p.ImageIn = cmp.Or(p.AudioIn, p.Input), cmp.Or(p.ImageIn, p.Input)
	p.AudioOut, p.ImageOut = cmp.Or(p.AudioOut, p.Output), cmp.Or(p.ImageOut, p.Output)
	p.Reasoning = cmp.Or(p.Reasoning, p.Output)
	return p
}

// most returns the higher price of each kind of two complete Prices.
func (p Price) most(o Price) Price {
	for i, n := range p.fields() {
		*n = max(*n, *o.fields()[i])
	}
	return p
}

// at returns the complete prices of a label, or without one, for a prompt of that many tokens. It
// reports false for a label without prices.
func (t *Tariff) at(label string, prompt int64) (Price, bool) {
	price, reached := t.Price, int64(-1)
	for _, s := range t.Steps {
		if s.Label == label && s.From > reached && s.From <= prompt {
			price, reached = s.Price, s.From
		}
	}
	return price.complete(), label == "" || reached >= 0
}
