package soak

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/keyfunc"
	"github.com/headgate/headgate/llm"
)

// tenantKey is the key of a request's tenant in its context.
type tenantKey struct{}

// authenticate puts the tenant of a request into its context.
func authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := context.WithValue(r.Context(), tenantKey{}, r.Header.Get("X-Tenant"))
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// makeServer serves a Guard with rules, caps and blocks, and a Meter in front of a model that
// streams.
func (p *program) makeServer() error {
	tenant, err := keyfunc.ContextValue(tenantKey{})
	if err != nil {
		return err
	}
	streams, err := semaphore.New(p.gate, semaphore.Config{Name: "requests", TTL: 2 * time.Second})
	if err != nil {
		return err
	}
	slot := &nethttp.Slot{
		Semaphore: streams, Caps: []nethttp.Cap{{Name: "requests", Key: tenant, Limit: 3}},
		MaxWait: 300 * time.Millisecond,
	}
	guard, err := nethttp.NewGuard(nethttp.Config{
		Gate: p.gate, Slot: slot, Plan: p.book.Plan(tenant),
		Rules: []nethttp.Rule{
			{Policy: p.api, Key: tenant, Settle: nethttp.RefundServerErrors},
			{Policy: p.limits[1], Key: tenant},
		},
	})
	if err != nil {
		return err
	}
	p.meter, err = llm.New(llm.Config{
		Guard:       nethttp.Config{Gate: p.gate, Slot: slot},
		Budgets:     []llm.Budget{{Policy: p.budget, Key: tenant}},
		ChargeEvery: 20,
	})
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/hello", guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sleep(r.Context(), 10*time.Millisecond)
		fmt.Fprintln(w, "hello")
	})))
	mux.Handle("/v1/", p.meter.Handler(http.HandlerFunc(model)))
	p.server = httptest.NewServer(authenticate(mux))
	return nil
}

// model answers as a model that streams: some words, and what they cost.
func model(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	flush := http.NewResponseController(w).Flush
	for range 10 {
		fmt.Fprint(w, `data: {"choices":[{"index":0,"delta":{"content":"some words "}}]}`+"\n\n")
		if flush() != nil {
			return
		}
		sleep(r.Context(), 10*time.Millisecond)
	}
	fmt.Fprint(w, `data: {"choices":[],"usage":{"prompt_tokens":20,"completion_tokens":60,"total_tokens":80}}`+
		"\n\ndata: [DONE]\n\n")
}

func (p *program) request(ctx context.Context) error {
	return p.ask(ctx, http.MethodGet, "/hello", "")
}

func (p *program) complete(ctx context.Context) error {
	return p.ask(ctx, http.MethodPost, "/v1/chat/completions",
		`{"model":"small","stream":true,"max_tokens":100,"messages":[{"role":"user","content":"Hello"}]}`)
}

// ask sends a request, and leaves it early now and then. Whatever happens to Redis, it is answered,
// limited or refused for a while.
func (p *program) ask(ctx context.Context, method, path, body string) error {
	n := p.user.Add(1)
	patience := 20 * time.Second
	if n%9 == 0 {
		patience = 30 * time.Millisecond
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, p.server.URL+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("X-Tenant", fmt.Sprintf("tenant%d", n%11))
	response, err := p.web.Do(r)
	if err == nil {
		_, err = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
		switch response.StatusCode {
		case http.StatusOK, http.StatusTooManyRequests, http.StatusServiceUnavailable:
			p.answers.note(fmt.Sprint(path, " ", response.StatusCode), never, nil)
		default:
			return fmt.Errorf("status %d", response.StatusCode)
		}
	}
	if ctx.Err() != nil || errors.Is(err, io.ErrUnexpectedEOF) { // it left, or its lease was lost
		return nil
	}
	return err
}
