package main

import (
	"cmp"
	"context"
	"math"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/stored"
)

// meter makes rates of what is read one time after the other.
type meter struct {
	path    string           // of the keys that are watched; empty for all
	known   map[string]named // buckets by their labels
	limits  map[string]core.Algorithm
	before  map[string]int64 // units used, by the key of Redis and the limit
	at      time.Time        // of before; zero at first
	scripts int64
}

func newMeter(path string) *meter { return &meter{path: path, before: make(map[string]int64)} }

// knows tells the meter the limits of a plan.
func (m *meter) knows(limits map[string]core.Algorithm) {
	m.limits, m.known = limits, labelsOf(limits)
}

// watchView is what was read once.
type watchView struct {
	At      stamp        `json:"at"`
	Error   string       `json:"error,omitempty"`
	Scripts *float64     `json:"scripts_per_second"` // null if INFO is forbidden, and at first
	Keys    int          `json:"keys_read"`
	Cut     bool         `json:"more_keys"`
	Limits  []watchLimit `json:"limits"`
	Slots   []watchSlots `json:"semaphores"`
}

type watchLimit struct {
	Policy    string   `json:"policy"`
	Label     string   `json:"label,omitempty"`
	Algorithm string   `json:"algorithm"`
	Keys      int      `json:"keys"`
	Used      *int64   `json:"used"`             // null for a bucket of an unknown limit
	PerSecond *float64 `json:"units_per_second"` // null as Used, and at first
	Full      *int     `json:"keys_without_room"`
	Blocked   int      `json:"keys_blocked"`
}

type watchSlots struct {
	Semaphore string  `json:"semaphore"`
	Key       string  `json:"key"`
	Used      int64   `json:"used"`
	Limit     int64   `json:"limit"`
	Waiting   int64   `json:"waiting"`
	Oldest    seconds `json:"held_for_at_most_seconds"`
}

// view returns what a census shows.
func (m *meter) view(c *stored.Census, scripts int64, scriptsKnown bool) *watchView {
	v := &watchView{
		At: stamp(c.At), Keys: c.Keys, Cut: c.Cut, Limits: []watchLimit{}, Slots: []watchSlots{},
	}
	took := c.At.Sub(m.at).Seconds()
	if m.at.IsZero() {
		took = 0
	}
	if scriptsKnown && took > 0 && scripts >= m.scripts {
		rate := float64(scripts-m.scripts) / took
		v.Scripts = &rate
	}
	m.scripts = scripts
	rows, now := make(map[string]*watchLimit), make(map[string]int64)
	for i := range c.Entries {
		m.add(rows, now, &c.Entries[i], took)
	}
	for _, row := range rows {
		v.Limits = append(v.Limits, *row)
	}
	slices.SortFunc(v.Limits, func(a, b watchLimit) int {
		return cmp.Or(
			cmp.Compare(a.Policy, b.Policy), cmp.Compare(a.Label, b.Label),
			cmp.Compare(a.Algorithm, b.Algorithm),
		)
	})
	for i := range c.Slots {
		v.Slots = append(v.Slots, m.slotRows(&c.Slots[i], c.At)...)
	}
	m.before, m.at = now, c.At
	return v
}

// add counts an entry.
func (m *meter) add(
	rows map[string]*watchLimit, now map[string]int64, e *stored.Entry, took float64,
) {
	policy, limit, refill := e.Policy, int64(0), 0.0
	used, known := e.Used, e.Known
	if e.Bucket != nil {
		if n, ok := m.known[e.Label]; ok {
			policy = n.policy
			limit, used, known = usedOf(e.Bucket, n.limit)
			refill = refillOf(n.limit)
		}
	} else if a, ok := m.limits[policy]; ok {
		limit = capacityOf(a)
	}
	id := policy + " " + e.Label + " " + e.Algorithm
	row := rows[id]
	if row == nil {
		row = &watchLimit{Policy: policy, Label: e.Label, Algorithm: e.Algorithm}
		rows[id] = row
	}
	row.Keys++
	if e.Blocked > 0 {
		row.Blocked++
	}
	if !known {
		return
	}
	row.Used = plus(row.Used, used)
	if limit > 0 {
		full := 0
		if used >= limit {
			full = 1
		}
		row.Full = plus(row.Full, full)
	}
	key := e.Redis + " " + id
	now[key] = used
	if took > 0 {
		left := max(0, float64(m.before[key])-refill*took) // what is left of the units of before
		row.PerSecond = plus(row.PerSecond, max(0, math.Round(float64(used)-left))/took)
	}
}

func plus[T int | int64 | float64](sum *T, n T) *T {
	if sum != nil {
		n += *sum
	}
	return &n
}

// refillOf returns how many units of a bucket come back in a second.
func refillOf(a core.Algorithm) float64 {
	switch l := a.(type) {
	case core.TokenBucket:
		if l.Per > 0 {
			return float64(l.Rate) / l.Per.Seconds()
		}
	case core.LeakyBucket:
		return float64(l.Rate) / l.Per.Seconds()
	}
	return 0
}

// capacityOf returns how many units of a limit an untouched key has, or 0 if use is not known.
func capacityOf(a core.Algorithm) int64 {
	switch l := a.(type) {
	case core.FixedWindow:
		return l.Limit
	case core.Calendar:
		return l.Limit
	case core.SlidingWindow:
		if l.Buckets == 0 {
			return l.Limit
		}
	}
	return 0
}

// slotRows returns the caps of a semaphore at, above and below the path.
func (m *meter) slotRows(s *stored.Slots, at time.Time) (rows []watchSlots) {
	oldest := make(map[string]time.Duration)
	for i := range s.Holders {
		for _, l := range s.Holders[i].Levels {
			oldest[l.Node] = max(oldest[l.Node], at.Sub(s.Holders[i].Since))
		}
	}
	for _, c := range s.Caps() {
		if m.path != "" && !stored.Within(c.Node, m.path) && !stored.Within(m.path, c.Node) {
			continue
		}
		rows = append(rows, watchSlots{
			s.Semaphore, formatPath(c.Node), c.Used, c.Limit, c.Waiting, seconds(oldest[c.Node]),
		})
	}
	return rows
}

var scriptStats = regexp.MustCompile(`(?m)^cmdstat_eval(?:sha)?:calls=(\d+)`)

// scriptCalls returns how many scripts the servers have run, and whether they tell.
func scriptCalls(ctx context.Context, l *link) (calls int64, known bool) {
	var mu sync.Mutex // ForEachMaster calls side by side
	add := func(ctx context.Context, one *redis.Client) error {
		info, err := one.Info(ctx, "commandstats").Result()
		mu.Lock()
		defer mu.Unlock()
		for _, found := range scriptStats.FindAllStringSubmatch(info, -1) {
			n, _ := strconv.ParseInt(found[1], 10, 64) // 19 digits at most, as Redis counts
			calls += n
		}
		return err
	}
	var err error
	switch c := l.client.(type) {
	case *redis.ClusterClient:
		err = c.ForEachMaster(ctx, add)
	case *redis.Client:
		err = add(ctx, c)
	}
	return calls, err == nil
}
