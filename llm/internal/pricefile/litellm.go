package pricefile

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// What LiteLLM's model_prices_and_context_window.json has, as of August 2026. Prices are dollars for
// one token, one piece or one second.
var (
	liteLLMPrices = map[string]int{
		"input_cost_per_token":                      Input,
		"output_cost_per_token":                     Output,
		"cache_read_input_token_cost":               CacheRead,
		"input_cost_per_token_cache_hit":            CacheRead,
		"cache_creation_input_token_cost":           CacheWrite,
		"cache_creation_input_token_cost_above_1hr": CacheWriteLong,
		"input_cost_per_audio_token":                AudioIn,
		"input_cost_per_image_token":                ImageIn,
		"output_cost_per_audio_token":               AudioOut,
		"output_cost_per_image_token":               ImageOut,
		"output_cost_per_reasoning_token":           Reasoning,
	}
	liteLLMUnits = map[string]struct {
		unit     string
		exponent int // of dollars for one, or 1,000, to micro-dollars for 1,000
	}{
		"file_search_cost_per_1k_calls":     {"file_search", 6},
		"code_interpreter_cost_per_session": {"container", 9},
		"input_cost_per_second":             {"audio_ms", 6},
		"input_cost_per_audio_per_second":   {"audio_ms", 6},
		"input_cost_per_query":              {"rerank_search", 9},
		"ocr_cost_per_page":                 {"page", 9},
		"output_cost_per_image":             {"image", 9},
		"input_cost_per_request":            {"request", 9},
	}
	liteLLMMaps    = map[string]string{"grounded_prompt": "maps_prompt", "web_search": "maps_query"}
	liteLLMFactors = map[string]string{
		"regional_processing_uplift_multiplier_us": "geo:us",
		"regional_processing_uplift_multiplier_eu": "geo:eu",
	}
	liteLLMEntries = map[string]string{"fast": "speed:fast", "us": "geo:us", "eu": "geo:eu"}
	liteLLMTiers   = map[string]string{
		"_flex": "service_tier:flex", "_priority": "service_tier:priority",
		"_batches": "service_tier:batch",
	}

	// liteLLMPieces are the modes of models that are not billed by tokens. Chats that are billed by
	// the second have reserved their servers: their tokens are not free to somebody else.
	liteLLMPieces = []string{"audio_transcription", "image_generation", "ocr", "rerank"}

	// liteLLMOther matches fields that price nothing.
	liteLLMOther = regexp.MustCompile(`^(supports_|supported_|max_|tpm$|rpm$|mode$|litellm_provider$|` +
		`source$|metadata$|comment$|_comment$|notes$|deprecation_date$|output_vector_size$|` +
		`tool_use_system_prompt_tokens$|prompt_cache_min_tokens$|uses_embed_content$|gemini_)`)
	liteLLMThreshold = regexp.MustCompile(`_above_(\d+)k_tokens$`)
)

func (r *reader) liteLLM(top map[string]any) {
	for _, name := range slices.Sorted(maps.Keys(top)) {
		if name == "sample_spec" { // describes the fields
			continue
		}
		entry := mapping(top[name])
		if entry == nil {
			r.unread(name, "entry", "is no mapping")
			continue
		}
		provider, _ := entry["litellm_provider"].(string)
		d := r.draft(name)
		mode, _ := entry["mode"].(string)
		d.pieces = slices.Contains(liteLLMPieces, mode)
		for _, field := range slices.Sorted(maps.Keys(entry)) {
			d.liteLLM(field, entry[field], provider, entry)
		}
		e := Entry{Provider: provider, Name: name, Alias: name}
		if of, rest, ok := strings.Cut(name, "/"); ok && of == provider {
			e.Alias = rest
		}
		d.add(e)
	}
}

