package signal

import (
	"net/http"
	"time"

	"github.com/dunglas/httpsfv"
)

// readFields reads the structured fields RateLimit and RateLimit-Policy of
// draft-ietf-httpapi-ratelimit-headers: -08 to -11, and -07.
func (r *response) readFields(h http.Header) {
	if values := beginning(h["Ratelimit"]); len(values) > 0 {
		if list, err := httpsfv.UnmarshalList(values); err == nil {
			r.readList(list, "r", "t", func(w *window, left, reset int64) {
				w.Remaining.Remaining, w.told = left, true
				w.Reset = bounded(float64(reset))
			})
		} else if fields, err := httpsfv.UnmarshalDictionary(values); err == nil {
			r.readDictionary(fields)
		}
	}
	if values := beginning(h["Ratelimit-Policy"]); len(values) > 0 {
		if list, err := httpsfv.UnmarshalList(values); err == nil {
			r.readList(list, "q", "w", func(w *window, limit, period int64) {
				w.Limit, w.Window = limit, time.Duration(min(period, maxPeriod))*time.Second
			})
		}
	}
}

// maxPeriod is a year in seconds.
const maxPeriod = 366 * 24 * 3600

// fieldFamily is that of RateLimit, beside that of RateLimit-Limit and the like.
var fieldFamily = &family{prefix: "Ratelimit-"}

// readList reads the items of a list, each a limit with an integer that it needs and one that it
// may have.
func (r *response) readList(
	list httpsfv.List, needed, other string, set func(w *window, a, b int64),
) {
	for _, member := range list {
		item, ok := member.(httpsfv.Item)
		if !ok {
			continue
		}
		var name string
		switch v := item.Value.(type) {
		case string:
			name = v
		case httpsfv.Token: // before -09
			name = string(v)
		default: // a policy of -04 to -07, which has no name
			continue
		}
		a, ok := integer(item.Params, needed)
		if !ok {
			continue
		}
		b, _ := integer(item.Params, other)
		w := r.window(fieldFamily, name)
		set(w, a, b)
		w.Unit = fieldUnit(item.Params, w)
	}
}

// fieldUnit returns the unit of a limit, which RateLimit-Policy states. It is requests by default.
// The name of a policy is the provider's own and tells no unit.
func fieldUnit(p *httpsfv.Params, w *window) string {
	stated, ok := p.Get("qu")
	switch {
	case ok:
		w.stated = true
	case w.stated:
		return w.Unit
	default:
		return requests
	}
	switch text, _ := stated.(string); text {
	case requests, tokens, inputTokens, outputTokens:
		return text
	}
	return ""
}

// integer returns a parameter that is an integer of at least 0.
func integer(p *httpsfv.Params, name string) (int64, bool) {
	v, _ := p.Get(name)
	n, ok := v.(int64)
	return n, ok && n >= 0 && n < maxCount
}

// readDictionary reads the form of -07: limit=100, remaining=50, reset=5.
func (r *response) readDictionary(fields *httpsfv.Dictionary) {
	get := func(name string) (int64, bool) {
		member, _ := fields.Get(name)
		item, _ := member.(httpsfv.Item)
		n, ok := item.Value.(int64)
		return n, ok && n >= 0 && n < maxCount
	}
	left, ok := get("remaining")
	if !ok {
		return
	}
	w := r.window(fieldFamily, "")
	w.Remaining.Remaining, w.told = left, true
	w.Limit, _ = get("limit")
	reset, _ := get("reset")
	w.Reset = bounded(float64(reset))
}
