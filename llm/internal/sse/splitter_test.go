package sse_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/headgate/headgate/llm/internal/sse"
)

// events collects what a Splitter finds: name=data, with ! for an event without data.
type events struct {
	found      []string
	name, text strings.Builder
}

func (e *events) EventData(p []byte) { e.text.Write(p) }
func (e *events) EventName(p []byte) { e.name.Write(p) }
func (e *events) EventEnd(filled bool) {
	note := e.name.String() + "=" + e.text.String()
	if !filled {
		note += "!"
	}
	e.found = append(e.found, note)
	e.name.Reset()
	e.text.Reset()
}

func TestSplitterFollowsTheStandard(t *testing.T) {
	for _, c := range []struct {
		name, stream string
		want         []string
	}{
		{"one event", "data: a\n\n", []string{"=a"}},
		{"CR LF", "data: a\r\n\r\ndata: b\r\n\r\n", []string{"=a", "=b"}},
		{"mixed line ends", "data: a\r\n\ndata: b\n\r\ndata: c\n\r\r\n", []string{"=a", "=b", "=c"}},
		{"several data lines", "data: a\ndata: b\ndata\ndata:\n\n", []string{"=a\nb\n\n"}},
		{"one space is dropped", "data:  a\n\ndata:b\n\n", []string{"= a", "=b"}},
		{"event name", "event: delta\ndata: a\n\ndata: b\n\n", []string{"delta=a", "=b"}},
		{"name without data", "event: x\n\ndata: b\n\n", []string{"x=!", "=b"}},
		{"comments", ": hello\n:data: no\ndata: a\n:\n\n", []string{"=a"}},
		{"other fields",
			"id: 1\nretry: 5\ndatas: x\ndat: x\nDATA: x\n data: x\nevents: y\ndata: a\n\n",
			[]string{"=a"}},
		{"empty data", "data\n\ndata:\n\n", []string{"=", "="}},
		{"colon in the value", "data: a: b\n\n", []string{"=a: b"}},
		{"no blank line", "data: a\n\ndata: b", []string{"=a", "=b"}},
		{"no end of line", "data", []string{"="}},
		{"blank lines", "\n\r\n\r", []string{"=!", "=!"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for i := range len(c.stream) + 1 {
				var e events
				s := sse.New(&e)
				for _, p := range []string{c.stream[:i], c.stream[i:]} {
					for rest := []byte(p); len(rest) > 0; {
						n, _ := s.Next(rest)
						rest = rest[n:]
					}
				}
				s.Close()
				if !reflect.DeepEqual(e.found, c.want) {
					t.Errorf("cut at %d: %q, want %q", i, e.found, c.want)
				}
			}
		})
	}
}

func TestBetween(t *testing.T) {
	for _, c := range []struct {
		stream string
		want   bool
	}{
		{"", true}, {"data: a\n\n", true}, {"data: a\r\n\r\n", true},
		{": ping\n", true}, {"id: 1\n", true},
		{"d", false}, {"data: a", false}, {"data: a\n", false}, {"event: a\n", false},
		{": ping", false}, {"data: a\r", false}, {"data: a\r\n\r", false},
	} {
		s := sse.New(new(events))
		for rest := []byte(c.stream); len(rest) > 0; {
			n, _ := s.Next(rest)
			rest = rest[n:]
		}
		if got := s.Between(); got != c.want {
			t.Errorf("%q: %v, want %v", c.stream, got, c.want)
		}
	}
}
