package llm

import (
	"cmp"
	"maps"
	"math"
	"math/big"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/core"
)

// pricing is how the bills of one request are counted. Its parts stay the same until it is settled.
type pricing struct {
	meter *Meter
	*catalog
	requested []string // the models that the request names
	deployed  bool     // one is a name in the path, which the response need not know
	at        time.Time
}

// Cost returns the price of a bill in micro-dollars, rounded up once, and what no tariff prices; see
// ResponseEvent.Unknown. It prices now what a Meter does not see, such as the results of a batch.
// It spends nothing.
func (m *Meter) Cost(b Bill) (microDollars int64, unknown []string) {
	p := m.pricing([]string{b.Model}, false)
	return p.cost(&b)
}

// pricing returns how bills of a request for one of the models are counted, that begins now.
func (m *Meter) pricing(models []string, deployed bool) pricing {
	return pricing{m, m.catalogNow(), models, deployed, time.Now().UTC()}
}

// units returns what a budget counts of a bill.
func (p *pricing) units(unit core.Unit, b *Bill) int64 {
	if unit == core.UnitMicroDollars {
		cost, _ := p.cost(b)
		return cost
	}
	tokens := b.Usage.of(unit)
	for _, o := range b.Others {
		tokens += min(o.Usage.of(unit), math.MaxInt64-tokens)
	}
	return tokens
}

// knowsAll reports whether all models of the request have an entry.
func (p *pricing) knowsAll() bool {
	return p.dearest == nil || !slices.ContainsFunc(p.requested, func(name string) bool {
		return p.find(name) == nil
	})
}

// priced is a model that prices what one used that goes by a name.
type priced struct {
	*Model
	name  string
	known bool // otherwise the Model is the dearest
}

// modelsOf returns the models that price what the model used that the response names, or that any
// of the request's may have used. The dearest of them counts.
//
// An entry in Config.Models for the name counts first. Then one for a model of the request counts of
// which it is a version, as gpt-4o-2024-11-20 is of gpt-4o, or behind whose name in the path it is.
// The entries of price files follow in the same order. Any other model is the dearest.
func (p *pricing) modelsOf(served string) (all []priced) {
	if served == "" {
		for _, name := range p.requested {
			all = append(all, p.modelOf(name))
		}
		return all
	}
	for _, find := range [...]func(string) *learnt{p.own, p.find} {
		if e := find(served); e != nil {
			return []priced{{&e.Model, served, true}}
		}
		for _, name := range p.requested {
			if e := find(name); e != nil && (p.deployed || isVersion(served, name)) {
				all = append(all, priced{&e.Model, served, true})
			}
		}
		if all != nil {
			return all
		}
	}
	return []priced{p.modelOf(served)}
}

// modelOf returns the model of a name.
func (p *pricing) modelOf(name string) priced {
	if e := p.find(name); e != nil {
		return priced{&e.Model, name, true}
	}
	if p.dearest == nil { // without models each token is one unit, and costs nothing
		return priced{new(Model), name, true}
	}
	return priced{p.dearest, name, false}
}

// own returns the entry of Config.Models for a name, or nil.
func (p *pricing) own(name string) *learnt { return p.models[name] }

// isVersion reports whether a server names a version of a model: the same words in any order, as
// OpenRouter's claude-4.5-sonnet-20250929 of claude-sonnet-4.5, with a date or latest behind them.
func isVersion(served, model string) bool {
	return slices.Equal(words(served), words(model)) ||
		slices.Equal(words(dates.ReplaceAllString(served, "")), words(strings.TrimSuffix(model, "-latest")))
}

var (
	// dates match 2025-09-29, 20250929, 0613, 2411, 001 and latest at the end of a name.
	dates = regexp.MustCompile(`[-@](20\d\d-?(0[1-9]|1[0-2])-?([0-2]\d|3[01])|` +
		`(0[1-9]|1[0-2])([0-2]\d|3[01])|2\d(0[1-9]|1[0-2])|0\d\d|latest)$`)
	digits = regexp.MustCompile(`(\d)-(\d)`)
)

// words returns the words of the name of a model, without the provider of a router, in order. A
// number is one word with its parts, as gpt-4.5 is not gpt-5.4.
func words(name string) []string {
	name = strings.ToLower(name[strings.LastIndexByte(name, '/')+1:])
	all := strings.FieldsFunc(digits.ReplaceAllString(name, "$1.$2"), func(c rune) bool {
		return strings.ContainsRune("-_@: ", c)
	})
	slices.Sort(all)
	return all
}

