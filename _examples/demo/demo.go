// Package demo has what the examples of all frameworks share: the guards of one small API, and a
// server for it.
package demo

import (
	"cmp"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/keyfunc"
)

// Guards are the guards of the API. PerAddress limits all requests of a client address, PerTenant
// limits the reports of a tenant, and Streams caps how many event streams a tenant has open.
type Guards struct{ PerAddress, PerTenant, Streams *nethttp.Guard }

// NewGuards returns guards with their state in Redis at REDIS_URL, or in memory if that is not set.
func NewGuards() (g Guards, err error) {
	gate, err := NewGate()
	if err != nil {
		return g, err
	}
	byTenant, err := keyfunc.PathValue("tenant") // authorization in front has checked it
	if err != nil {
		return g, err
	}
	perAddress := core.TokenBucket{Rate: 60, Per: time.Minute, Burst: 20}
	g.PerAddress, err = nethttp.Limit(gate, "address", perAddress, keyfunc.RemoteIP())
	if err != nil {
		return g, err
	}
	g.PerTenant, err = nethttp.Limit(gate, "tenant", core.PerHour(3), byTenant)
	if err != nil {
		return g, err
	}
	streams, err := semaphore.New(gate, semaphore.Config{Name: "streams"})
	if err != nil {
		return g, err
	}
	g.Streams, err = nethttp.NewGuard(nethttp.Config{Slot: &nethttp.Slot{
		Semaphore: streams,
		Caps:      []nethttp.Cap{{Name: "streams", Key: byTenant, Limit: 2}},
	}})
	return g, err
}

// NewGate returns a Gate on Redis at REDIS_URL, or in memory if that is not set.
func NewGate() (*core.Gate, error) {
	url := os.Getenv("REDIS_URL")
	if url == "" {
		return core.NewMemory(core.Config{})
	}
	options, err := redis.ParseURL(url)
	if err != nil {
		return nil, err
	}
	options.ContextTimeoutEnabled = true // a decision ends at its deadline
	options.DialerRetries = 1            // the gate has its own circuit breaker
	return core.NewRedis(redis.NewClient(options), core.Config{})
}

// Report returns a report for the tenant of a request, with the number of reports that are left.
func Report(r *http.Request) string {
	report := "a report of " + r.PathValue("tenant")
	for _, result := range nethttp.AdmissionFromContext(r.Context()).Decision().Results() {
		report += fmt.Sprintf(", %d more", result.Remaining)
	}
	return report + "\n"
}

// Events streams one event a second until the client leaves.
func Events(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	for i := 1; ; i++ {
		fmt.Fprintf(w, "data: %d\n\n", i)
		_ = http.NewResponseController(w).Flush()
		select {
		case <-time.After(time.Second):
		case <-r.Context().Done():
			return
		}
	}
}

// Serve serves the API on ADDR and prints its URL.
func Serve(api http.Handler) error {
	listener, err := net.Listen("tcp", cmp.Or(os.Getenv("ADDR"), "127.0.0.1:8080"))
	if err != nil {
		return err
	}
	fmt.Printf("Serving on http://%[1]s. Try: curl -i http://%[1]s/t/acme/reports\n", listener.Addr())
	return (&http.Server{Handler: api, ReadHeaderTimeout: 5 * time.Second}).Serve(listener)
}
