// Package demo is what the examples of all frameworks share: the guards of one small API, and a server for it.
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
	"github.com/headgate/headgate/keyfunc"
)

// Guards are those of the API: one on everything, by the client's address, one on the reports of each tenant, and one on
// how many streams each tenant has open.
type Guards struct{ PerAddress, PerTenant, Streams *nethttp.Guard }

// NewGuards keeps the state in Redis at REDIS_URL, or in memory where that is not set.
func NewGuards() (g Guards, err error) {
	gate, err := newGate()
	if err != nil {
		return g, err
	}
	address, err := core.NewPolicy(core.PolicyConfig{Name: "address", Algorithm: core.TokenBucket{Rate: 60, Per: time.Minute, Burst: 20}})
	if err != nil {
		return g, err
	}
	tenant, err := core.NewPolicy(core.PolicyConfig{Name: "tenant", Algorithm: core.PerHour(3)})
	if err != nil {
		return g, err
	}
	streams, err := core.NewSemaphore(gate, core.SemaphoreConfig{Name: "streams"})
	if err != nil {
		return g, err
	}
	ofTenant := keyfunc.Must(keyfunc.PathValue("tenant")) // authorization in front compares it with who asks

	g.PerAddress, err = nethttp.NewGuard(nethttp.Config{Gate: gate, Rules: []nethttp.Rule{{Policy: address, Key: keyfunc.RemoteIP()}}})
	if err != nil {
		return g, err
	}
	g.PerTenant, err = nethttp.NewGuard(nethttp.Config{Gate: gate, Rules: []nethttp.Rule{{Policy: tenant, Key: ofTenant}}})
	if err != nil {
		return g, err
	}
	g.Streams, err = nethttp.NewGuard(nethttp.Config{Concurrency: &nethttp.Concurrency{
		Semaphore: streams,
		Caps:    []nethttp.Cap{{Name: "streams", Key: ofTenant, Limit: 2}},
	}})
	return g, err
}

func newGate() (*core.Gate, error) {
	url := os.Getenv("REDIS_URL")
	if url == "" {
		return core.NewMemory(core.Config{})
	}
	options, err := redis.ParseURL(url)
	if err != nil {
		return nil, err
	}
	options.ContextTimeoutEnabled = true
	options.DialerRetries = 1 // the gate has a circuit of its own
	return core.NewRedis(redis.NewClient(options), core.Config{})
}

// Report is a line for who asked for one.
func Report(r *http.Request) string {
	decision, _ := nethttp.FromContext(r.Context())
	return fmt.Sprintf("a report of %s, %d more\n", r.PathValue("tenant"), decision.At(0).Remaining)
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

// Serve serves the API on ADDR, and says where.
func Serve(api http.Handler) error {
	listener, err := net.Listen("tcp", cmp.Or(os.Getenv("ADDR"), "127.0.0.1:8080"))
	if err != nil {
		return err
	}
	fmt.Printf("Serving on http://%[1]s. Try: curl -i http://%[1]s/t/acme/reports\n", listener.Addr())
	return (&http.Server{Handler: api, ReadHeaderTimeout: 5 * time.Second}).Serve(listener)
}
