// Package llm compares a reverse proxy behind an llm.Meter with the same proxy alone.
package llm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/keyfunc"
	"github.com/headgate/headgate/llm"

	"github.com/headgate/headgate/lab/bench/internal/measure"
)

// outOfReach is a limit that no run reaches.
const outOfReach = 1 << 40

// newMeter returns a Meter with a budget of tokens a minute and one of money a month, a limit on requests a minute, and
// a cap on streams.
func newMeter(gate *core.Gate) (*llm.Meter, error) {
	var errs []error
	policy := func(cfg core.PolicyConfig) *core.Policy {
		p, err := core.NewPolicy(cfg)
		errs = append(errs, err)
		return p
	}
	tenant, err := keyfunc.Header("X-Tenant")
	errs = append(errs, err)
	slots, err := semaphore.New(gate, semaphore.Config{Name: "streams"})
	errs = append(errs, err)
	const hold = 30 * time.Second
	cfg := llm.Config{
		Guard: nethttp.Config{
			Gate: gate,
			Rules: []nethttp.Rule{{
				Policy: policy(core.PolicyConfig{Name: "requests", Algorithm: core.PerMinute(outOfReach)}), Key: tenant,
			}},
			Slot: &nethttp.Slot{
				Semaphore: slots, Caps: []nethttp.Cap{{Name: "streams", Key: tenant, Limit: 1_000_000}},
			},
		},
		Budgets: []llm.Budget{
			{Key: tenant, Policy: policy(core.PolicyConfig{
				Name: "tokens", Unit: core.UnitTokens, Algorithm: core.PerMinute(outOfReach), Hold: hold,
			})},
			{Key: tenant, Policy: policy(core.PolicyConfig{
				Name: "spend", Unit: core.UnitMicroDollars, Hold: hold,
				Algorithm: core.Calendar{Limit: outOfReach, Every: core.PeriodMonth, In: time.UTC},
			})},
		},
		Models: map[string]llm.Model{"small": {Tariff: llm.Tariff{
			Price: llm.Price{Input: 3_000_000, CacheRead: 300_000, Output: 15_000_000},
		}}},
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("make the limits: %w", err)
	}
	m, err := llm.New(cfg)
	if err != nil {
		return nil, fmt.Errorf("make the meter: %w", err)
	}
	return m, nil
}

// newProxy returns a reverse proxy that keeps its connections.
func newProxy(upstream string) (*httputil.ReverseProxy, error) {
	to, err := url.Parse("http://" + upstream)
	if err != nil {
		return nil, fmt.Errorf("parse the address of the upstream: %w", err)
	}
	p := httputil.NewSingleHostReverseProxy(to)
	p.Transport = transport()
	p.ErrorLog = log.New(io.Discard, "", 0) // a stream that ends with the run is no error
	return p, nil
}

// buffered reads the body first, as a Meter does. Otherwise a response that begins before the proxy has seen the end of
// the body closes it, and a few in 10,000 streams break off.
func buffered(proxy http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // the client has left
		}
		inner := r.WithContext(r.Context())
		inner.Body = io.NopCloser(bytes.NewReader(body))
		proxy.ServeHTTP(w, inner)
	})
}

func transport() *http.Transport {
	return &http.Transport{MaxIdleConnsPerHost: 2000, DisableCompression: true}
}

// listener is a server on the loopback.
type listener struct {
	http.Server
	addr string
}

func serve(h http.Handler) (*listener, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	s := &listener{Server: http.Server{Handler: h}, addr: l.Addr().String()}
	go func() { _ = s.Serve(l) }() // it ends with the server
	return s, nil
}

// The proxies of a rig. Each has its own connections.
const (
	bare = iota
	pinged
	scripted
	metered
	proxies
)

