package admin

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// rates are the minutes of policies and semaphores.
type rates struct {
	minutes sync.Map // *core.Policy or *semaphore.Semaphore to *minute
	n       atomic.Int64
	others  minute // of those beyond maxMinutes
}

const maxMinutes = 256

// minute is what one policy or semaphore has admitted and denied.
type minute struct {
	name             string
	shadow           bool // what it denies is admitted
	admitted, denied counter
}

func (s *minute) count(now time.Time, denied bool) {
	if denied {
		s.denied.add(now)
	} else {
		s.admitted.add(now)
	}
}

// of returns the minute of a policy or a semaphore.
func (r *rates) of(id any, name string, shadow bool) *minute {
	if s, ok := r.minutes.Load(id); ok {
		return s.(*minute)
	}
	if r.n.Add(1) > maxMinutes {
		r.n.Add(-1)
		return &r.others
	}
	s, found := r.minutes.LoadOrStore(id, &minute{name: name, shadow: shadow})
	if found {
		r.n.Add(-1)
	}
	return s.(*minute)
}

// rate is a minute of one name.
type rate struct {
	Name            string
	Shadow          bool
	Denied          [history]int64 // in each second
	Denials, Admits int64          // in the minute
	DeniedNow       int64          // in the last whole second
}

// refusals returns the denials in the minute, or -1 for one in Shadow, which refuses nobody.
func (r *rate) refusals() int64 {
	if r.Shadow {
		return -1
	}
	return r.Denials
}

// read returns a minute of each name, those that refused most first. Policies of one name, and
// those beyond maxMinutes, are taken together.
func (r *rates) read(now time.Time) []rate {
	byName := make(map[string]*rate)
	see := func(s *minute) {
		name := cmp.Or(s.name, "all others")
		one := byName[name]
		if one == nil {
			one = &rate{Name: name, Shadow: s.shadow}
			byName[name] = one
		}
		for i, n := range s.denied.read(now) {
			one.Denied[i] += n
			one.Denials += n
		}
		one.Admits += s.admitted.minute(now)
	}
	r.minutes.Range(func(_, s any) bool { see(s.(*minute)); return true })
	see(&r.others)
	var all []rate
	for _, one := range byName {
		if one.Denials+one.Admits == 0 {
			continue
		}
		one.DeniedNow = one.Denied[history-1]
		all = append(all, *one)
	}
	slices.SortFunc(all, func(a, b rate) int {
		return cmp.Or(cmp.Compare(b.refusals(), a.refusals()), cmp.Compare(a.Name, b.Name))
	})
	return all
}
