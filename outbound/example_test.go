package outbound_test

import (
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/outbound"
)

func Example() {
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprint(w, "hello")
	}))
	defer upstream.Close()

	gate := core.Must(core.NewMemory(core.Config{})) // core.NewRedis shares the limits with all replicas
	requests := core.Must(core.NewPolicy(core.PolicyConfig{
		Name: "requests", Algorithm: core.TokenBucket{Rate: 10, Per: time.Second, Burst: 1},
	}))
	transport, err := outbound.New(outbound.Config{
		Gate:    gate,
		Rules:   []outbound.Rule{{Policy: requests, Key: outbound.ByCredential}},
		MaxWait: time.Second,
	})
	if err != nil {
		log.Fatal(err)
	}
	client := &http.Client{Transport: transport}
	start := time.Now()
	for range 3 {
		response, err := client.Get(upstream.URL)
		if err != nil {
			log.Fatal(err)
		}
		_ = response.Body.Close()
	}
	fmt.Println("at least 0.2 s:", time.Since(start) >= 200*time.Millisecond)
	// Output: at least 0.2 s: true
}

// A request that would have to wait for longer than MaxWait fails at once, and tells when there may
// be room.
func ExampleBusyError() {
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "60")
		w.WriteHeader(http.StatusTooManyRequests)
	}))
	defer upstream.Close()

	gate := core.Must(core.NewMemory(core.Config{}))
	client := &http.Client{Transport: core.Must(outbound.New(outbound.Config{Gate: gate}))}
	for range 2 {
		response, err := client.Get(upstream.URL)
		var busy *outbound.BusyError
		switch {
		case errors.As(err, &busy):
			fmt.Println("not sent:", busy.Rule, busy.After > 50*time.Second)
		case err != nil:
			log.Fatal(err)
		default:
			_ = response.Body.Close()
			fmt.Println(response.StatusCode)
		}
	}
	// Output:
	// 429
	// not sent: cooldown true
}

// At most 20 requests of an account run at a time, over all replicas. A stream holds its slot until
// its body is closed.
func ExampleSlot() {
	gate := core.Must(core.NewMemory(core.Config{}))
	streams := core.Must(semaphore.New(gate, semaphore.Config{Name: "streams", MaxWaiters: 1000}))
	transport := core.Must(outbound.New(outbound.Config{
		Gate: gate,
		Slot: &outbound.Slot{
			Semaphore: streams,
			Caps:      []outbound.Cap{{Key: outbound.ByCredential, Limit: 20}},
		},
		MaxWait: 30 * time.Second,
	}))
	_ = &http.Client{Transport: transport}
}