// liteLLM reads one field of an entry.
func (d *draft) liteLLM(field string, v any, provider string, entry map[string]any) {
	if d.liteLLMPrice(field, field, v, 0, provider) {
		return
	}
	switch unit, isUnit := liteLLMUnits[field]; {
	case isUnit:
		d.unit(unit.unit, field, v, unit.exponent, 1)
	case liteLLMFactors[field] != "":
		d.factor(liteLLMFactors[field], field, v)
	case field == "provider_specific_entry":
		for _, name := range slices.Sorted(maps.Keys(mapping(v))) {
			if label := liteLLMEntries[name]; label != "" {
				d.factor(label, field+"."+name, mapping(v)[name])
			} else {
				d.skip(field+"."+name, "is not known")
			}
		}
	case field == "search_context_cost_per_query":
		d.liteLLMSearch(field, mapping(v), searchUnit(provider, entry["web_search_billing_unit"]))
	case field == "google_maps_grounding_cost_per_query":
		d.unit(liteLLMMaps[searchUnit(provider, entry["web_search_billing_unit"])], field, v, 9, 1)
	case field == "tiered_pricing":
		d.liteLLMTiers(field, v, provider)
	case field == "max_output_tokens":
		if n, exact, _ := scaled(v, 0, 1); exact {
			d.model.MaxOutput = n
		}
	case field == "web_search_billing_unit" || liteLLMOther.MatchString(field):
	default:
		d.skip(field, "is not known")
	}
}

// liteLLMPrice reads a price of tokens that begins at a number of tokens. The name of the field may
// tell another number and a label.
func (d *draft) liteLLMPrice(field, name string, v any, begin int64, provider string) bool {
	label := ""
	for suffix, l := range liteLLMTiers {
		if rest, ok := strings.CutSuffix(name, suffix); ok {
			name, label = rest, l
		}
	}
	if m := liteLLMThreshold.FindStringSubmatch(name); m != nil {
		thousands, err := strconv.ParseInt(m[1], 10, 32)
		if err != nil {
			return false
		}
		begin, name = from(thousands*1000, provider), strings.TrimSuffix(name, m[0])
	}
	kind, ok := liteLLMPrices[name]
	if ok && v != nil {
		d.price(label, begin, kind, field, v, 12)
	}
	return ok
}

// liteLLMSearch reads the price of a search of medium context, which is what servers do unasked. No
// response tells the size.
func (d *draft) liteLLMSearch(field string, sizes map[string]any, unit string) {
	medium := sizes["search_context_size_medium"]
	d.unit(unit, field, medium, 9, 1)
	for _, size := range slices.Sorted(maps.Keys(sizes)) {
		if fmt.Sprint(sizes[size]) != fmt.Sprint(medium) {
			d.skip(field+"."+size, "differs from search_context_size_medium, which is charged")
		}
	}
}

// searchUnit returns what is billed: Gemini counts prompts with searches if nothing else is said.
func searchUnit(provider string, billing any) string {
	gemini := strings.Contains(provider, "gemini") || strings.Contains(provider, "vertex_ai-language")
	if gemini && billing != "per_query" {
		return "grounded_prompt"
	}
	return "web_search"
}

// liteLLMTiers reads a list of prices for ranges of prompts.
func (d *draft) liteLLMTiers(field string, v any, provider string) {
	list, _ := v.([]any)
	for i, tier := range list {
		at := field + "[" + strconv.Itoa(i) + "]."
		span, _ := mapping(tier)["range"].([]any)
		var threshold int64
		ok := len(span) > 0
		if ok {
			threshold, ok, _ = scaled(span[0], 0, 1)
		}
		if !ok {
			d.skip(at+"range", "is missing or not understood")
			d.priced, d.broken = true, true
			continue
		}
		begin := int64(0)
		if threshold > 0 {
			begin = from(threshold, provider)
		}
		for _, name := range slices.Sorted(maps.Keys(mapping(tier))) {
			if name != "range" && !d.liteLLMPrice(at+name, name, mapping(tier)[name], begin, provider) {
				d.skip(at+name, "is not known")
			}
		}
	}
}
