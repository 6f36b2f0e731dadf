package admin

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate/core"
)

// refused finds who is refused most, in bounded memory. It keeps two sketches, of the present minute
// and of the one before.
type refused struct {
	mu           sync.Mutex
	since        time.Time // of now
	now, earlier sketch
	earlierSince time.Time
}

// refusal is a key under the policy that denied it.
type refusal struct {
	Policy string
	Key    core.Key
}

// add counts a denial.
func (r *refused) add(who refusal, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.turn(now)
	r.now.add(who)
}

// turn begins a new minute if the present one is over.
func (r *refused) turn(now time.Time) {
	age := now.Sub(r.since)
	if age < time.Minute && age >= 0 {
		return
	}
	r.earlier, r.now = r.now, r.earlier
	r.earlierSince = r.since
	if r.now.clear(); age > 2*time.Minute {
		r.earlier.clear()
		r.earlierSince = now
	}
	r.since = now
}

// count is how often a key was denied. At most Over of them may have been denials of others.
type count struct {
	refusal
	Times, Over int64
}

// standsOut reports whether most of the denials are certainly those of the key.
func (c *count) standsOut() bool { return c.Times-c.Over > c.Over }

// most returns those that were denied most, and since when.
func (r *refused) most(n int, now time.Time) (all []count, since time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.turn(now)
	both := [...]*sketch{&r.now, &r.earlier}
	sum := make(map[refusal]count)
	for _, s := range both {
		for _, c := range s.counts {
			sum[c.refusal] = count{refusal: c.refusal}
		}
	}
	for who, c := range sum {
		for _, s := range both {
			times, over := s.of(who)
			c.Times, c.Over = c.Times+times, c.Over+over
		}
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b count) int {
		return cmp.Or(cmp.Compare(b.Times, a.Times), cmp.Compare(a.Policy, b.Policy),
			cmp.Compare(a.Key.String(), b.Key.String()))
	})
	return all[:min(n, len(all))], cmp.Or(r.earlierSince, r.since)
}

// maxCounts is how many keys a sketch counts.
const maxCounts = 256

// sketch counts the keys that come most, by the algorithm Space-Saving: a key that is not counted
// takes the place of the one that came least, and its count. So a key that is more than one in
// maxCounts of all is always there, and no count is too low.
type sketch struct {
	counts []count
	place  map[refusal]int
}

func (s *sketch) clear() {
	s.counts = s.counts[:0]
	clear(s.place)
}

func (s *sketch) add(who refusal) {
	at, known := s.place[who]
	if !known {
		at = s.seat(who)
	}
	s.counts[at].Times++
}

// seat returns the place of a key that is counted from now on.
func (s *sketch) seat(who refusal) (at int) {
	if s.place == nil {
		s.place = make(map[refusal]int, maxCounts)
	}
	if at = len(s.counts); at < maxCounts {
		s.counts = append(s.counts, count{refusal: who})
	} else {
		at = s.least()
		c := &s.counts[at]
		delete(s.place, c.refusal)
		c.refusal, c.Over = who, c.Times
	}
	s.place[who] = at
	return at
}

// least returns the place of the key that came least.
func (s *sketch) least() (at int) {
	for i := range s.counts {
		if s.counts[i].Times < s.counts[at].Times {
			at = i
		}
	}
	return at
}

// of returns how often a key was denied. A key that is not counted may have been denied as often as
// the one that came least.
func (s *sketch) of(who refusal) (times, over int64) {
	if at, known := s.place[who]; known {
		return s.counts[at].Times, s.counts[at].Over
	}
	if len(s.counts) == maxCounts {
		times = s.counts[s.least()].Times
	}
	return times, times
}
