package outbound_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/outbound"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// eachGate runs f on a Gate in memory and on one on every Redis.
func eachGate(t *testing.T, f func(t *testing.T, g *core.Gate)) {
	t.Helper()
	t.Run("memory", func(t *testing.T) { f(t, gatetest.Memory(t, core.Config{})) })
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		f(t, gatetest.Redis(t, s.Client(t), core.Config{Prefix: s.Prefix}))
	})
}

// calmly runs f until it returns nil, five times at most: after a stall of the machine many requests go
// on at once, in any order.
func calmly(t *testing.T, f func() error) {
	t.Helper()
	var err error
	for range 5 {
		if err = f(); err == nil {
			return
		}
	}
	t.Error(err)
}

func transport(t testing.TB, cfg outbound.Config) *outbound.Transport {
	t.Helper()
	tr := core.Must(outbound.New(cfg))
	return tr
}

func newSemaphore(t testing.TB, g *core.Gate, cfg semaphore.Config) *semaphore.Semaphore {
	t.Helper()
	if cfg.Name == "" {
		cfg.Name = "streams"
	}
	s := core.Must(semaphore.New(g, cfg))
	return s
}

func slotOf(t testing.TB, g *core.Gate, limit int64) *outbound.Slot {
	t.Helper()
	return &outbound.Slot{
		Semaphore: newSemaphore(t, g, semaphore.Config{}),
		Caps:      []outbound.Cap{{Key: outbound.ByCredential, Limit: limit}},
	}
}

// upstream is a server that keeps the times of its requests.
type upstream struct {
	*httptest.Server
	mu    sync.Mutex
	times []time.Time
}

// serve starts an upstream that answers with f, or with "ok".
func serve(t testing.TB, f http.HandlerFunc) *upstream {
	t.Helper()
	u := new(upstream)
	u.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		u.mu.Lock()
		u.times = append(u.times, time.Now())
		u.mu.Unlock()
		if f != nil {
			f(w, r)
			return
		}
		_, _ = io.WriteString(w, "ok")
	}))
	t.Cleanup(u.Close)
	return u
}

// count returns how many requests have come.
func (u *upstream) count() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.times)
}

// base returns a base transport whose connections end with the test.
func base(t testing.TB) *http.Transport {
	t.Helper()
	b := &http.Transport{MaxIdleConnsPerHost: 100}
	t.Cleanup(b.CloseIdleConnections)
	return b
}

// standing returns how a key stands under a policy.
func standing(t testing.TB, g *core.Gate, p *core.Policy, key core.Key) core.Result {
	t.Helper()
	d := gatetest.Peek(t, g, core.Charge{Policy: p, Key: key, Cost: core.NoCost})
	return d.At(0)
}

// raise raises a key's limit for an hour.
func raise(t testing.TB, g *core.Gate, p *core.Policy, key core.Key, units int64) {
	t.Helper()
	gatetest.Must(g.Adjust(t.Context(), core.Adjustment{
		ID: "invoice", Policy: p, Key: key, Raise: units, Until: time.Now().Add(time.Hour),
	}))(t)
}

func request(t testing.TB, ctx context.Context, url string) *http.Request {
	t.Helper()
	return gatetest.Must(http.NewRequestWithContext(ctx, http.MethodGet, url, nil))(t)
}

// get sends a request and reads the response to its end.
func get(t testing.TB, tr http.RoundTripper, url string) (status int, err error) {
	t.Helper()
	res, err := tr.RoundTrip(request(t, t.Context(), url))
	if err != nil {
		return 0, err
	}
	defer func() { _ = res.Body.Close() }()
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		t.Error(err)
	}
	return res.StatusCode, nil
}

// wantBusy fails the test unless err is a BusyError under a rule.
func wantBusy(t testing.TB, err error, rule string) *outbound.BusyError {
	t.Helper()
	var busy *outbound.BusyError
	if !errors.As(err, &busy) || !errors.Is(err, outbound.ErrBusy) || busy.Rule != rule || !strings.Contains(err.Error(), rule) {
		t.Fatalf("got %v, want no room under %s", err, rule)
	}
	return busy
}

