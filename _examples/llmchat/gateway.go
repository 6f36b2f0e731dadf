package main

import (
	"context"
	_ "embed"
	"fmt"
	"log"
	"net/http"
	"net/url"
	"strings"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfunc"
)

const (
	streamsPerTenant = 20
	streamsPerUser   = 3
	queuePerUser     = 5
)

//go:embed page.html
var page []byte

// everyone is the key of all requests.
var everyone = keyfunc.Must(keyfunc.Static("default"))

// gateway is one replica.
type gateway struct {
	name         string
	model        model
	tenant, user keyfunc.Func
	caller       keyfunc.Func // tenant and user as one key
	streams      *core.Semaphore
	guard        *nethttp.Guard
	queue        queue
	feeds        context.Context // ends all feeds
	endFeeds     context.CancelFunc
}

func newGateway(gate *core.Gate, cfg config, name string) (*gateway, error) {
	g := &gateway{
		name:  name,
		model: model{tokens: cfg.tokens, delay: cfg.delay},
		// In a real gateway both come from what authentication has verified. Here a client claims
		// them.
		tenant: keyfunc.Must(keyfunc.Or(keyfunc.Must(keyfunc.Header("X-Tenant")), everyone)),
		user:   keyfunc.Must(keyfunc.Or(keyfunc.Must(keyfunc.Header("X-User")), keyfunc.BearerToken())),
		queue:  queue{places: make(map[string][]place), watchers: make(map[chan struct{}]string)},
	}
	g.caller = keyfunc.Must(keyfunc.Join(g.tenant, g.user))
	g.feeds, g.endFeeds = context.WithCancel(context.Background())
	requests, err := core.NewPolicy(core.PolicyConfig{Name: "requests", Algorithm: core.PerMinute(int64(cfg.perMinute))})
	if err != nil {
		return nil, fmt.Errorf("REQUESTS_PER_MINUTE: %w", err)
	}
	g.streams, err = core.NewSemaphore(gate, core.SemaphoreConfig{Name: "streams", TTL: cfg.lease, MaxWaiters: queuePerUser})
	if err != nil {
		return nil, err
	}
	g.guard, err = nethttp.NewGuard(nethttp.Config{
		Gate:  gate,
		Scope: g.tenant,
		Rules: []nethttp.Rule{{Policy: requests, Key: g.user}},
		Concurrency: &nethttp.Concurrency{
			Semaphore: g.streams,
			Caps: []nethttp.Cap{
				{Name: "tenant-streams", Key: everyone, Limit: streamsPerTenant},
				{Name: "user-streams", Key: g.user, Limit: streamsPerUser},
			},
			MaxWait: cfg.wait,
			Meta:    g.meta,
			OnQueue: func(r *http.Request, place int) {
				g.queue.enter(g.callerOf(r), streamID(r), place)
			},
		},
		BufferBody:    1 << 20, // notices a client that leaves the queue, whose prompt is unread
		Refusal:       nethttp.OpenAIError,
		ExposeHeaders: true, // the page reads Retry-After
		Observe:       g.observe,
	})
	return g, err
}

func (g *gateway) handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("POST /v1/chat/completions", nethttp.Middleware(g.guard)(g.model))
	mux.HandleFunc("GET /feed", g.feed)
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write(page) // the client may be gone
	})
	return crossOrigin(mux)
}

// observe removes a decided request from the queue, and logs what went wrong.
func (g *gateway) observe(r *http.Request, a *nethttp.Admission) {
	g.queue.leave(g.callerOf(r), streamID(r))
	if err := a.Err(); err != nil && r.Context().Err() == nil {
		log.Printf("admitted: %t, %v", a.Allowed(), err)
	}
}

// meta is what the feeds of all replicas send about a running stream.
func (g *gateway) meta(r *http.Request) map[string]string {
	return map[string]string{"caller": g.callerOf(r), "stream": streamID(r), "replica": g.name}
}

// callerOf returns the tenant and the user of a request, or "" if it has none.
func (g *gateway) callerOf(r *http.Request) string {
	caller, err := g.caller(r)
	if err != nil {
		return ""
	}
	return caller
}

// streamID returns the page's own name for a request, which the feed refers to. Other clients send
// none.
func streamID(r *http.Request) string {
	if id := r.Header.Get("X-Stream-Id"); len(id) <= 32 {
		return id
	}
	return ""
}

// crossOrigin lets the page, which localhost serves, send requests to names below localhost; the
// page says why. It stands outside the guard, so that refusals are readable and preflights are not
// counted.
func crossOrigin(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Add("Vary", "Origin")
		origin, err := url.Parse(r.Header.Get("Origin"))
		if err != nil || origin.Hostname() != "127.0.0.1" && origin.Hostname() != "localhost" {
			next.ServeHTTP(w, r)
			return
		}
		h.Set("Access-Control-Allow-Origin", origin.String())
		if r.Method != http.MethodOptions {
			next.ServeHTTP(w, r)
			return
		}
		h.Set("Access-Control-Allow-Headers", strings.Join([]string{"Content-Type", "X-Tenant", "X-User", "X-Stream-Id"}, ", "))
		h.Set("Access-Control-Max-Age", "600")
		w.WriteHeader(http.StatusNoContent)
	})
}
