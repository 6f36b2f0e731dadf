package llm

import (
	"log/slog"

	"github.com/headgate/headgate/internal/series"
)

func init() {
	series.Register((*ResponseEvent).record, (*ResponseEvent).note)
	series.Register((*PricesEvent).record, (*PricesEvent).note)
}

func (e *PricesEvent) record(w *series.Recording) {
	w.Record(series.PriceReloads, 1, series.ResultOf(e.Err))
}

func (e *ResponseEvent) record(w *series.Recording) {
	model := e.label()
	w.Record(series.Responses, 1, model, e.Outcome.String())
	e.Usage.record(w, series.Tokens, model)
	for _, o := range e.Others {
		o.Usage.record(w, series.Tokens, o.Model) // the server has named it
	}
	e.Estimate.record(w, series.EstimatedTokens, model)
	if e.Cost > 0 {
		w.Record(series.Cost, float64(e.Cost)/1e6, model)
	}
	for _, c := range [...]struct {
		series *series.Series
		counts bool
	}{
		{series.Overruns, e.Indebted}, {series.Drained, e.Drained},
		{series.UnknownPrices, len(e.Unknown) > 0},
	} {
		if c.counts {
			w.Record(c.series, 1, model)
		}
	}
}

// label returns the model of a response as a label of metrics. Clients may invent any number of
// names, so one that the configuration does not have is Other. Without models in the configuration,
// it is the name in an answer that states its usage.
func (e *ResponseEvent) label() string {
	if e.HTTP != nil {
		x := callOf(e.HTTP.Context())
		if x != nil && (len(x.meter.cfg.Models) > 0 || x.meter.cfg.Prices != nil) {
			if name := x.model(); name != unknown {
				return name
			}
			return series.Other
		}
	}
	if e.Outcome == OutcomeReported && e.Bill.Model != "" {
		return e.Bill.Model
	}
	return series.Other
}

// record records tokens by kind. Reasoning is a kind of its own here, so that the kinds add up.
func (u Usage) record(w *series.Recording, s *series.Series, model string) {
	u = u.positive()
	for _, k := range [...]struct {
		kind   string
		tokens int64
	}{
		{"input", u.Input}, {"cache_read", u.CacheRead}, {"cache_write", u.CacheWrite},
		{"cache_write_long", u.CacheWriteLong}, {"audio_in", u.AudioIn}, {"image_in", u.ImageIn},
		{"output", u.Output - u.Reasoning}, {"reasoning", u.Reasoning},
		{"audio_out", u.AudioOut}, {"image_out", u.ImageOut},
	} {
		if k.tokens > 0 {
			w.Record(s, float64(k.tokens), model, k.kind)
		}
	}
}

// note returns what a log says of an event.
func (e *PricesEvent) note() series.Note {
	if e.Err != nil {
		return series.Note{
			Level: slog.LevelError, Message: "prices failed",
			Attrs: []slog.Attr{slog.Any("error", e.Err)},
		}
	}
	return series.Note{Level: slog.LevelInfo, Message: "prices reloaded"}
}

// note returns what a log says of an event.
func (e *ResponseEvent) note() (n series.Note) {
	n.Level = slog.LevelWarn
	n.Attrs = []slog.Attr{
		slog.String("model", e.label()), slog.String("outcome", e.Outcome.String()),
	}
	switch {
	case e.Indebted:
		n.Message = "a budget denied a running response"
	case len(e.Unknown) > 0:
		n.Message = "response without a price"
		n.Attrs = append(n.Attrs, slog.Any("unknown", e.Unknown))
	case e.Outcome == OutcomeUnreported:
		n.Message = "response without its usage"
	}
	return n
}