// closer is a request's body that knows whether it was closed.
type closer struct {
	io.Reader
	closed atomic.Bool
}

func newCloser(text string) *closer { return &closer{Reader: strings.NewReader(text)} }

func (c *closer) Close() error {
	c.closed.Store(true)
	return nil
}

// roundTripper is a func as an http.RoundTripper.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// byPath is a Meter whose model is the path, and whose tokens are the Content-Length.
type byPath struct{}

func (byPath) Measure(r *http.Request) (outbound.Measure, error) {
	return &pathMeasure{model: r.URL.Path[1:]}, nil
}

type pathMeasure struct{ model string }

func (m *pathMeasure) Model() string                  { return m.model }
func (m *pathMeasure) Estimate(core.Unit) int64       { return 10 }
func (m *pathMeasure) Response(*http.Response)        {}
func (m *pathMeasure) Actual(core.Unit) (int64, bool) { return 4, true }

// answers answers each request by the next of these funcs, and with 200 after the last.
type answers struct {
	mu  sync.Mutex
	all []func(w http.ResponseWriter)
}

func (a *answers) push(all ...func(w http.ResponseWriter)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.all = append(a.all, all...)
}

func (a *answers) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	a.mu.Lock()
	answer := func(http.ResponseWriter) {}
	if len(a.all) > 0 {
		answer, a.all = a.all[0], a.all[1:]
	}
	a.mu.Unlock()
	answer(w)
}

// refuse is an answer with a status, a body and headers in pairs.
func refuse(status int, body string, headers ...string) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) {
		for pair := range slices.Chunk(headers, 2) {
			w.Header().Add(pair[0], pair[1])
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// rig is a Transport before an upstream that gives the answers that a test pushes.
type rig struct {
	*testing.T
	answers
	*upstream
	gate   *core.Gate
	tr     *outbound.Transport
	cooled chan *outbound.CooldownEvent
}

// newRig completes the configuration: without a Gate by one in memory.
func newRig(t *testing.T, cfg outbound.Config) *rig {
	t.Helper()
	r := &rig{T: t, cooled: make(chan *outbound.CooldownEvent, 1000)}
	r.upstream = serve(t, r.answers.ServeHTTP)
	if cfg.Gate == nil {
		cfg.Gate = gatetest.Memory(t, core.Config{})
	}
	if cfg.Base == nil {
		cfg.Base = base(t)
	}
	if cfg.Observe == nil {
		cfg.Observe = func(_ context.Context, e core.Event) {
			if e, ok := e.(*outbound.CooldownEvent); ok {
				r.cooled <- e
			}
		}
	}
	r.gate, r.tr = cfg.Gate, transport(t, cfg)
	return r
}

// want sends requests, each of which must be answered with the next of these statuses.
func (r *rig) want(path string, statuses ...int) {
	r.Helper()
	for i, status := range statuses {
		if got, err := get(r, r.tr, r.upstream.URL+path); got != status || err != nil {
			r.Fatalf("request %d to %s: %d, %v, want %d", i, path, got, err, status)
		}
	}
}

// busy sends a request that must have no room under a rule.
func (r *rig) busy(path, rule string) *outbound.BusyError {
	r.Helper()
	_, err := get(r, r.tr, r.upstream.URL+path)
	return wantBusy(r, err, rule)
}

// used returns what the upstream's host has used under a policy.
func (r *rig) used(p *core.Policy) int64 {
	r.Helper()
	return standing(r, r.gate, p, core.Must(outbound.ByHost(request(r, r.Context(), r.upstream.URL)))).Used
}

// answered is a Base that answers at once.
var answered = roundTripper(func(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: http.NoBody}, nil
})

// roundTrip sends a request that must have an answer. The caller closes its body.
func roundTrip(t testing.TB, rt http.RoundTripper, r *http.Request) *http.Response {
	t.Helper()
	return gatetest.Must(rt.RoundTrip(r))(t)
}
