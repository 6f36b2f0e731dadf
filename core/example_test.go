package core_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
)

// All processes that use the same Redis share the limits.
func ExampleNewRedis() {
	client := redis.NewClient(&redis.Options{
		Addr:                  "127.0.0.1:6379",
		ContextTimeoutEnabled: true, // a decision ends at its deadline
		DialerRetries:         1,    // the Gate has a circuit breaker of its own
	})
	gate, err := core.NewRedis(client, core.Config{Replicas: 2})
	if err != nil {
		log.Fatal(err)
	}
	// NewRedis sends nothing. Ping says in words what is wrong with the connection or the server.
	if err := gate.Ping(context.Background()); err != nil {
		log.Print(err)
	}

	// At shutdown, close the Gate before the client.
	if err := gate.Close(context.Background()); err != nil {
		log.Print(err)
	}
	if err := client.Close(); err != nil {
		log.Print(err)
	}
}

// A Gate in memory with a ManualClock tests a limit without Redis and without sleeping.
func ExampleNewMemory() {
	clock := core.NewManualClock(time.Date(2026, 11, 22, 9, 0, 0, 0, time.UTC))
	gate, err := core.NewMemory(core.Config{Clock: clock.Now})
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
		fmt.Println(d.Allowed, d.At(0).Remaining, d.RetryAfter())
	}
	clock.Advance(6 * time.Second)
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
	clock := core.NewManualClock(time.Date(2026, 11, 22, 9, 0, 0, 0, time.UTC))
	gate, err := core.NewMemory(core.Config{Clock: clock.Now})
	if err != nil {
		log.Fatal(err)
	}
	requests, err := core.NewPolicy(core.PolicyConfig{Name: "requests", Algorithm: core.PerMinute(100)})
	if err != nil {
		log.Fatal(err)
	}
	tokens, err := core.NewPolicy(core.PolicyConfig{Name: "tokens", Algorithm: core.PerMinute(1000)})
	if err != nil {
		log.Fatal(err)
	}
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
		for _, r := range d.Results() {
			fmt.Println(" ", r.Policy.Name(), r.Allowed, r.Remaining, "left, retry after", r.RetryAfter)
		}
	}
	// Output:
	// allowed: true
	//   requests true 99 left, retry after 0s
	//   tokens true 200 left, retry after 0s
	// allowed: false
	//   requests true 99 left, retry after 0s
	//   tokens false 200 left, retry after 18s
}

// A Limiter is the short form for policies that share a key.
func ExampleNewLimiter() {
	gate, err := core.NewMemory(core.Config{Clock: new(core.ManualClock).Now})
	if err != nil {
		log.Fatal(err)
	}
	login, err := core.NewPolicy(core.PolicyConfig{Name: "login", Algorithm: core.PerHour(5)})
	if err != nil {
		log.Fatal(err)
	}
	limiter, err := core.NewLimiter(gate, login)
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