// contenders are the lines of the tables.
var contenders = [proxies]measure.Contender{
	bare:     {Name: "ReverseProxy", Kind: measure.Floor},
	pinged:   {Name: "ReverseProxy after a PING", Kind: measure.Floor},
	scripted: {Name: "ReverseProxy between two EVALSHA", Kind: measure.Floor},
	metered:  {Name: "ReverseProxy behind a Meter", Kind: measure.Ours},
}

// rig is an upstream, and the proxies in front of it.
type rig struct {
	upstream *listener
	proxies  [proxies]*listener
	client   *http.Client
}

func newRig(client *redis.Client, gate *core.Gate) (*rig, error) {
	meter, err := newMeter(gate)
	if err != nil {
		return nil, err
	}
	r := &rig{client: &http.Client{Transport: transport()}}
	if r.upstream, err = serve(http.HandlerFunc(stream)); err != nil {
		return nil, err
	}
	for i, wrap := range [proxies]func(http.Handler) http.Handler{
		bare: buffered,
		pinged: func(next http.Handler) http.Handler {
			return buffered(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
				if err := client.Ping(q.Context()).Err(); err != nil {
					panic(http.ErrAbortHandler)
				}
				next.ServeHTTP(w, q)
			}))
		},
		scripted: func(next http.Handler) http.Handler { return buffered(between(client, next)) },
		metered:  meter.Handler,
	} {
		proxy, err := newProxy(r.upstream.addr)
		if err == nil {
			r.proxies[i], err = serve(wrap(proxy))
		}
		if err != nil {
			return r, err
		}
	}
	return r, nil
}

// close ends all streams and servers.
func (r *rig) close() {
	if r == nil {
		return
	}
	r.client.CloseIdleConnections()
	for _, s := range append(r.proxies[:], r.upstream) {
		if s != nil {
			_ = s.Close() // it ends all the same
		}
	}
}

// Words of a stream, and the pause between them if the request asks for one.
const (
	words     = 10
	wordPause = 10 * time.Millisecond
)

const (
	chunk = `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"small",` +
		`"choices":[{"index":0,"delta":{"content":"word"},"finish_reason":null}],"usage":null}` + "\n\n"
	last = `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"small",` +
		`"choices":[],"usage":{"prompt_tokens":20,"completion_tokens":10,"total_tokens":30}}` + "\n\ndata: [DONE]\n\n"
	question = `{"model":"small","stream":true,"max_tokens":100,"stream_options":{"include_usage":true},` +
		`"messages":[{"role":"user","content":"Tell me in ten words what a reverse proxy does for its servers."}]}`
)

// stream is the upstream. The header X-Pause is empty, words or open.
func stream(w http.ResponseWriter, q *http.Request) {
	if _, err := io.Copy(io.Discard, q.Body); err != nil {
		return // the proxy has left
	}
	w.Header().Set("Content-Type", "text/event-stream")
	pause, flusher := q.Header.Get("X-Pause"), http.NewResponseController(w)
	for i := range words {
		if pause == "words" && i > 0 {
			time.Sleep(wordPause)
		}
		if _, err := io.WriteString(w, chunk); err != nil || flusher.Flush() != nil {
			return // the proxy has left
		}
	}
	if pause == "open" {
		<-q.Context().Done()
		return
	}
	_, _ = io.WriteString(w, last) // the proxy may have left
}

// ask sends a request and waits for the first byte of the response.
func (r *rig) ask(ctx context.Context, to *listener, pause string) (*http.Response, error) {
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+to.addr+"/v1/chat/completions",
		strings.NewReader(question))
	if err != nil {
		return nil, fmt.Errorf("make a request: %w", err)
	}
	q.Header = http.Header{"Content-Type": {"application/json"}, "X-Tenant": {"acme"}, "X-Pause": {pause}}
	response, err := r.client.Do(q)
	if err != nil {
		return nil, fmt.Errorf("ask: %w", err)
	}
	var first [1]byte
	if _, err = io.ReadFull(response.Body, first[:]); err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %d", response.StatusCode)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("read the first byte: %w", err), response.Body.Close())
	}
	return response, nil
}
