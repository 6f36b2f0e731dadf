package llm

import (
	"maps"
	"math"
	"math/big"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/core"
)

// pricing is how the bills of one request are counted. Its parts stay the same until it is settled.
type pricing struct {
	*catalog
	requested  string // the model that the request names
	trusted    bool   // a bill that the server states counts
	at         time.Time
	negotiated func(model string, labels map[string]string, at time.Time) (Tariff, bool)
}

// Cost returns the price of a bill in micro-dollars, rounded up once, and what no tariff prices; see
// ResponseEvent.Unknown. It prices now what a Meter does not see, such as the results of a batch.
// It spends nothing.
func (m *Meter) Cost(b Bill) (microDollars int64, unknown []string) {
	p := m.pricing(b.Model)
	return p.cost(&b)
}

// pricing returns how bills of a request for a model are counted, that begins now.
func (m *Meter) pricing(model string) pricing {
	return pricing{
		catalog: m.catalogNow(), requested: model, trusted: m.cfg.StatedCost == StatedCostTrust,
		at: time.Now().UTC(), negotiated: m.cfg.Tariff,
	}
}

// units returns what a budget counts of a bill.
func (p *pricing) units(unit core.Unit, b *Bill) int64 {
	if unit == core.UnitMicroDollars {
		cost, _ := p.cost(b)
		return cost
	}
	model, _ := p.modelOf(b.Model, p.requested)
	sum := model.tokens(unit, b.Usage)
	for _, o := range b.Others {
		model, _ := p.modelOf(o.Model, "")
		sum.Add(sum, model.tokens(unit, o.Usage))
	}
	return clamp(sum)
}

// tokens returns the weighted tokens of a usage.
func (m *Model) tokens(unit core.Unit, u Usage) *big.Int {
	switch unit {
	case core.UnitInputTokens:
		u = u.prompt()
	case core.UnitOutputTokens:
		u = u.answer()
	}
	return m.weights().of(u)
}

// cost returns the micro-dollars of a bill, and what no tariff prices: models, units and labels that
// were charged as the dearest.
func (p *pricing) cost(b *Bill) (microDollars int64, unknown []string) {
	if p.trusted && b.Stated.Known && b.Stated.Pico >= 0 {
		return b.Stated.MicroDollars(), nil
	}
	s := sum{pricing: p, labels: b.Labels, names: slices.Sorted(maps.Keys(b.Labels))}
	main := s.tariffOf(b.Model, p.requested)
	s.addTokens(main, b.Usage)
	for _, o := range b.Others {
		s.addTokens(s.tariffOf(o.Model, ""), o.Usage)
	}
	s.addUnits(main, b)
	one := s.scaled(big.NewInt(pico))
	s.total.Add(&s.total, one).Sub(&s.total, big.NewInt(1)) // rounds up
	return clamp(s.total.Div(&s.total, one)), s.unknown
}

// sum adds up a bill in millionths of a micro-dollar, times 1,000 for each label.
type sum struct {
	*pricing
	labels  map[string]string
	names   []string // of the labels
	total   big.Int
	unknown []string
}

// scaled multiplies n by 1,000 for each label.
func (s *sum) scaled(n *big.Int) *big.Int {
	for range s.names {
		n.Mul(n, big.NewInt(oneFactor))
	}
	return n
}

func (s *sum) note(what string) {
	if !slices.Contains(s.unknown, what) {
		s.unknown = append(s.unknown, what)
	}
}

// tariffOf returns the tariff of a model, that of another one if it is unknown, or the dearest.
func (s *sum) tariffOf(name, otherwise string) *Tariff {
	if s.negotiated != nil {
		t, ok := s.negotiated(name, s.labels, s.at)
		valid := true
		t.check("", func(string, ...any) { valid = false })
		if ok && valid && !t.isZero() {
			return &t
		}
		if ok {
			s.note("tariff of " + name)
		}
	}
	model, known := s.modelOf(name, otherwise)
	switch {
	case known && s.replaced(name, otherwise):
		s.note("model " + name)
	case known:
	case name == "":
		s.note("model without a name")
	default:
		s.note("model " + name)
	}
	return &model.Tariff
}

// replaced reports whether a server names another model than the one that was requested, and not a
// version of it, such as gpt-4o-2024-11-20. Then the price of the requested one may be wrong.
func (s *sum) replaced(served, requested string) bool {
	base := requested[strings.LastIndexByte(requested, '/')+1:] // without the provider of a router
	return served != "" && requested != "" && s.find(served) == nil &&
		!strings.Contains(strings.ToLower(served), strings.ToLower(base))
}

// addTokens adds the tokens of a model, by the step that its prompt reaches, times the factors.
func (s *sum) addTokens(t *Tariff, u Usage) {
	u = u.positive()
	price := t.at(u.prompt().Total())
	tokens := new(big.Int)
	for _, n := range [...][2]int64{
		{price.Input, u.Input}, {price.CacheRead, u.CacheRead}, {price.CacheWrite, u.CacheWrite},
		{price.CacheWriteLong, u.CacheWriteLong}, {price.AudioIn, u.AudioIn}, {price.ImageIn, u.ImageIn},
		{price.Output, u.Output - u.Reasoning}, {price.Reasoning, u.Reasoning},
		{price.AudioOut, u.AudioOut}, {price.ImageOut, u.ImageOut},
	} {
		product := big.NewInt(max(0, n[0]))
		tokens.Add(tokens, product.Mul(product, big.NewInt(n[1])))
	}
	if tokens.Sign() == 0 {
		return
	}
	for _, label := range s.names {
		f, known := s.factor(t, label, s.labels[label])
		if !known {
			s.note("label " + label + ":" + s.labels[label])
		}
		tokens.Mul(tokens, big.NewInt(f))
	}
	s.total.Add(&s.total, tokens)
}

// addUnits adds the pieces of a bill, which have no factors, and its request.
func (s *sum) addUnits(t *Tariff, b *Bill) {
	pieces := new(big.Int)
	for _, name := range slices.Sorted(maps.Keys(b.Units)) {
		n := b.Units[name]
		if n <= 0 || name == requestUnit {
			continue
		}
		price, known := s.unitPrice(t, name)
		if !known {
			s.note("unit " + name)
		}
		product := big.NewInt(price)
		pieces.Add(pieces, product.Mul(product, big.NewInt(n)))
	}
	if len(b.Units) > 0 || b.Usage != (Usage{}) {
		price, _ := s.unitPrice(t, requestUnit)
		pieces.Add(pieces, big.NewInt(price))
	}
	s.total.Add(&s.total, s.scaled(pieces.Mul(pieces, big.NewInt(oneFactor))))
}

// clamp returns n, or math.MaxInt64 if n is larger.
func clamp(n *big.Int) int64 {
	if !n.IsInt64() {
		return math.MaxInt64
	}
	return n.Int64()
}
