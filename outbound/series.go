package outbound

import (
	"log/slog"
	"strconv"

	"github.com/headgate/headgate/internal/series"
)

func init() {
	series.Register((*RequestEvent).record, series.Unnoted)
	series.Register((*WaitEvent).record, series.Unnoted)
	series.Register((*CooldownEvent).record, (*CooldownEvent).note)
	series.Register((*LowerEvent).record, (*LowerEvent).note)
}

func (e *RequestEvent) record(w *series.Recording) {
	result := series.ResultOf(e.Err)
	w.Record(series.OutboundRequests, 1, statusOf(e.Status), result)
	w.Record(series.OutboundSendings, float64(e.Sent))
	if e.Waited > 0 {
		w.Record(series.OutboundTimeInQueue, e.Waited.Seconds(), result)
	}
}

func (e *WaitEvent) record(w *series.Recording) { w.Record(series.OutboundWaits, 1, e.Rule) }

func (e *CooldownEvent) record(w *series.Recording) {
	w.Record(series.OutboundCooldown, e.For.Seconds(), statusOf(e.Status), series.ResultOf(e.Err))
}

func (e *LowerEvent) record(w *series.Recording) {
	w.Record(series.OutboundLower, 1, e.Policy.Name(), series.ResultOf(e.Err))
}

// statusOf returns a status as a label.
func statusOf(status int) string {
	if status == 0 {
		return "none"
	}
	return strconv.Itoa(status)
}

// note returns what a log says of a refusal of the upstream.
func (e *CooldownEvent) note() series.Note {
	n := series.Note{
		Level: slog.LevelWarn, Message: "upstream refuses",
		Attrs: []slog.Attr{slog.Int("status", e.Status), slog.Duration("cooldown", e.For)},
	}
	if e.Spent {
		n.Message = "upstream says that the account is spent"
	}
	if e.Err != nil {
		n.Attrs = append(n.Attrs, slog.Any("error", e.Err))
	}
	return n
}

// note returns what a log says if other replicas may not know what is left.
func (e *LowerEvent) note() (n series.Note) {
	if e.Err != nil {
		n = series.Note{
			Level: slog.LevelWarn, Message: "what the upstream has left is not counted",
			Attrs: []slog.Attr{slog.Any("error", e.Err)},
		}
	}
	return n
}
