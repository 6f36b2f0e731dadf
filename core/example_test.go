package core_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/once"
)

// All processes that use the same Redis share the limits.
func ExampleNewRedis() {
	client := redis.NewClient(&redis.Options{
		Addr:                  "127.0.0.1:6379",
		ContextTimeoutEnabled: true, // a decision ends at its deadline
		DialerRetries:         1,    // the Gate has a circuit breaker of its own
	})
	gate := core.Must(core.NewRedis(client, core.Config{Replicas: 2}))
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
	gate := core.Must(core.NewMemory(core.Config{Clock: clock.Now}))
	api := core.Must(core.NewPolicy(core.PolicyConfig{
		Name:      "api",
		Algorithm: core.TokenBucket{Rate: 10, Per: time.Minute, Burst: 2},
	}))
	user := core.Must(core.NewKey("acme", "user-1"))

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
	gate := core.Must(core.NewMemory(core.Config{Clock: clock.Now}))
	requests := core.Must(core.NewPolicy(core.PolicyConfig{Name: "requests", Algorithm: core.PerMinute(100)}))
	tokens := core.Must(core.NewPolicy(core.PolicyConfig{Name: "tokens", Algorithm: core.PerMinute(1000)}))
	tenant := core.Must(core.NewKey("acme"))

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
	gate := core.Must(core.NewMemory(core.Config{Clock: new(core.ManualClock).Now}))
	login := core.Must(core.NewPolicy(core.PolicyConfig{Name: "login", Algorithm: core.PerHour(5)}))
	limiter := core.Must(core.NewLimiter(gate, login))
	visitor := core.Must(core.NewKey("192.0.2.7"))

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

// Three failed logins within ten minutes block a user for an hour.
func ExampleBlock() {
	ctx := context.Background()
	gate := core.Must(core.NewMemory(core.Config{}))
	bans := core.Must(core.NewPolicy(core.PolicyConfig{Name: "bans", Algorithm: core.Block{
		Strikes: 3, Within: 10 * time.Minute, For: time.Hour, Most: 24 * time.Hour,
	}}))
	user := core.Must(core.NewKey("user-1"))
	for range 3 { // each strike costs 1
		if _, err := gate.Decide(ctx, core.Charge{Policy: bans, Key: user, Cost: 1}); err != nil {
			log.Fatal(err)
		}
	}
	d, err := gate.Decide(ctx, core.Charge{Policy: bans, Key: user, Cost: core.NoCost}) // only asks
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(d.Allowed, d.RetryAfter().Round(time.Minute))
	// Output: false 1h0m0s
}

// The event of a webhook is handled once, however often it is sent.
func ExampleOnce() {
	ctx := context.Background()
	gate := core.Must(core.NewMemory(core.Config{}))
	events := core.Must(once.New(gate, once.Config{Name: "events", Window: 24 * time.Hour}))
	id := core.Must(core.NewKey("evt_1"))
	for range 3 {
		err := events.Do(ctx, id, time.Second, func(context.Context) error {
			fmt.Println("handled")
			return nil
		})
		if errors.Is(err, once.ErrDone) {
			fmt.Println("done already")
		} else if err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// handled
	// done already
	// done already
}

// Charge.Limit is for callers that know the limit already, for example from a verified token. The
// key may then be a hash.
func ExampleCharge_limit() {
	gate := core.Must(core.NewMemory(core.Config{Clock: new(core.ManualClock).Now}))
	api := core.Must(core.NewPolicy(core.PolicyConfig{Name: "api", Algorithm: core.PerMinute(60)}))
	key := core.Must(core.NewKey("Zm9vYmFy"))
	// nil means the policy's limit.
	for _, limit := range []core.Algorithm{core.PerMinute(1000), nil} {
		charge := core.Charge{Policy: api, Key: key, Cost: 1, Limit: limit}
		d, err := gate.Decide(context.Background(), charge)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(d.At(0).Remaining, "of", d.At(0).Limit)
	}
	// Output:
	// 999 of 1000
	// 58 of 60
}

// A Calendar follows a customer's billing periods. Redis's clock decides which period it is.
func ExampleCalendar() {
	clock := core.NewManualClock(time.Date(2026, 11, 22, 9, 0, 0, 0, time.UTC))
	gate := core.Must(core.NewMemory(core.Config{Clock: clock.Now}))
	plan := core.Must(core.NewPolicy(core.PolicyConfig{Name: "plan", Algorithm: core.Calendar{
		Limit: 10_000, Every: core.PeriodMonth, In: time.UTC,
		Anchor: time.Date(2026, 1, 31, 0, 0, 0, 0, time.UTC),
	}}))
	tenant := core.Must(core.NewKey("acme"))
	d, err := gate.Decide(context.Background(), core.Charge{Policy: plan, Key: tenant, Cost: 1})
	if err != nil {
		log.Fatal(err)
	}
	end := clock.Now().UTC().Add(d.At(0).ResetAfter)
	fmt.Println("the period ends on", end.Format(time.DateOnly))
	// Output: the period ends on 2026-11-30
}

// SpendUpTo takes n units, or as many as there are.
func ExampleGate_SpendUpTo() {
	gate := core.Must(core.NewMemory(core.Config{Clock: new(core.ManualClock).Now}))
	mails := core.Must(core.NewPolicy(core.PolicyConfig{Name: "mails", Algorithm: core.PerHour(100)}))
	tenant := core.Must(core.NewKey("acme"))
	charge := core.Charge{Policy: mails, Key: tenant, Cost: 1}
	for range 3 {
		granted, d, err := gate.SpendUpTo(context.Background(), 60, charge)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(granted, d.Allowed)
	}
	// Output:
	// 60 true
	// 40 true
	// 0 false
}

// A customer buys more of this month's quota. The notice of it may come twice.
func ExampleGate_Adjust() {
	gate := core.Must(core.NewMemory(core.Config{}))
	month := core.Calendar{Limit: 1000, Every: core.PeriodMonth, In: time.UTC}
	tokens := core.Must(core.NewPolicy(core.PolicyConfig{
		Name: "tokens", Algorithm: month, Raisable: true,
	}))
	acme, ctx := core.Must(core.NewKey("acme")), context.Background()
	thisMonth, err := month.Period(time.Now())
	if err != nil {
		fmt.Println(err)
		return
	}
	for range 2 {
		applied, err := gate.Adjust(ctx, core.Adjustment{
			ID: "invoice-4711", Policy: tokens, Key: acme, Raise: 500, Until: thisMonth.Until,
		})
		fmt.Println(applied, err)
	}
	d, err := gate.Peek(ctx, core.Charge{Policy: tokens, Key: acme, Cost: core.NoCost})
	if err != nil {
		fmt.Println(err)
		return
	}
	r := d.At(0)
	fmt.Println(r.Limit, r.Raised)
	// Output:
	// true <nil>
	// false <nil>
	// 1500 500
}

// The user's own database knows what was used before the Gate has seen the key.
func ExamplePolicyConfig_ledger() {
	gate := core.Must(core.NewMemory(core.Config{}))
	tokens := core.Must(core.NewPolicy(core.PolicyConfig{
		Name: "tokens", Algorithm: core.Calendar{Limit: 1000, Every: core.PeriodMonth, In: time.UTC},
		OnFailure: core.FailClosed,
		Ledger: func(ctx context.Context, key core.Key, period core.Span) (used int64, err error) {
			return 900, nil // SELECT sum(tokens) ... WHERE at >= period.From AND at < period.Until
		},
	}))
	acme, ctx := core.Must(core.NewKey("acme")), context.Background()
	d, err := gate.Decide(ctx, core.Charge{Policy: tokens, Key: acme, Cost: 40})
	if err != nil {
		fmt.Println(err)
		return
	}
	r := d.At(0)
	fmt.Println(d.Allowed, r.Used, r.Remaining)
	// Output: true 940 60
}

// Reserve spends an estimate. Settle corrects it when the real cost is known, such as the tokens of
// a language model.
func ExampleGate_Reserve() {
	gate := core.Must(core.NewMemory(core.Config{Clock: new(core.ManualClock).Now}))
	tokens := core.Must(core.NewPolicy(core.PolicyConfig{Name: "tokens", Algorithm: core.PerHour(10_000)}))
	user := core.Must(core.NewKey("acme", "user-1"))
	ctx := context.Background()
	charge := core.Charge{Policy: tokens, Key: user, Cost: 2000}

	r, d, err := gate.Reserve(ctx, 0, charge) // 0: now or denied
	if err != nil {
		log.Fatal(err)
	}
	if !d.Allowed {
		return // r is nil
	}
	fmt.Println("remaining after Reserve:", d.At(0).Remaining)
	if err := r.Settle(ctx, 1234); err != nil {
		log.Fatal(err)
	}

	d, err = gate.Peek(ctx, charge)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("remaining after Settle:", d.At(0).Remaining)
	// Output:
	// remaining after Reserve: 8000
	// remaining after Settle: 8766
}

// Settle and Cancel run to their end although the context is cancelled. A deferred call may
// therefore use the context of the request, which ends when the client leaves.
func ExampleReservation_Settle_cancelledContext() {
	gate := core.Must(core.NewMemory(core.Config{Clock: new(core.ManualClock).Now}))
	tokens := core.Must(core.NewPolicy(core.PolicyConfig{Name: "tokens", Algorithm: core.PerHour(10_000)}))
	user := core.Must(core.NewKey("user-1"))
	charge := core.Charge{Policy: tokens, Key: user, Cost: 2000}

	serve := func(ctx context.Context, clientLeaves func()) {
		r, _, err := gate.Reserve(ctx, 0, charge)
		if err != nil {
			log.Fatal(err)
		}
		used := int64(0)
		defer func() {
			if err := r.Settle(ctx, used); err != nil { // r may be nil: then Settle does nothing
				log.Print(err)
			}
		}()
		used = 300
		clientLeaves()
	}
	ctx, cancel := context.WithCancel(context.Background())
	serve(ctx, cancel)

	d, err := gate.Peek(context.Background(), charge)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(d.At(0).Used)
	// Output: 300
}

// Wait blocks until there is room. It returns ErrDenied at once if the deadline of the context
// comes first.
func ExampleLimiter_Wait() {
	gate := core.Must(core.NewMemory(core.Config{Clock: new(core.ManualClock).Now}))
	calls := core.Must(core.NewPolicy(core.PolicyConfig{
		Name:      "calls",
		Algorithm: core.LeakyBucket{Rate: 1, Per: time.Minute, Capacity: 10},
	}))
	limiter := core.Must(core.NewLimiter(gate, calls))
	upstream := core.Must(core.NewKey("payments"))

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for range 2 {
		_, err := limiter.Wait(ctx, upstream)
		switch {
		case errors.Is(err, core.ErrDenied):
			fmt.Println("denied, too late:", errors.Is(err, context.DeadlineExceeded))
		case err != nil:
			log.Fatal(err)
		default:
			fmt.Println("go on")
		}
	}
	// Output:
	// go on
	// denied, too late: true
}

// An event tells that a tenant has used 80 % of its day.
func ExampleThresholdEvent() {
	ctx := context.Background()
	events := make(chan string, 10)
	gate := core.Must(core.NewMemory(core.Config{Observe: func(_ context.Context, e core.Event) {
		if at, ok := e.(*core.ThresholdEvent); ok {
			events <- fmt.Sprintf("%s: %d of %d, %d %%", at.Key, at.Used, at.Limit, at.Percent)
		}
	}}))
	day := core.Must(core.NewPolicy(core.PolicyConfig{
		Name:       "day",
		Algorithm:  core.Calendar{Limit: 1000, Every: core.PeriodDay, In: time.UTC},
		Thresholds: []int{80, 100},
	}))
	tenant := core.Must(core.NewKey("acme"))
	if _, err := gate.Decide(ctx, core.Charge{Policy: day, Key: tenant, Cost: 850}); err != nil {
		log.Fatal(err)
	}
	fmt.Println(<-events)
	// Output: {acme}: 850 of 1000, 80 %
}

// A Peek of nothing tells how a key stands.
func ExampleGate_Peek() {
	ctx := context.Background()
	gate := core.Must(core.NewMemory(core.Config{}))
	requests := core.Must(core.NewPolicy(core.PolicyConfig{Name: "requests", Algorithm: core.AnyHour(100)}))
	tokens := core.Must(core.NewPolicy(core.PolicyConfig{
		Name: "tokens", Algorithm: core.Calendar{Limit: 10_000, Every: core.PeriodYear, In: time.UTC},
	}))
	tenant := core.Must(core.NewKey("acme"))
	_, err := gate.Decide(ctx,
		core.Charge{Policy: requests, Key: tenant, Cost: 1},
		core.Charge{Policy: tokens, Key: tenant, Cost: 350})
	if err != nil {
		log.Fatal(err)
	}
	d, err := gate.Peek(ctx,
		core.Charge{Policy: requests, Key: tenant, Cost: core.NoCost},
		core.Charge{Policy: tokens, Key: tenant, Cost: core.NoCost})
	if err != nil {
		log.Fatal(err)
	}
	for _, r := range d.Results() {
		fmt.Println(r.Policy.Name(), r.Used, "of", r.Limit)
	}
	// Output:
	// requests 1 of 100
	// tokens 350 of 10000
}
