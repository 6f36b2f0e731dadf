package series

import (
	"log/slog"
	"reflect"
)

// Event is a core.Event.
type Event = interface{ EventName() string }

// Note is what a log says of an event. Its Message is empty if that is nothing.
type Note struct {
	Level   slog.Level
	Message string
	Attrs   []slog.Attr
	Rare    bool // it does not come with every request
}

// kind is what the events of one type mean.
type kind struct {
	record func(Event, *Recording)
	note   func(Event) Note
}

var kinds = make(map[reflect.Type]kind)

// Register makes the events of a type known: record records one for metrics, and note says what a log
// has of it. Only packages call it, when they are initialized.
func Register[E Event](record func(E, *Recording), note func(E) Note) {
	kinds[reflect.TypeFor[E]()] = kind{
		func(e Event, w *Recording) { record(e.(E), w) },
		func(e Event) Note { return note(e.(E)) },
	}
}

// Unnoted is for Register: a log says nothing of these events.
func Unnoted[E Event](E) Note { return Note{} }

// NoteOf returns what a log says of an event of a registered type.
func NoteOf(e Event) Note {
	if k, ok := kinds[reflect.TypeOf(e)]; ok {
		return k.note(e)
	}
	return Note{}
}

// Measure records an event of a registered type, if it is one.
func (w *Recording) Measure(e Event) {
	if k, ok := kinds[reflect.TypeOf(e)]; ok {
		k.record(e, w)
	}
}
