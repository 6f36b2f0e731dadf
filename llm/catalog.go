package llm

import (
	"maps"
	"slices"
	"strings"
)

// learnt is a model, and what this process has learnt of it.
type learnt struct {
	Model
	lessons lessons
}

// catalog is the models that have an entry, and what is charged for those that have none.
type catalog struct {
	models map[string]*learnt // of Config.Models
	listed *priceList         // of Config.Prices, or nil
	// dearest is an upper bound: no bill costs more by any of the models. It is nil without models.
	dearest *Model
	factors map[string]int64 // the highest factor of each label, at least 1,000
	units   map[string]int64 // the highest price of each unit
	token   int64            // the highest price of a million tokens
	priced  bool             // some model has a Tariff
}

func newCatalog(models map[string]*learnt, listed *priceList) *catalog {
	c := &catalog{
		models: models, listed: listed, factors: make(map[string]int64), units: make(map[string]int64),
	}
	all := slices.Collect(maps.Values(models))
	if listed != nil {
		all = slices.AppendSeq(all, maps.Values(listed.models))
	}
	tariffs := make([]Tariff, len(all))
	for i, m := range all {
		tariffs[i] = m.Tariff.plain()
		c.priced = c.priced || !m.Tariff.isZero()
		c.add(&tariffs[i])
	}
	if len(all) > 0 {
		c.dearest = &Model{Tariff: c.bound(tariffs)}
	}
	return c
}

// add raises the highest price of each label, unit and token to those of a tariff.
func (c *catalog) add(t *Tariff) {
	for key, f := range t.Factors {
		label, _, _ := strings.Cut(key, ":")
		c.factors[label] = max(c.factors[label], f, oneFactor)
	}
	for name, p := range t.Units {
		c.units[name] = max(c.units[name], p, 0)
	}
	for _, s := range append(t.Steps, Step{Price: t.Price}) {
		for _, p := range s.Price.fields() {
			c.token = max(c.token, *p)
		}
	}
}

// bound returns a tariff by which every bill costs at least what it costs by any of some plain ones.
func (c *catalog) bound(tariffs []Tariff) Tariff {
	t := Tariff{Units: make(map[string]int64), Factors: make(map[string]int64)}
	froms := make(map[int64]bool)
	for _, o := range tariffs {
		for _, s := range o.Steps {
			froms[s.From] = true
		}
	}
	for from := range froms {
		price := Price{Free, Free, Free, Free, Free, Free, Free, Free, Free, Free}
		for _, o := range tariffs {
			other, _ := o.at("", from)
			price = price.most(other)
		}
		if from == 0 {
			t.Price = price
		} else {
			t.Steps = append(t.Steps, Step{From: from, Price: price})
		}
	}
	names := maps.Clone(c.units)
	for name := range sameSearch {
		names[name] = 0
	}
	for _, o := range tariffs {
		for name := range names {
			p, _ := c.unitPrice(&o, name)
			t.Units[name] = max(t.Units[name], p)
		}
		for key := range o.Factors {
			t.Factors[key] = 0
		}
	}
	for key := range t.Factors {
		label, value, _ := strings.Cut(key, ":")
		for _, o := range tariffs {
			f, _ := c.factor(&o, label, value)
			t.Factors[key] = max(t.Factors[key], f)
		}
	}
	return t
}

// find returns the model of a name, or nil.
func (c *catalog) find(name string) *learnt {
	if m := c.models[name]; m != nil || c.listed == nil {
		return m
	}
	return c.listed.find(name)
}

const oneFactor = 1000

// usual are the values of labels that count as 1,000 where a tariff does not name them. They are
// what servers state for requests at their list prices, as of November 2026: OpenAI, xAI and
// Bedrock default, Anthropic standard and global, Groq on_demand. OpenAI states auto until it has
// chosen, and Anthropic not_available for the region of models that have none. Requests ask Anthropic
// for standard_only.
var usual = map[string][]string{
	"service_tier": {"default", "standard", "standard_only", "on_demand", "auto"},
	"speed":        {"standard"},
	"geo":          {"global", "not_available"},
}

// factor returns the factor of a label in thousandths, and whether it is known.
func (c *catalog) factor(t *Tariff, label, value string) (int64, bool) {
	if f, ok := t.Factors[label+":"+value]; ok {
		return max(f, 0), true
	}
	if value == "" || slices.Contains(usual[label], value) {
		return oneFactor, true
	}
	return max(oneFactor, c.factors[label]), false
}

// unbilled are units that their servers count and do not bill. Anthropic bills the tokens of what
// it fetches, and not the fetch (pricing page, November 2026).
var unbilled = map[string]bool{"web_fetch": true}

// sameSearch are two counts of the same searches. Gemini 2.5 bills prompts with searches, Gemini 3
// the searches (pricing page, November 2026). A tariff that prices one prices the other.
var sameSearch = map[string]string{
	"web_search": "grounded_prompt", "grounded_prompt": "web_search",
}

// unitPrice returns the price of 1,000 pieces, and whether it is known.
func (c *catalog) unitPrice(t *Tariff, name string) (int64, bool) {
	if p, ok := t.Units[name]; ok {
		return max(p, 0), true
	}
	if _, ok := t.Units[sameSearch[name]]; ok || unbilled[name] || name == requestUnit {
		return 0, true
	}
	if p, ok := c.units[name]; ok {
		return p, false
	}
	// Nobody prices it: it costs as much as the dearest of what is counted alike.
	if measureOf(name) == tokenUnit {
		return (c.token + 999) / 1000, false
	}
	highest := int64(0)
	for other, p := range c.units {
		if measureOf(other) == measureOf(name) {
			highest = max(highest, p)
		}
	}
	return highest, false
}

const (
	requestUnit = "request"
	tokenUnit   = "_tokens"
)

// measureOf returns in what a unit is counted: tokens, milliseconds, or pieces.
func measureOf(unit string) string {
	for _, m := range [...]string{tokenUnit, "_ms"} {
		if strings.HasSuffix(unit, m) {
			return m
		}
	}
	return ""
}
