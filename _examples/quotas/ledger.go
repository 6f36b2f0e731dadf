package main

import (
	"context"
	"sync"
	"time"

	"github.com/headgate/headgate/core"
)

// ledger stands for the database of the business, which knows what each tenant has used.
type ledger struct {
	mu      sync.Mutex
	entries map[string][]entry // by tenant
}

type entry struct {
	at    time.Time
	units int64
}

func newLedger() *ledger { return &ledger{entries: make(map[string][]entry)} }

// add writes down what a tenant has used.
func (l *ledger) add(tenant string, units int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entries[tenant] = append(l.entries[tenant], entry{time.Now(), units})
}

// used returns what a tenant has used in a period. It is for core.PolicyConfig.Ledger.
func (l *ledger) used(_ context.Context, key core.Key, period core.Span) (sum int64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.entries[key.Parts()[0]] {
		if !e.at.Before(period.From) && e.at.Before(period.Until) {
			sum += e.units
		}
	}
	return sum, nil
}
