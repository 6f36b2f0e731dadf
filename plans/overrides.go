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
	// set reports false, and changes nothing, if until is over by the clock of the store.
	set(ctx context.Context, tenant, text string, until time.Time) (bool, error)
	remove(ctx context.Context, tenant string) (was bool, err error)
	// touch tells all processes that something else about a tenant has changed.
	touch(ctx context.Context, tenant string) error
	// healthy reports false while get would fail.
	healthy() bool
}

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

func (m *memory) set(_ context.Context, tenant, text string, until time.Time) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.kept[tenant] = keptOverride{text, until}
	return true, nil
}

func (m *memory) remove(_ context.Context, tenant string) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	o, was := m.kept[tenant]
	delete(m.kept, tenant)
	return was && (o.until.IsZero() || time.Now().Before(o.until)), nil
}

func (m *memory) touch(context.Context, string) error { return nil }

func (m *memory) healthy() bool { return true }
