package outbound

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/core"
)

// knownFor is for how long a cooldown that this process knows is not asked for again: an operator
// may have lifted it.
const knownFor = time.Second

// maxMarks bounds what is known of keys. With more of them all is forgotten, which costs questions.
const maxMarks = 1000

// known are the cooldowns that this process knows. The zero value has none.
type known struct {
	some atomic.Bool // there are any
	mu   sync.Mutex
	of   map[core.Key]rest
}

// rest is what is known of one cooldown.
type rest struct {
	told, until time.Time
	spent       bool
}

// add notes for how long a key cools yet, and why. What a failure mode has decided is not known:
// Redis may answer again.
func (k *known) add(key core.Key, lasts time.Duration, spent bool, d *core.Decision) {
	if d.Cause != nil || lasts <= 0 {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.of == nil || len(k.of) >= maxMarks {
		k.of = make(map[core.Key]rest)
	}
	now := time.Now()
	until := now.Add(lasts)
	if r, ok := k.of[key]; ok && r.until.After(until) && now.Sub(r.told) <= knownFor {
		return // answers may overtake each other
	}
	k.of[key] = rest{told: now, until: until, spent: spent}
	k.some.Store(true)
}

// rest returns for how long a key cools as far as this process knows, and why.
func (k *known) rest(key core.Key) (left time.Duration, spent bool) {
	if !k.some.Load() {
		return 0, false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	r, ok := k.of[key]
	if !ok {
		return 0, false
	}
	left = time.Until(r.until)
	if left <= 0 {
		delete(k.of, key)
		k.some.Store(len(k.of) > 0)
	}
	if time.Since(r.told) > knownFor {
		return 0, false
	}
	return max(0, left), r.spent
}

// spent reports why a key cools for that long, and whether that is known. A cooldown that lasts
// longer than the one that is known may have another reason.
func (k *known) spent(key core.Key, lasts time.Duration) (spent, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	r, ok := k.of[key]
	return r.spent, ok && time.Until(r.until) > lasts-shortestCooldown
}

// marks are times of keys. The zero value has none.
type marks struct {
	some atomic.Bool // there are any
	mu   sync.Mutex
	at   map[core.Key]time.Time
}

func (m *marks) add(key core.Key, at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.at == nil || len(m.at) >= maxMarks {
		m.at = make(map[core.Key]time.Time)
	}
	m.at[key] = at
	m.some.Store(true)
}

// within reports whether a key has a mark that is at most that old.
func (m *marks) within(key core.Key, age time.Duration) bool {
	if !m.some.Load() {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	at, ok := m.at[key]
	return ok && time.Since(at) <= age
}

// take removes a mark that was made before a time, and reports whether there was one.
func (m *marks) take(key core.Key, before time.Time) bool {
	if !m.some.Load() {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	at, ok := m.at[key]
	if ok = ok && at.Before(before); ok {
		delete(m.at, key)
		m.some.Store(len(m.at) > 0)
	}
	return ok
}
