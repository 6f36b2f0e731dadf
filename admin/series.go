package admin

import (
	"log/slog"

	"github.com/headgate/headgate/internal/series"
)

func init() { series.Register(series.Family{Measure: recordEvent, Note: noteEvent}) }

// recordEvent records an event for those who watch metrics.
func recordEvent(e series.Event, w *series.Recording) bool {
	event, ok := e.(*Event)
	if !ok {
		return false
	}
	w.Record(series.OperatorChanges, 1, event.Op.String(), series.ResultOf(event.Err))
	return true
}

// noteEvent returns what a log says of an event. Keys and tenants are left out.
func noteEvent(e series.Event) (n series.Note) {
	event, ok := e.(*Event)
	if !ok {
		return n
	}
	n.Level, n.Message = slog.LevelInfo, "changed by an operator"
	n.Attrs = []slog.Attr{
		slog.String("operation", event.Op.String()), slog.String("operator", event.Operator),
	}
	if event.Policy != nil {
		n.Attrs = append(n.Attrs, slog.String("policy", event.Policy.Name()))
	}
	if event.Err != nil {
		n.Level = slog.LevelWarn
		n.Attrs = append(n.Attrs, slog.Any("error", event.Err))
	}
	return n
}
