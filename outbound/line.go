package outbound

import (
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate/core"
)

// longestSpread is the time after the end of a cooldown in which the requests that have waited for
// it go on. It leaves a tenth of the first second for the way to Redis.
const longestSpread = 900 * time.Millisecond

// lineKey is what the requests of a line wait for.
type lineKey struct {
	policy *core.Policy
	key    core.Key
}

// lines are the requests of this process that wait for what serves no one in order: the end of a
// cooldown, or room in a window. Each line has a head, and only the head asks again.
type lines struct {
	mu      sync.Mutex
	all     map[lineKey]*line
	numbers int64
}

type line struct {
	key    lineKey
	places []*place // the first is the head's

	// Of a line that waits for a cooldown: its end, and the time after it in which the requests go
	// on.
	end    time.Time
	spread time.Duration
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

// cool notes for how long the key of a line cools yet.
func (l *lines) cool(p *place, rest time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if end := time.Now().Add(rest); end.After(p.line.end) {
		p.line.end = end
		p.line.spread = max(p.line.spread, min(rest, longestSpread))
	}
}

// cooled returns the end of the cooldown of a line, and whether it is over.
func (l *lines) cooled(p *place) (end time.Time, over bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return p.line.end, !time.Now().Before(p.line.end)
}

// pause returns how long the head of a line waits after the end of a cooldown. The pauses of all
// heads spread the line evenly at random over the rest of the spread: each is the distance to the
// least of as many uniform numbers as requests are left.
func (l *lines) pause(p *place) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	rest := time.Until(p.line.end.Add(p.line.spread))
	if rest <= 0 {
		return 0
	}
	least := 1 - math.Pow(rand.Float64(), 1/float64(len(p.line.places)))
	return time.Duration(float64(rest) * least)
}
