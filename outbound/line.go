package outbound

import (
	"sync"

	"github.com/headgate/headgate/core"
)

// lineKey is what the requests of a line wait for.
type lineKey struct {
	policy *core.Policy
	key    core.Key
}

// lines are the requests of this process that wait for what serves no one in order: room in a window.
// Only the head of each line asks again.
type lines struct {
	mu  sync.Mutex
	all map[lineKey]*line
}

type line struct {
	key  lineKey
	size int
	head chan struct{} // has room for the head alone; a channel serves its senders in their order
}

// enter joins the line of a key, and reports whether others stand there.
func (l *lines) enter(key lineKey) (in *line, others bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	in, others = l.all[key]
	if !others {
		in = &line{key: key, head: make(chan struct{}, 1)}
		l.all[key] = in
	}
	in.size++
	return in, others
}

// leave leaves a line.
func (l *lines) leave(in *line) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if in.size--; in.size == 0 {
		delete(l.all, in.key)
	}
}

// of returns the first of the keys that requests wait for, if there is one.
func (l *lines) of(charges []core.Charge) (key lineKey, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range charges {
		key = lineKey{c.Policy, c.Key}
		if l.all[key] != nil {
			return key, true
		}
	}
	return key, false
}
