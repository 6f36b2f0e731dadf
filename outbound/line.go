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
	mu  sync.Mutex
	all map[lineKey]*line
}

type line struct {
	key    lineKey
	places []*place // the first is the head's
}

// place is that of one request in a line.
type place struct {
	line *line
	head chan struct{} // closed when the place is the head's
}

func newLines() *lines { return &lines{all: make(map[lineKey]*line)} }

// enter takes the last place of a line.
func (l *lines) enter(key lineKey) *place {
	l.mu.Lock()
	defer l.mu.Unlock()
	in := l.all[key]
	if in == nil {
		in = &line{key: key}
		l.all[key] = in
	}
	p := &place{line: in, head: make(chan struct{})}
	in.places = append(in.places, p)
	if len(in.places) == 1 {
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
	i := slices.Index(in.places, p)
	in.places = slices.Delete(in.places, i, i+1)
	switch {
	case len(in.places) == 0:
		delete(l.all, in.key)
	case i == 0:
		close(in.places[0].head)
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
