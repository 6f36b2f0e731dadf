package outbound

import (
	"log/slog"
	"strconv"

	"github.com/headgate/headgate/internal/series"
)

func init() { series.Register(series.Family{Measure: recordEvent, Note: noteEvent}) }

// recordEvent records an event for those who watch metrics.
func recordEvent(e series.Event, w *series.Recording) bool {
	switch e := e.(type) {
	case *RequestEvent:
		result := series.ResultOf(e.Err)
		w.Record(series.OutboundRequests, 1, statusOf(e.Status), result)
		w.Record(series.OutboundSendings, float64(e.Sent))
		if e.Waited > 0 {
			w.Record(series.OutboundTimeInQueue, e.Waited.Seconds(), result)
		}
	case *WaitEvent:
		w.Record(series.OutboundWaits, 1, e.Rule)
	case *CooldownEvent:
		w.Record(series.OutboundCooldown, e.For.Seconds(), statusOf(e.Status), series.ResultOf(e.Err))
	case *LowerEvent:
		w.Record(series.OutboundLower, 1, e.Policy.Name(), series.ResultOf(e.Err))
	default:
		return false
	}
	return true
}

// statusOf returns a status as a label.
func statusOf(status int) string {
	if status == 0 {
		return "none"
	}
	return strconv.Itoa(status)
}

// noteEvent returns what a log says of an event: refusals of the upstream, and what other replicas
// may not know.
func noteEvent(e series.Event) (n series.Note) {
	switch e := e.(type) {
	case *CooldownEvent:
		n = series.Note{
			Level: slog.LevelWarn, Message: "upstream refuses",
			Attrs: []slog.Attr{slog.Int("status", e.Status), slog.Duration("cooldown", e.For)},
		}
		if e.Spent {
			n.Message = "upstream says that the account is spent"
		}
		if e.Err != nil {
			n.Attrs = append(n.Attrs, slog.Any("error", e.Err))
		}
	case *LowerEvent:
		if e.Err != nil {
			n = series.Note{
				Level: slog.LevelWarn, Message: "what the upstream has left is not counted",
				Attrs: []slog.Attr{slog.Any("error", e.Err)},
			}
		}
	}
	return n
}
