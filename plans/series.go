package plans

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
	w.Record(series.PlanChanges, 1, event.Op.String(), series.ResultOf(event.Err))
	return true
}

// noteEvent returns what a log says of an event. A tenant is left out: it is a key.
func noteEvent(e series.Event) (n series.Note) {
	event, ok := e.(*Event)
	if !ok {
		return n
	}
	n.Attrs = []slog.Attr{slog.String("operation", event.Op.String())}
	switch n.Level = slog.LevelError; {
	case event.Err != nil:
		n.Message = "plans failed"
		n.Attrs = append(n.Attrs, slog.Any("error", event.Err))
	case event.Op == OpReload:
		n.Level, n.Message = slog.LevelInfo, "plans reloaded"
	case event.Op == OpFollow:
		n.Level, n.Message = slog.LevelInfo, "plans follow Redis again"
	}
	return n
}
