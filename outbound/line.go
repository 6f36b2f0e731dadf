package outbound

import (
	"slices"
	"sync"

	"github.com/headgate/headgate/core"
)

// lineKey is what the requests of a line wait for.
type lineKey struct {
	policy *core.Policy
	key    core.Key
}

// lines are the requests of this process that wait for what serves no one in order: room in a window.
// Each line has a head, and only the head asks again.
type lines struct {
	mu      sync.Mutex
	all     map[lineKey]*line
	numbers int64
}

type line struct {
	key    lineKey
	places []*place // the first is the head's
}

// place is that of one request in a line.
type place struct {
	line   *line
	number int64         // a request that came earlier has a lower one
	head   chan struct{} // closed when the place is the head's
}

func newLines() *lines { return &lines{all: make(map[lineKey]*line)} }

// enter takes a place before all requests with a higher number, except the head. A request that has
// no number yet, 0, gets the next one.
func (l *lines) enter(key lineKey, number int64) *place {
	l.mu.Lock()
	defer l.mu.Unlock()
	in := l.all[key]
	if in == nil {
		in = &line{key: key}
		l.all[key] = in
	}
	if number == 0 {
		l.numbers++
		number = l.numbers
	}
	p := &place{line: in, number: number, head: make(chan struct{})}
	i := len(in.places)
	for i > 1 && in.places[i-1].number > number {
		i--
	}
	if in.places = slices.Insert(in.places, i, p); i == 0 {
		close(p.head)
	}
	return p
}

// leave gives a place up, and makes the next one the head's. A nil place is none.
func (l *lines) leave(p *place) {
	if p == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	in := p.line
	for i, other := range in.places {
		if other != p {
			continue
		}
		in.places = append(in.places[:i], in.places[i+1:]...)
		switch {
		case len(in.places) == 0:
			delete(l.all, in.key)
		case i == 0:
			close(in.places[0].head)
		}
		return
	}
}

// first returns the first of the keys that requests wait for, if there is one.
func (l *lines) first(charges []core.Charge) (key lineKey, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.all) == 0 {
		return key, false
	}
	for _, c := range charges {
		key = lineKey{c.Policy, c.Key}
		if l.all[key] != nil {
			return key, true
		}
	}
	return key, false
}
