package main

import (
	"fmt"
	"io"
	"math"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/algorithm"
	"github.com/headgate/headgate/internal/inspect"
	"github.com/headgate/headgate/internal/stored"
)

// slotsView is a semaphore at the keys of a subject.
type slotsView struct {
	Semaphore string       `json:"semaphore"`
	Caps      []capView    `json:"caps"`
	Holders   []holderView `json:"holders"`
	Waiters   []waiterView `json:"waiters"`
}

type capView struct {
	Key     string `json:"key"`
	Used    int64  `json:"used"`
	Limit   int64  `json:"limit"`
	Waiting int64  `json:"waiting"`
}

type holderView struct {
	ID     string            `json:"id"`
	Key    string            `json:"key"`
	Weight int64             `json:"weight"`
	Token  int64             `json:"token"`
	Since  stamp             `json:"since"`
	Left   seconds           `json:"lease_left_seconds"`
	Meta   map[string]string `json:"meta"`
	held   time.Duration
}

type waiterView struct {
	ID     string            `json:"id"`
	Key    string            `json:"key"`
	Place  int               `json:"place"`
	Weight int64             `json:"weight"`
	Left   seconds           `json:"place_left_seconds"`
	Meta   map[string]string `json:"meta"`
}

// slotsOf returns the holders and the waiters at a path or below it, and the caps at, above and
// below it.
func slotsOf(path string, s *stored.Slots, now time.Time) slotsView {
	v := slotsView{
		Semaphore: s.Semaphore, Caps: []capView{}, Holders: []holderView{}, Waiters: []waiterView{},
	}
	for i := range s.Holders {
		h := &s.Holders[i]
		if stored.Within(h.Node(), path) {
			v.Holders = append(v.Holders, holderView{
				h.ID, formatPath(h.Node()), h.Levels[len(h.Levels)-1].Weight, h.Token, stamp(h.Since),
				seconds(h.Left), metadata(h.Metadata), max(0, now.Sub(h.Since)),
			})
		}
	}
	for i := range s.Waiters {
		w := &s.Waiters[i]
		if stored.Within(w.Node(), path) {
			v.Waiters = append(v.Waiters, waiterView{
				w.ID, formatPath(w.Node()), w.Place, w.Levels[len(w.Levels)-1].Weight,
				seconds(w.Left), metadata(w.Metadata),
			})
		}
	}
	for _, c := range s.Caps() {
		if stored.Within(c.Node, path) || stored.Within(path, c.Node) {
			v.Caps = append(v.Caps, capView{formatPath(c.Node), c.Used, c.Limit, c.Waiting})
		}
	}
	return v
}

func (v *slotsView) print(out io.Writer) {
	fmt.Fprintf(out, "semaphore %s\n", v.Semaphore)
	t := newTable(out, "CAP", "USED", "WAITING")
	for _, c := range v.Caps {
		t.add(c.Key, fmt.Sprintf("%s of %s", inspect.Number(c.Used), inspect.Number(c.Limit)), c.Waiting)
	}
	_ = t.Flush()
	if len(v.Holders) > 0 {
		t = newTable(out, "HOLDER", "KEY", "WEIGHT", "HELD FOR", "LEASE ENDS IN", "TOKEN", "METADATA")
		for _, h := range v.Holders {
			t.add(h.ID, h.Key, h.Weight, span(h.held), span(time.Duration(h.Left)), h.Token, joined(h.Meta))
		}
		_ = t.Flush()
	}
	if len(v.Waiters) > 0 {
		t = newTable(out, "WAITER", "KEY", "WEIGHT", "PLACE", "LOSES IT IN", "METADATA")
		for _, w := range v.Waiters {
			t.add(w.ID, w.Key, w.Weight, w.Place, span(time.Duration(w.Left)), joined(w.Meta))
		}
		_ = t.Flush()
	}
}

// usedOf returns the units of a bucket that are used, under its limit.
func usedOf(b *stored.Bucket, of core.Algorithm) (limit, used int64, ok bool) {
	var bucket *algorithm.TokenBucket
	var err error
	switch l := of.(type) {
	case core.TokenBucket:
		bucket, err = algorithm.NewTokenBucket(l.Rate, l.Per, l.Burst)
	case core.LeakyBucket:
		bucket, err = algorithm.NewLeakyBucket(l.Rate, l.Per, l.Capacity)
	default:
		return 0, 0, false
	}
	if err != nil {
		return 0, 0, false
	}
	level, part := b.Level, b.Part
	if part > 0 && b.Denominator != bucket.Denominator() { // it was charged under another limit
		level, part = level+1, 0
	}
	r := bucket.Read([]int64{level, part, 0}, algorithm.Cost{}, 0)
	return r.Limit, r.Used, r.Used != math.MaxInt64
}
