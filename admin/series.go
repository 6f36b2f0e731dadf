package admin

import (
	"log/slog"

	"github.com/headgate/headgate/internal/series"
)

func init() { series.Register((*Event).record, (*Event).note) }

func (e *Event) record(w *series.Recording) {
	w.Record(series.OperatorChanges, 1, e.Op.String(), series.ResultOf(e.Err))
}

// note returns what a log says of an event. Keys and tenants are left out.
func (e *Event) note() series.Note {
	n := series.Note{Level: slog.LevelInfo, Message: "changed by an operator", Rare: true}
	n.Attrs = []slog.Attr{
		slog.String("operation", e.Op.String()), slog.String("operator", e.Operator),
	}
	if e.Policy != nil {
		n.Attrs = append(n.Attrs, slog.String("policy", e.Policy.Name()))
	}
	if e.Err != nil {
		n.Level = slog.LevelWarn
		n.Attrs = append(n.Attrs, slog.Any("error", e.Err))
	}
	return n
}
