package core_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/headgate/headgate/core"
)

// standingClock is a clock that a test sets.
type standingClock struct{ now time.Time }

func (c *standingClock) Now() time.Time { return c.now }

func ExampleNewMemory() {
	clock := &standingClock{time.Date(2025, 11, 21, 9, 0, 0, 0, time.UTC)}
	gate, err := core.NewMemory(core.Config{Clock: clock})
	if err != nil {
		log.Fatal(err)
	}
	api, err := core.NewPolicy(core.PolicyConfig{
		Name:      "api",
		Algorithm: core.TokenBucket{Rate: 10, Per: time.Minute, Burst: 2},
	})
	if err != nil {
		log.Fatal(err)
	}
	user, err := core.NewKey("acme", "user-1")
	if err != nil {
		log.Fatal(err)
	}

	charge := core.Charge{Policy: api, Key: user, Cost: 1}
	for range 3 {
		d, err := gate.Decide(context.Background(), charge)
		if err != nil {
			log.Fatal(err)
		}
		wait := d.RetryAfter()
		fmt.Println(d.Allowed, d.At(0).Remaining, wait)
	}
	clock.now = clock.now.Add(6 * time.Second)
	d, err := gate.Decide(context.Background(), charge)
	fmt.Println(d.Allowed, err)
	// Output:
	// true 1 0s
	// true 0 0s
	// false 0 6s
	// true <nil>
}

// A request that one policy denies spends nothing of the others.
func ExampleGate_Decide() {
	clock := &standingClock{time.Date(2025, 11, 21, 9, 0, 0, 0, time.UTC)}
	gate, err := core.NewMemory(core.Config{Clock: clock})
	if err != nil {
		log.Fatal(err)
	}
	policy := func(name string, limit core.Algorithm) *core.Policy {
		p, err := core.NewPolicy(core.PolicyConfig{Name: name, Algorithm: limit})
		if err != nil {
			log.Fatal(err)
		}
		return p
	}
	requests, tokens := policy("requests", core.PerMinute(100)), policy("tokens", core.PerMinute(1000))
	tenant, err := core.NewKey("acme")
	if err != nil {
		log.Fatal(err)
	}

	for _, n := range []int64{800, 500} {
		d, err := gate.Decide(context.Background(),
			core.Charge{Policy: requests, Key: tenant, Cost: 1},
			core.Charge{Policy: tokens, Key: tenant, Cost: n})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("allowed:", d.Allowed)
		for i := range d.Len() {
			r := d.At(i)
			fmt.Println(" ", r.Policy.Name(), r.Allowed, r.Remaining, "of", r.Limit, "retry after", r.RetryAfter)
		}
	}
	// Output:
	// allowed: true
	//   requests true 99 of 100 retry after 0s
	//   tokens true 200 of 1000 retry after 0s
	// allowed: false
	//   requests true 99 of 100 retry after 0s
	//   tokens false 200 of 1000 retry after 18s
}

func ExampleGate_Limiter() {
	clock := &standingClock{time.Date(2025, 11, 21, 9, 0, 0, 0, time.UTC)}
	gate, err := core.NewMemory(core.Config{Clock: clock})
	if err != nil {
		log.Fatal(err)
	}
	login, err := core.NewPolicy(core.PolicyConfig{Name: "login", Algorithm: core.PerHour(5)})
	if err != nil {
		log.Fatal(err)
	}
	limiter, err := gate.Limiter(login)
	if err != nil {
		log.Fatal(err)
	}
	visitor, err := core.NewKey("192.0.2.7")
	if err != nil {
		log.Fatal(err)
	}

	allowed := 0
	for range 8 {
		d, err := limiter.Allow(context.Background(), visitor)
		if err != nil {
			log.Fatal(err)
		}
		if d.Allowed {
			allowed++
		}
	}
	fmt.Println(allowed)
	// Output: 5
}
