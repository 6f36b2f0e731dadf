package sloggate

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// line is a kind of line that may repeat with every request.
type line struct {
	level   slog.Level
	message string
	kind    string // of its name: policy, semaphore and others
}

// subject is what a line is about.
type subject struct {
	line
	name string
	path string // of the key, if there is one
}

// repetition is how often a line would have been written again.
type repetition struct {
	subject
	key   string // as it is written
	times int64
}

// sampler remembers which lines were written in a window of time. The first line begins one.
type sampler struct {
	every time.Duration
	most  int // of one kind of line

	pending atomic.Bool // a window has begun

	mu      sync.Mutex
	began   time.Time
	samples map[subject]*repetition
	order   []*repetition // as they were written
	kinds   map[line]int  // how many lines of a kind there were that are no repetition
}

func (s *sampler) init(every time.Duration, most int) {
	s.every, s.most = every, most
	s.samples, s.kinds = make(map[subject]*repetition), make(map[line]int)
}

// first reports whether a line is to be written, with a key as show returns it. It counts the line if
// not.
func (s *sampler) first(at subject, now time.Time, show func() string) (key string, first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.samples[at]; e != nil {
		e.times++
		return "", false
	}
	if s.kinds[at.line]++; s.kinds[at.line] > s.most {
		return "", false
	}
	if len(s.order) == 0 {
		s.began = now
		s.pending.Store(true)
	}
	e := &repetition{subject: at, key: show()}
	s.samples[at] = e
	s.order = append(s.order, e)
	return e.key, true
}

// due ends the window if it is over, or in any case if told to, and returns what was repeated in it. A
// clock that goes back ends it early, but not one that was only read before another caller's.
func (s *sampler) due(now time.Time, ends bool) (all []repetition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if age := now.Sub(s.began); !ends && age < s.every && age >= -time.Second {
		return nil
	}
	for _, e := range s.order {
		if e.times > 0 {
			all = append(all, *e)
		}
	}
	for l, n := range s.kinds {
		if n > s.most {
			all = append(all, repetition{subject: subject{line: l}, times: int64(n - s.most)})
		}
	}
	s.pending.Store(false)
	s.order = nil
	clear(s.samples)
	clear(s.kinds)
	return all
}
