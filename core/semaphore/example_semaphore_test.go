package semaphore_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
)

// At most 3 streams of a user and 20 of its tenant run at a time. The work uses the context of the
// lease, which is cancelled when the lease is lost.
func ExampleSemaphore_Acquire() {
	gate := core.Must(core.NewMemory(core.Config{}))
	streams := core.Must(semaphore.New(gate, semaphore.Config{Name: "streams"}))
	tenant := core.Must(core.NewKey("acme"))
	user := core.Must(core.NewKey("acme", "user-1"))
	work := func(ctx context.Context) { fmt.Println("streaming, context error:", ctx.Err()) }

	stream := func(ctx context.Context) error {
		lease, err := streams.Acquire(ctx, semaphore.Request{
			// Outermost first: all of them have room, or nothing is taken.
			Caps:    []semaphore.Cap{{Key: tenant, Limit: 20}, {Key: user, Limit: 3}},
			MaxWait: 10 * time.Second,
		})
		if err != nil {
			return err // a *semaphore.FullError after MaxWait or with a full queue
		}
		defer func() {
			if err := lease.Release(ctx); err != nil { // runs although ctx is cancelled
				log.Print(err) // the slot is free when its lease ends
			}
		}()
		work(lease.Context())
		return nil
	}
	if err := stream(context.Background()); err != nil {
		log.Fatal(err)
	}
	// Output: streaming, context error: <nil>
}

// Without a MaxWait, Acquire does not wait. Its FullError says which cap has no room and when to try
// again.
func ExampleFullError() {
	gate := core.Must(core.NewMemory(core.Config{}))
	exports := core.Must(semaphore.New(gate, semaphore.Config{Name: "exports"}))
	user := core.Must(core.NewKey("user-1"))
	ctx := context.Background()
	slot := semaphore.Request{Caps: []semaphore.Cap{{Key: user, Limit: 1}}}
	for range 2 {
		lease, err := exports.Acquire(ctx, slot)
		var full *semaphore.FullError
		switch {
		case errors.As(err, &full):
			fmt.Println(full.InUse, "of", full.Limit, "in use")
		case err != nil:
			log.Fatal(err)
		default:
			fmt.Println("got a slot")
			defer func() { _ = lease.Release(ctx) }() // on failure the lease ends
		}
	}
	// Output:
	// got a slot
	// 1 of 1 in use
}

// Admit spends charges and takes a slot, both or neither. The reservation of the lease can be
// settled.
func ExampleSemaphore_Admit() {
	gate := core.Must(core.NewMemory(core.Config{Clock: new(core.ManualClock).Now}))
	chats := core.Must(semaphore.New(gate, semaphore.Config{Name: "chats"}))
	tokens := core.Must(core.NewPolicy(core.PolicyConfig{Name: "tokens", Algorithm: core.PerHour(10_000)}))
	user := core.Must(core.NewKey("acme", "user-1"))
	ctx := context.Background()
	charge := core.Charge{Policy: tokens, Key: user, Cost: 2000}

	slot := semaphore.Request{Caps: []semaphore.Cap{{Key: user, Limit: 3}}}
	lease, d, err := chats.Admit(ctx, slot, charge)
	if err != nil { // with a *semaphore.FullError, nothing is spent
		log.Fatal(err)
	}
	if !d.Allowed { // the tokens are exhausted, and no slot was taken
		return
	}
	defer func() { _ = lease.Release(ctx) }() // on failure the lease ends
	if err := lease.Reservation().Settle(ctx, 1234); err != nil {
		log.Fatal(err)
	}
	d, err = gate.Peek(ctx, charge)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(d.At(0).Used)
	// Output: 1234
}

// A Mutex is a semaphore of one slot. A store that rejects a lower Token than its last is safe from
// a holder that was paused for longer than its lease.
func ExampleMutex_Lock() {
	gate := core.Must(core.NewMemory(core.Config{}))
	mutex := core.Must(semaphore.NewMutex(gate, semaphore.MutexConfig{Name: "nightly-report"}))
	key := core.Must(core.NewKey("acme"))
	var last int64 // of the last write that the store accepted
	write := func(token int64) {
		fmt.Println("accepted:", token >= last)
		last = max(last, token)
	}

	ctx := context.Background()
	first, err := mutex.Lock(ctx, key)
	if err != nil {
		log.Fatal(err)
	}
	if err := first.Release(ctx); err != nil {
		log.Fatal(err)
	}
	second, err := mutex.Lock(ctx, key)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = second.Release(ctx) }() // on failure the lease ends
	write(second.Token())
	write(first.Token()) // too late: another holder came between
	// Output:
	// accepted: true
	// accepted: false
}

func ExampleSemaphore_Usage() {
	ctx := context.Background()
	gate := core.Must(core.NewMemory(core.Config{}))
	streams := core.Must(semaphore.New(gate, semaphore.Config{Name: "streams"}))
	user := core.Must(core.NewKey("acme", "ann"))
	err := streams.Do(ctx, user, 3, func(context.Context) error {
		used, err := streams.Usage(ctx, user)
		fmt.Println(used[0], "of 3")
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output: 1 of 3
}

// Do not go on after ErrFull. The lease is nil, and its context is the background context, so the
// work runs uncapped and does not end with the request. Return in the branch of the error.
func ExampleSemaphore_Acquire_incorrect() {
	gate := core.Must(core.NewMemory(core.Config{}))
	streams := core.Must(semaphore.New(gate, semaphore.Config{Name: "streams"}))
	user := core.Must(core.NewKey("user-1"))
	running := 0
	work := func(context.Context) { running++ }
	for range 3 {
		ctx := context.Background()
		lease, err := streams.Acquire(ctx, semaphore.Request{
			Caps: []semaphore.Cap{{Key: user, Limit: 1}}, MaxWait: time.Millisecond,
		})
		if errors.Is(err, semaphore.ErrFull) {
			fmt.Println("full") // wrong: nothing returns here
		}
		defer func() { _ = lease.Release(ctx) }() // on failure the lease ends
		work(lease.Context())
	}
	fmt.Println(running, "running, with a limit of 1")
	// Output:
	// full
	// full
	// 3 running, with a limit of 1
}

// Do not work with the context of the request while a lease is held. Only the context of the lease
// ends when the lease is lost, for example because an operator evicted its holder.
func ExampleLease_Context_incorrect() {
	gate := core.Must(core.NewMemory(core.Config{}))
	streams := core.Must(semaphore.New(gate, semaphore.Config{Name: "streams"}))
	user := core.Must(core.NewKey("user-1"))
	ctx := context.Background()
	slot := semaphore.Request{Caps: []semaphore.Cap{{Key: user, Limit: 1}}}
	lease, err := streams.Acquire(ctx, slot)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = lease.Release(ctx) }() // on failure the lease ends

	holders, _, err := streams.Holders(ctx, user)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := streams.Evict(ctx, user, holders[0].ID); err != nil {
		log.Fatal(err)
	}
	<-lease.Lost()
	fmt.Println("request:", ctx.Err()) // wrong: the work goes on without a slot
	fmt.Println("lease:", context.Cause(lease.Context()))
	// Output:
	// request: <nil>
	// lease: semaphore: the lease is lost
}
