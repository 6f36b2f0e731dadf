package main

import (
	"context"
	"sync"
	"time"

	"github.com/headgate/headgate/core"
)

// database stands for that of the business, which knows what each tenant has bought and used.
type database struct {
	mu     sync.Mutex
	plans  map[string]string  // by tenant
	used   map[string][]usage // by tenant
	bought map[string][]topUp // by tenant
}

type usage struct {
	at    time.Time
	units int64
}

// topUp raises a tenant's quota until a time.
type topUp struct {
	id    string
	units int64
	until time.Time
}

func newDatabase() *database {
	return &database{
		plans: make(map[string]string), used: make(map[string][]usage), bought: make(map[string][]topUp),
	}
}

// planOf returns the plan that a tenant has bought, or "" for the default. It is for
// plans.Config.Resolve.
func (db *database) planOf(_ context.Context, tenant string) (string, error) {
	db.mu.Lock()
	defer db.mu.Unlock()
	return db.plans[tenant], nil
}

func (db *database) setPlan(tenant, plan string) {
	db.mu.Lock()
	defer db.mu.Unlock()
	db.plans[tenant] = plan
}

// addUse writes down what a tenant has used.
func (db *database) addUse(tenant string, units int64) {
	db.mu.Lock()
	defer db.mu.Unlock()
	db.used[tenant] = append(db.used[tenant], usage{time.Now(), units})
}

// usedIn returns what a tenant has used in a period.
func (db *database) usedIn(tenant string, period core.Span) (sum int64) {
	db.mu.Lock()
	defer db.mu.Unlock()
	for _, e := range db.used[tenant] {
		if !e.at.Before(period.From) && e.at.Before(period.Until) {
			sum += e.units
		}
	}
	return sum
}

// buy writes down a top-up, and returns the one that was written down first with its id.
func (db *database) buy(tenant string, t topUp) topUp {
	db.mu.Lock()
	defer db.mu.Unlock()
	for _, other := range db.bought[tenant] {
		if other.id == t.id {
			return other
		}
	}
	db.bought[tenant] = append(db.bought[tenant], t)
	return t
}

// topUps returns those of a tenant that have not ended.
func (db *database) topUps(tenant string) (all []topUp) {
	db.mu.Lock()
	defer db.mu.Unlock()
	for _, t := range db.bought[tenant] {
		if time.Now().Before(t.until) {
			all = append(all, t)
		}
	}
	return all
}
