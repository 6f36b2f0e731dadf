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
	// dearest has the highest price of each kind of token and unit of all models, with any label and
	// for any prompt, so that no bill costs more by any of them. It is nil without models.
	dearest *Model
	factors map[string]int64 // the highest factor of each label, at least 1,000
	priced  bool             // some model has a Tariff
}

func newCatalog(models map[string]*learnt, listed *priceList) *catalog {
	c := &catalog{models: models, listed: listed, factors: make(map[string]int64)}
	all := slices.Collect(maps.Values(models))
	if listed != nil {
		all = slices.AppendSeq(all, maps.Values(listed.models))
	}
	for _, m := range all {
		c.add(&m.Tariff)
	}
	return c
}

// add raises the highest price of each kind of token, unit and label to those of a tariff.
func (c *catalog) add(t *Tariff) {
	if c.dearest == nil {
		c.dearest = &Model{Tariff: Tariff{
			Price: t.Price.complete(), Units: make(map[string]int64), Factors: make(map[string]int64),
		}}
	}
	c.priced = c.priced || !t.isZero()
	d := &c.dearest.Tariff
	for _, s := range slices.Concat(t.Steps, []Step{{Price: t.Price}}) {
		d.Price = d.Price.most(s.Price.complete())
	}
	for name, p := range t.Units {
		d.Units[name] = max(d.Units[name], p)
	}
	for key, f := range t.Factors {
		label, value, _ := strings.Cut(key, ":")
		c.factors[label] = max(c.factors[label], f, oneFactor)
		if slices.Contains(usual[label], value) {
			d.Factors[key] = max(d.Factors[key], f, oneFactor)
		}
	}
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
// for standard_only, and Gemini for unspecified.
var usual = map[string][]string{
	"service_tier": {"default", "standard", "standard_only", "on_demand", "auto", "unspecified"},
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

// sameSearch are two counts of the same searches. Gemini 2.5 bills prompts with searches of the web
// or of maps, and Gemini 3 the searches (pricing page, November 2026). A tariff that prices one
// prices the other: a bill that has the other alone costs one of it.
var sameSearch = map[string]string{
	"web_search": "grounded_prompt", "grounded_prompt": "web_search",
	"maps_query": "maps_prompt", "maps_prompt": "maps_query",
}

// unitPrice returns the price of 1,000 pieces, and whether it is known.
func (c *catalog) unitPrice(t *Tariff, name string) (int64, bool) {
	if p, ok := t.unitPrice(name); ok {
		return p, true
	}
	if unbilled[name] || name == requestUnit {
		return 0, true
	}
	if c.dearest == nil {
		return 0, false
	}
	d := &c.dearest.Tariff
	if p, ok := d.unitPrice(name); ok {
		return p, false
	}
	// Nobody prices it: it costs as much as the dearest of what is counted alike.
	highest := int64(0)
	if measureOf(name) == tokenUnit {
		for _, p := range d.Price.fields() {
			highest = max(highest, (*p+999)/1000)
		}
	}
	for other, p := range d.Units {
		if measureOf(other) == measureOf(name) {
			highest = max(highest, p)
		}
	}
	return highest, false
}

// unitPrice returns the price of 1,000 pieces, if the tariff has one for them or for what counts the
// same searches.
func (t *Tariff) unitPrice(name string) (price int64, ok bool) {
	if price, ok = t.Units[name]; !ok {
		_, ok = t.Units[sameSearch[name]]
	}
	return max(price, 0), ok
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
