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

// sampler remembers which lines were written lately.
type sampler struct {
	every time.Duration
	most  int // of one line

	pending atomic.Int64 // lines that are remembered

	mu      sync.Mutex
	samples map[subject]*sample
	order   []*sample    // the oldest first
	written map[line]int // how many samples a line has
	beyond  map[line]int64
}

type sample struct {
	repetition // the first is not counted
	since      time.Time
}

func (s *sampler) init(every time.Duration, most int) {
	s.every, s.most = every, most
	s.samples, s.written, s.beyond = make(map[subject]*sample), make(map[line]int), make(map[line]int64)
}

// pends reports whether a line is remembered.
func (s *sampler) pends() bool { return s.pending.Load() > 0 }

// first reports whether a line is to be written, with a key as show returns it. It counts the line if
// not.
func (s *sampler) first(at subject, now time.Time, show func() string) (key string, first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.samples[at]; e != nil {
		e.times++
		return "", false
	}
	if s.written[at.line] >= s.most {
		s.beyond[at.line]++
		return "", false
	}
	e := &sample{repetition: repetition{subject: at, key: show()}, since: now}
	s.samples[at] = e
	s.written[at.line]++
	s.order = append(s.order, e)
	s.pending.Add(1)
	return e.key, true
}

// due forgets the lines that were written long enough ago, or all, and returns their repetitions. A clock
// that goes back ends a line early.
func (s *sampler) due(now time.Time, all bool) []repetition {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for n < len(s.order) && (all || now.Sub(s.order[n].since) >= s.every || now.Before(s.order[n].since)) {
		n++
	}
	return s.forget(n)
}

// forget forgets the n oldest lines. The lock is held.
func (s *sampler) forget(n int) (all []repetition) {
	if n == 0 {
		return nil
	}
	for _, e := range s.order[:n] {
		delete(s.samples, e.subject)
		if s.written[e.line]--; s.written[e.line] == 0 {
			delete(s.written, e.line)
		}
		if e.times > 0 {
			all = append(all, e.repetition)
		}
	}
	clear(s.order[:n])
	s.order = s.order[n:]
	s.pending.Add(int64(-n))
	for l, times := range s.beyond {
		all = append(all, repetition{subject: subject{line: l}, times: times})
	}
	clear(s.beyond)
	return all
}
