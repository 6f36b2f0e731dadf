package pricefile

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
)

// What genai-prices' data.json has, as of August 2026. Prices are dollars for a
// million tokens, for 1,000 pieces or for an hour.
var (
	genAIPrices = map[string]int{
		"input_mtok":            Input,
		"output_mtok":           Output,
		"cache_read_mtok":       CacheRead,
		"cache_write_mtok":      CacheWrite,
		"cache_write_5m_mtok":   CacheWrite,
		"cache_write_1h_mtok":   CacheWriteLong,
		"output_reasoning_mtok": Reasoning,
		"input_audio_mtok":      AudioIn,
		"output_audio_mtok":     AudioOut,
		"input_image_mtok":      ImageIn,
		"output_image_mtok":     ImageOut,
	}
	genAIUnits = map[string]struct {
		unit     string
		exponent int
		divisor  int64
	}{
		"web_searches_kcount":     {"web_search", 6, 1},
		"social_searches_kcount":  {"x_search", 6, 1},
		"storage_searches_kcount": {"file_search", 6, 1},
		"code_executions_kcount":  {"container", 6, 1},
		"rerank_searches_kcount":  {"rerank_search", 6, 1},
		"requests_kcount":         {"request", 6, 1},
		"input_document_kpages":   {"page", 6, 1},
		"output_citation_mtok":    {"citation_tokens", 3, 1},
		"input_audio_hours":       {"audio_ms", 6, 3600},
		"audio_hours":             {"audio_ms", 6, 3600},
	}
	// genAIMatches are the clauses of a match that have a text, except regex.
	genAIMatches = map[string]func(name, text string) bool{
		"equals": strings.EqualFold, "starts_with": strings.HasPrefix, "ends_with": strings.HasSuffix,
		"contains": strings.Contains,
	}
	// genAIOther are fields of a model that price nothing.
	genAIOther = []string{
		"id", "name", "description", "match", "context_window", "price_comments", "prices",
		"price_discrepancies", "prices_checked", "collapse", "deprecated", "removed",
	}
)

func (r *reader) genAI(providers []any) {
	for _, p := range providers {
		provider, _ := mapping(p)["id"].(string)
		models, _ := mapping(p)["models"].([]any)
		for _, m := range models {
			r.genAIModel(provider, mapping(m))
		}
	}
}

func (r *reader) genAIModel(provider string, m map[string]any) {
	id, _ := m["id"].(string)
	d := r.draft(provider + "/" + id)
	d.pieces = true
	for _, field := range slices.Sorted(maps.Keys(m)) {
		if !slices.Contains(genAIOther, field) {
			d.skip(field, "is not known")
		}
	}
	match := matcher(m["match"], 0)
	if match == nil {
		d.skip("match", "is not understood: the model goes by its id alone")
	}
	d.genAIPrices(m["prices"], provider)
	d.add(Entry{Provider: provider, Name: d.name, Alias: id, Match: match})
}

// genAIPrices reads one set of prices, or a list of them with constraints. The last one whose date
// has come holds. One for some hours of the day cannot be told by a tariff, so the dearest counts.
func (d *draft) genAIPrices(v any, provider string) {
	list, ok := v.([]any)
	if !ok {
		d.genAISet(mapping(v), provider)
		return
	}
	var hourly []map[string]any
	chosen := map[string]any(nil)
	for _, one := range list {
		constraint, prices := mapping(mapping(one)["constraint"]), mapping(mapping(one)["prices"])
		date, dated := constraint["start_date"].(string)
		begin, err := time.Parse(time.DateOnly, date)
		switch {
		case len(constraint) == 0 && chosen == nil:
			chosen = prices
		case dated && err == nil && !begin.After(d.now):
			chosen = prices
		case !dated || err != nil:
			hourly = append(hourly, prices)
		}
	}
	d.genAISet(chosen, provider)
	d.dearest = true
	for _, prices := range hourly {
		d.skip("prices", "differ by a constraint that is not read: the dearest are charged")
		d.genAISet(prices, provider)
	}
}

func (d *draft) genAISet(prices map[string]any, provider string) {
	for _, field := range slices.Sorted(maps.Keys(prices)) {
		v := prices[field]
		kind, ok := genAIPrices[field]
		unit := genAIUnits[field]
		switch {
		case !ok && unit.unit == "":
			d.skip(field, "is not known")
		case !ok:
			d.unit(unit.unit, field, v, unit.exponent, unit.divisor)
		case mapping(v) == nil:
			d.price("", 0, kind, field, v, 6)
		default:
			d.price("", 0, kind, field, mapping(v)["base"], 6)
			tiers, _ := mapping(v)["tiers"].([]any)
			for _, t := range tiers {
				start, ok, _ := scaled(mapping(t)["start"], 0, 1)
				if !ok {
					d.skip(field, "has a tier whose start is no integer")
					d.broken = true
					continue
				}
				d.price("", from(start, provider), kind, field, mapping(t)["price"], 6)
			}
		}
	}
}

// matcher returns a func that reports whether a match clause of genai-prices matches a lower-case
// name, or nil if the clause is not understood.
func matcher(v any, depth int) func(string) bool {
	clause := mapping(v)
	if len(clause) != 1 || depth > 10 {
		return nil
	}
	for kind, value := range clause {
		if list, ok := value.([]any); ok && (kind == "or" || kind == "and") {
			return matchers(list, kind == "or", depth)
		}
		text, ok := value.(string)
		if matches := genAIMatches[kind]; ok && matches != nil {
			lower := strings.ToLower(text)
			return func(name string) bool { return matches(name, lower) }
		}
		if expression, err := regexp.Compile("(?i)" + text); ok && kind == "regex" && err == nil {
			return expression.MatchString
		}
	}
	return nil
}

// matchers returns whether any of the clauses matches, or all of them.
func matchers(list []any, anyOf bool, depth int) func(string) bool {
	var all []func(string) bool
	for _, v := range list {
		m := matcher(v, depth+1)
		if m == nil {
			return nil
		}
		all = append(all, m)
	}
	return func(name string) bool {
		return slices.ContainsFunc(all, func(m func(string) bool) bool { return m(name) == anyOf }) == anyOf
	}
}
