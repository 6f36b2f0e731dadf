package plans

import (
	"log/slog"

	"github.com/headgate/headgate/internal/series"
)

func init() { series.Register((*Event).record, (*Event).note) }

func (e *Event) record(w *series.Recording) {
	w.Record(series.PlanChanges, 1, e.Op.String(), series.ResultOf(e.Err))
}

// note returns what a log says of an event. A tenant is left out: it is a key.
func (e *Event) note() (n series.Note) {
	n.Attrs = []slog.Attr{slog.String("operation", e.Op.String())}
	switch n.Level = slog.LevelError; {
	case e.Err != nil:
		n.Message = "plans failed"
		n.Attrs = append(n.Attrs, slog.Any("error", e.Err))
	case e.Op == OpReload:
		n.Level, n.Message = slog.LevelInfo, "plans reloaded"
	case e.Op == OpFollow:
		n.Level, n.Message = slog.LevelInfo, "plans follow Redis again"
	}
	return n
}
