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

// Do not go on after ErrFull. The lease is nil, and its context is the background context, so the
// work runs uncapped and does not end with the request. Return in the branch of the error.
func ExampleSemaphore_Acquire_incorrect() {
	gate, err := core.NewMemory(core.Config{})
	if err != nil {
		log.Fatal(err)
	}
	streams, err := semaphore.New(gate, semaphore.Config{Name: "streams"})
	if err != nil {
		log.Fatal(err)
	}
	user, err := core.NewKey("user-1")
	if err != nil {
		log.Fatal(err)
	}
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
	gate, err := core.NewMemory(core.Config{})
	if err != nil {
		log.Fatal(err)
	}
	streams, err := semaphore.New(gate, semaphore.Config{Name: "streams"})
	if err != nil {
		log.Fatal(err)
	}
	user, err := core.NewKey("user-1")
	if err != nil {
		log.Fatal(err)
	}
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
