package core_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/headgate/headgate/core"
)

// Reserve spends an estimate. Settle corrects it when the real cost is known, such as the tokens of
// a language model.
func ExampleGate_Reserve() {
	gate, err := core.NewMemory(core.Config{Clock: new(core.ManualClock).Now})
	if err != nil {
		log.Fatal(err)
	}
	tokens, err := core.NewPolicy(core.PolicyConfig{Name: "tokens", Algorithm: core.PerHour(10_000)})
	if err != nil {
		log.Fatal(err)
	}
	user, err := core.NewKey("acme", "user-1")
	if err != nil {
		log.Fatal(err)
	}
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
	gate, err := core.NewMemory(core.Config{Clock: new(core.ManualClock).Now})
	if err != nil {
		log.Fatal(err)
	}
	tokens, err := core.NewPolicy(core.PolicyConfig{Name: "tokens", Algorithm: core.PerHour(10_000)})
	if err != nil {
		log.Fatal(err)
	}
	user, err := core.NewKey("user-1")
	if err != nil {
		log.Fatal(err)
	}
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
	gate, err := core.NewMemory(core.Config{Clock: new(core.ManualClock).Now})
	if err != nil {
		log.Fatal(err)
	}
	calls, err := core.NewPolicy(core.PolicyConfig{
		Name:      "calls",
		Algorithm: core.LeakyBucket{Rate: 1, Per: time.Minute, Capacity: 10},
	})
	if err != nil {
		log.Fatal(err)
	}
	limiter, err := core.NewLimiter(gate, calls)
	if err != nil {
		log.Fatal(err)
	}
	upstream, err := core.NewKey("payments")
	if err != nil {
		log.Fatal(err)
	}

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
