package series

import "log/slog"

// Event is a core.Event.
type Event = interface{ EventName() string }

// Family says what the events of a package mean.
type Family struct {
	// Measure records an event, and reports whether it is one of the family's.
	Measure func(e Event, w *Recording) bool
	// Note returns what a log says of an event. Its Message is empty if that is nothing.
	Note func(e Event) Note
}

// Note is what a log says of an event.
type Note struct {
	Level   slog.Level
	Message string
	Attrs   []slog.Attr
}

var families []Family

// Register adds the events of a package. Only packages call it, when they are initialized.
func Register(f Family) { families = append(families, f) }

// NoteOf returns what a log says of an event of a registered family.
func NoteOf(e Event) Note {
	for _, f := range families {
		if n := f.Note(e); n.Message != "" {
			return n
		}
	}
	return Note{}
}

// Measure records an event of a registered family, if it is one.
func (w *Recording) Measure(e Event) {
	for _, f := range families {
		if f.Measure(e, w) {
			return
		}
	}
}
