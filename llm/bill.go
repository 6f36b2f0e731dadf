package llm

import "github.com/headgate/headgate/llm/internal/wire"

// Bill is what a response is charged for. It must not be changed.
type Bill struct {
	// Model is the model that served, as the response names it, or that which the request names. If
	// Config.Models does not have it, it costs as much as the dearest, unless it is a version of the
	// model that the request names, or behind a name in its path. It is empty if the request names
	// several and the response none: then it is the dearest of these.
	Model string
	// Usage is the tokens of Model.
	Usage Usage
	// Others is what further models used for parts of the response, such as an advisor or a tool
	// that draws. Each has its own prices, those of the dearest if it is unknown.
	Others []ModelUsage
	// Units is the number of pieces that the server bills by the piece, by name: web_search,
	// file_search, container, rerank_search, audio_ms and others.
	Units map[string]int64
	// Labels is what the response states of its price, in lower case: service_tier, speed or geo. If
	// it states no usage, what it leaves out is what the request asks for.
	Labels map[string]string
	// Stated is the bill that the server states, if it does; see Config.StatedCost.
	Stated Money
	// Unread is what the response leaves open: what it states of its use and the Meter does not read,
	// such as "usage image_pixels" or "item draw_call", which has no price, and the Units that it does
	// not state, such as "estimate of audio_ms".
	Unread []string
}

// ModelUsage is what one model used.
type ModelUsage struct {
	Model string
	Usage Usage
}

// Money is an exact amount.
type Money struct {
	// Known says that there is one.
	Known bool
	// Pico is the amount in millionths of a micro-dollar.
	Pico int64
}

// pico is a micro-dollar.
const pico = 1_000_000

// MicroDollars returns the amount, rounded up.
func (m Money) MicroDollars() int64 {
	n := m.Pico / pico
	if m.Pico%pico > 0 {
		n++
	}
	return n
}

// billOf returns the bill of a response to a request for one of the models.
func billOf(o *wire.Response, models []string) Bill {
	b := Bill{
		Model: o.Model, Usage: Usage(o.Usage), Units: o.Units, Labels: o.Labels, Stated: Money(o.Stated),
		Unread: o.Unnamed,
	}
	if b.Model == "" && len(models) == 1 {
		b.Model = models[0]
	}
	for _, other := range o.Others {
		b.Others = append(b.Others, ModelUsage{other.Model, Usage(other.Usage)})
	}
	return b
}