// cost returns the micro-dollars of a bill, and what no tariff prices: models, units and labels that
// were charged as the dearest.
func (p *pricing) cost(b *Bill) (microDollars int64, unknown []string) {
	if p.meter.cfg.StatedCost == StatedCostTrust && b.Stated.Known && b.Stated.Pico >= 0 {
		return b.Stated.MicroDollars(), nil
	}
	first := true
	for _, model := range p.modelsOf(b.Model) {
		s := sum{
			pricing: p, labels: b.Labels,
			names: slices.Sorted(maps.Keys(b.Labels)), unknown: slices.Clone(b.Unread),
		}
		main := s.tariffOf(model)
		s.addTokens(main, b.Usage)
		for _, o := range b.Others {
			s.addTokens(s.tariffOf(p.modelOf(o.Model)), o.Usage)
		}
		s.addUnits(main, b)
		if n := quotient(&s.total, s.scaled(big.NewInt(pico))); first || n > microDollars {
			microDollars, unknown, first = n, s.unknown, false
		}
	}
	return microDollars, unknown
}

// pieces returns those that a request may use and that a model of it has a price for.
func (p *pricing) pieces(asked map[string]int64, labels map[string]string) map[string]int64 {
	if len(asked) == 0 {
		return nil
	}
	s, priced := sum{pricing: p, labels: labels}, make(map[string]int64)
	for _, model := range p.modelsOf("") {
		t := s.tariffOf(model)
		for name, n := range asked {
			if _, ok := t.unitPrice(name); ok {
				priced[name] = n
			}
		}
	}
	return priced
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

// addProduct adds x times y to n. Numbers below 0 count as 0.
func addProduct(n *big.Int, x, y int64) {
	if x > 0 && y > 0 {
		n.Add(n, new(big.Int).Mul(big.NewInt(x), big.NewInt(y)))
	}
}

// quotient returns n divided by m, rounded up, and at most math.MaxInt64.
func quotient(n, m *big.Int) int64 {
	q, rest := new(big.Int).QuoRem(n, m, new(big.Int))
	if rest.Sign() > 0 {
		q.Add(q, big.NewInt(1))
	}
	if !q.IsInt64() {
		return math.MaxInt64
	}
	return q.Int64()
}

func (s *sum) note(what string) {
	if !slices.Contains(s.unknown, what) {
		s.unknown = append(s.unknown, what)
	}
}

// tariffOf returns the tariff of a model.
func (s *sum) tariffOf(m priced) *Tariff {
	if negotiated := s.meter.cfg.Tariff; negotiated != nil {
		t, ok := negotiated(m.name, s.labels, s.at)
		valid := true
		t.check("", func(string, ...any) { valid = false })
		if ok && valid && !t.isZero() {
			return &t
		}
		if ok {
			s.note("tariff of " + m.name)
		}
	}
	if !m.known {
		s.note("model " + cmp.Or(m.name, "without a name"))
	}
	return &m.Tariff
}

// priceOf returns the prices of a tariff for a prompt of that many tokens, and the labels that have
// prices of their own.
func (s *sum) priceOf(t *Tariff, prompt int64) (price Price, labelled map[string]bool) {
	price, _ = t.at("", prompt)
	for _, label := range s.names {
		p, ok := t.at(label+":"+s.labels[label], prompt)
		switch {
		case !ok:
			continue
		case labelled == nil:
			price, labelled = p, make(map[string]bool)
		default:
			price = price.most(p)
		}
		labelled[label] = true
	}
	return price, labelled
}

// addTokens adds the tokens of a model, by the step that its prompt reaches, times the factors.
func (s *sum) addTokens(t *Tariff, u Usage) {
	u = u.positive()
	price, labelled := s.priceOf(t, u.prompt().Total())
	u.Output -= u.Reasoning // which has a price of its own
	prices := price.fields()
	var tokens big.Int
	for i, n := range u.fields() {
		addProduct(&tokens, *prices[i], *n)
	}
	if tokens.Sign() == 0 {
		return
	}
	for _, label := range s.names {
		f, known := int64(oneFactor), labelled[label]
		if !known {
			f, known = s.factor(t, label, s.labels[label])
		}
		if !known {
			s.note("label " + label + ":" + s.labels[label])
		}
		tokens.Mul(&tokens, big.NewInt(f))
	}
	s.total.Add(&s.total, &tokens)
}

// addUnits adds the pieces of a bill, which have no factors, and its request.
func (s *sum) addUnits(t *Tariff, b *Bill) {
	var pieces big.Int
	units := maps.Clone(b.Units)
	for name, other := range sameSearch { // a count without a price costs one piece of the other
		own, _ := s.unitPrice(t, name)
		price, _ := s.unitPrice(t, other)
		dearest := s.dearest != nil && t == &s.dearest.Tariff // which has the prices of several models
		if units[name] > 0 && units[other] <= 0 && price > 0 && (own == 0 || dearest) {
			units[other] = 1
		}
	}
	for _, name := range slices.Sorted(maps.Keys(units)) {
		n := units[name]
		if n <= 0 || name == requestUnit {
			continue
		}
		price, known := s.unitPrice(t, name)
		if !known {
			s.note("unit " + name)
		}
		addProduct(&pieces, price, n)
	}
	if len(b.Units) > 0 || b.Usage != (Usage{}) {
		price, _ := s.unitPrice(t, requestUnit)
		addProduct(&pieces, price, 1)
	}
	pieces.Mul(&pieces, big.NewInt(oneFactor))
	s.total.Add(&s.total, s.scaled(&pieces))
}
