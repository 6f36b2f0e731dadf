package recipes

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/coder/websocket"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/keyfunc"
)

// Messages lets a tenant have 3 WebSockets open, and send 10 messages at once and then 5 a second
// over all of them. A client that sends faster is read more slowly.
func Messages(gate *core.Gate, handle func(message []byte)) http.Handler {
	sockets := core.Must(nethttp.NewGuard(nethttp.Config{Slot: &nethttp.Slot{
		Semaphore: core.Must(semaphore.New(gate, semaphore.Config{Name: "sockets"})),
		Caps:      []nethttp.Cap{{Name: "sockets", Key: byTenant, Limit: 3}},
	}}))
	messages := core.Must(core.NewLimiter(gate, core.Must(core.NewPolicy(core.PolicyConfig{
		Name: "messages", Algorithm: core.TokenBucket{Rate: 5, Per: time.Second, Burst: 10},
	}))))
	return sockets.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tenant, _ := r.Context().Value(tenantKey{}).(string)
		key, err := core.NewKey(tenant)
		if err != nil {
			http.Error(w, "no tenant", http.StatusBadRequest)
			return
		}
		conn, err := websocket.Accept(w, r, nil)
		if err != nil {
			return // it has answered
		}
		defer conn.CloseNow()
		for {
			_, message, err := conn.Read(r.Context()) // ends when the slot is lost
			if err != nil {
				return
			}
			if d, err := messages.Wait(r.Context(), key); err != nil || !d.Allowed {
				_ = conn.Close(websocket.StatusTryAgainLater, "too many messages")
				return
			}
			handle(message)
		}
	}))
}

// Queue caps the running streams of a tenant, and tells a client that waits its place in the queue.
func Queue(gate *core.Gate, stream http.HandlerFunc) http.Handler {
	running := core.Must(semaphore.New(gate, semaphore.Config{Name: "streams"}))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tenant, _ := r.Context().Value(tenantKey{}).(string)
		key, err := core.NewKey(tenant)
		if err != nil {
			http.Error(w, "no tenant", http.StatusBadRequest)
			return
		}
		event := func(name string, data any) {
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprintf(w, "event: %s\ndata: %v\n\n", name, data)
			_ = http.NewResponseController(w).Flush()
		}
		lease, err := running.Acquire(r.Context(), semaphore.Request{
			Caps:    []semaphore.Cap{{Key: key, Limit: 2}},
			MaxWait: time.Minute,
			OnQueue: func(place int) { event("queued", place) }, // the status is 200 from here on
		})
		var full *semaphore.FullError
		switch {
		case errors.As(err, &full):
			event("refused", int(full.RetryAfter.Seconds()))
			return
		case err != nil:
			event("error", "try again")
			return
		}
		defer lease.Release(r.Context())
		stream(w, r.WithContext(lease.Context())) // which ends when the slot is lost
	})
}

// SoftLimit serves a client a cheaper answer above 100 requests a minute, and refuses above 200.
func SoftLimit(gate *core.Gate, whole, cheap http.Handler) http.Handler {
	policy := func(name string, limit int64, shadow bool) *core.Policy {
		return core.Must(core.NewPolicy(core.PolicyConfig{
			Name: name, Algorithm: core.AnyMinute(limit), Shadow: shadow,
		}))
	}
	soft, hard := policy("soft", 100, true), policy("hard", 200, false)
	guard := core.Must(nethttp.NewGuard(nethttp.Config{Gate: gate, Rules: []nethttp.Rule{
		{Policy: soft, Key: keyfunc.RemoteIP()}, // a shadow never denies
		{Policy: hard, Key: keyfunc.RemoteIP()},
	}}))
	return guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, result := range nethttp.AdmissionFromContext(r.Context()).Decision().Results() {
			if result.Policy == soft && !result.Allowed {
				cheap.ServeHTTP(w, r)
				return
			}
		}
		whole.ServeHTTP(w, r)
	}))
}
