package pricefile

import (
	"maps"
	"slices"
	"strconv"
)

// What models.dev's api.json has, as of July 2026. Prices are dollars for a million tokens.
var (
	modelsDevPrices = map[string]int{
		"input":        Input,
		"output":       Output,
		"cache_read":   CacheRead,
		"cache_write":  CacheWrite,
		"reasoning":    Reasoning,
		"input_audio":  AudioIn,
		"output_audio": AudioOut,
	}
	// modelsDevOther are fields of a model that price nothing.
	modelsDevOther = []string{
		"id", "name", "family", "attachment", "reasoning", "reasoning_options", "tool_call",
		"interleaved", "structured_output", "temperature", "knowledge", "release_date",
		"last_updated", "modalities", "open_weights", "limit", "status", "experimental", "provider",
		"cost", "license", "links", "weights", "benchmarks",
	}
)

func (r *reader) modelsDev(top map[string]any) {
	for _, provider := range slices.Sorted(maps.Keys(top)) {
		models := mapping(mapping(top[provider])["models"])
		for _, id := range slices.Sorted(maps.Keys(models)) {
			r.modelsDevModel(provider, id, mapping(models[id]))
		}
	}
}

func (r *reader) modelsDevModel(provider, id string, m map[string]any) {
	d := r.draft(provider + "/" + id)
	for _, field := range slices.Sorted(maps.Keys(m)) {
		if !slices.Contains(modelsDevOther, field) {
			d.skip(field, "is not known")
		}
	}
	cost := mapping(m["cost"])
	for _, field := range slices.Sorted(maps.Keys(cost)) {
		switch field {
		case "tiers":
			d.modelsDevTiers(cost[field], provider)
		case "context_over_200k": // the older form of a tier
			if cost["tiers"] == nil {
				d.modelsDevSet("", from(200_000, provider), field+".", mapping(cost[field]))
			}
		default:
			d.modelsDevSet("", 0, "", map[string]any{field: cost[field]})
		}
	}
	modes := mapping(mapping(m["experimental"])["modes"])
	for _, name := range slices.Sorted(maps.Keys(modes)) {
		d.modelsDevMode("experimental.modes."+name, mapping(modes[name]))
	}
	if n, exact, _ := scaled(mapping(m["limit"])["output"], 0, 1); exact {
		d.model.MaxOutput = n
	}
	d.add(Entry{Provider: provider, Name: d.name, Alias: id})
}

func (d *draft) modelsDevSet(label string, from int64, at string, prices map[string]any) {
	for _, field := range slices.Sorted(maps.Keys(prices)) {
		if kind, ok := modelsDevPrices[field]; ok {
			d.price(label, from, kind, "cost."+at+field, prices[field], 6)
		} else {
			d.skip("cost."+at+field, "is not known")
		}
	}
}

func (d *draft) modelsDevTiers(v any, provider string) {
	tiers, _ := v.([]any)
	for i, t := range tiers {
		prices, at := maps.Clone(mapping(t)), "tiers["+strconv.Itoa(i)+"]."
		tier := mapping(prices["tier"])
		delete(prices, "tier")
		size, ok, _ := scaled(tier["size"], 0, 1)
		if kind := tier["type"]; !ok || kind != nil && kind != "context" {
			d.skip("cost."+at+"tier", "is not understood")
			d.broken = true
			continue
		}
		d.modelsDevSet("", from(size, provider), at, prices)
	}
}

// modelsDevMode reads the prices of a mode, which a field of the request's body asks for.
func (d *draft) modelsDevMode(at string, mode map[string]any) {
	cost := mapping(mode["cost"])
	if cost == nil {
		return
	}
	body := mapping(mapping(mode["provider"])["body"])
	for _, label := range []string{"service_tier", "speed"} {
		if value, ok := body[label].(string); ok {
			d.modelsDevSet(label+":"+value, 0, at+".", cost)
			return
		}
	}
	d.skip(at, "is asked for by no service_tier or speed")
}
