package plans

import (
	"context"
	"sync"
	"time"
)

// overrides keeps the overrides of tenants, and tells all processes of changes.
type overrides interface {
	// get returns an override as it is stored, how long it still holds, 0 if it has no end, and
	// whether there is one.
	get(ctx context.Context, tenant string) (text string, left time.Duration, is bool, err error)
	// change sets or deletes an override, or only tells all processes that something else about the
	// tenant has changed. It reports whether there was an override to delete. It reports false for one
	// to set, and changes nothing, if until is over by the clock of the store.
	change(ctx context.Context, tenant string, o operation, text string, until time.Time) (bool, error)
	// healthy reports false while get would fail.
	healthy() bool
}

// operation is how an override changes, as the script override has it.
type operation string

const (
	setOverride    operation = "set"
	deleteOverride operation = "delete"
	touchTenant    operation = "touch"
)

// memory keeps overrides in this process. Like those in Redis they are configuration, so only those
// who set them bound their number.
type memory struct {
	mu   sync.Mutex
	kept map[string]keptOverride
}

type keptOverride struct {
	text  string
	until time.Time
}

func newMemory() *memory { return &memory{kept: make(map[string]keptOverride)} }

func (m *memory) get(_ context.Context, tenant string) (string, time.Duration, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	o, is := m.kept[tenant]
	if o.until.IsZero() {
		return o.text, 0, is, nil
	}
	left := time.Until(o.until)
	if left <= 0 {
		delete(m.kept, tenant)
		return "", 0, false, nil
	}
	return o.text, left, true, nil
}

func (m *memory) change(
	_ context.Context, tenant string, o operation, text string, until time.Time,
) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	before, was := m.kept[tenant]
	switch o {
	case setOverride:
		m.kept[tenant] = keptOverride{text, until}
		return true, nil
	case deleteOverride:
		delete(m.kept, tenant)
		return was && (before.until.IsZero() || time.Now().Before(before.until)), nil
	}
	return false, nil
}

func (m *memory) healthy() bool { return true }
