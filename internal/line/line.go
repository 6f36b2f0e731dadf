// Package line lets callers of one process wait in line for what serves no one in order, so that only
// the first of each line asks for it.
package line

import (
	"iter"
	"slices"
	"sync"
)

// Lines are the lines of a process, by what their callers wait for. The zero value has none. It is safe
// for concurrent use.
type Lines[K comparable] struct {
	mu  sync.Mutex
	all map[K][]*Place[K] // none is empty
}

// Place is that of one caller. A nil place stands in no line.
type Place[K comparable] struct {
	lines *Lines[K]
	key   K
	head  chan struct{}
}

// Enter takes the last place of a line.
func (l *Lines[K]) Enter(key K) *Place[K] {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.enter(key)
}

func (l *Lines[K]) enter(key K) *Place[K] {
	if l.all == nil {
		l.all = make(map[K][]*Place[K])
	}
	p := &Place[K]{lines: l, key: key, head: make(chan struct{})}
	l.all[key] = append(l.all[key], p)
	if len(l.all[key]) == 1 {
		close(p.head)
	}
	return p
}

// Behind takes the last place of the first of these lines in which callers stand, or none.
func (l *Lines[K]) Behind(keys iter.Seq[K]) *Place[K] {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.all) == 0 {
		return nil
	}
	for key := range keys {
		if l.all[key] != nil {
			return l.enter(key)
		}
	}
	return nil
}

// Leave gives the place up. The next one is the head of the line then.
func (p *Place[K]) Leave() {
	if p == nil {
		return
	}
	l := p.lines
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.Index(l.all[p.key], p)
	rest := slices.Delete(l.all[p.key], i, i+1)
	if l.all[p.key] = rest; len(rest) == 0 {
		delete(l.all, p.key)
	} else if i == 0 {
		close(rest[0].head)
	}
}

// Head returns what is closed once the place is the head of its line.
func (p *Place[K]) Head() <-chan struct{} { return p.head }

// IsHead reports whether nobody stands before the place.
func (p *Place[K]) IsHead() bool {
	select {
	case <-p.head:
		return true
	default:
		return false
	}
}

// Key returns whose line the place is in.
func (p *Place[K]) Key() K { return p.key }

// In reports whether the place is in that line.
func (p *Place[K]) In(key K) bool { return p != nil && p.key == key }
