package nethttp_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/once"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/keyfunc"
)

func newOnce(t *testing.T, g *core.Gate) *once.Once {
	t.Helper()
	o, err := once.New(g, once.Config{Name: "ids", Window: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func replay(t *testing.T, g *nethttp.Guard, cfg nethttp.ReplayConfig) *nethttp.Replay {
	t.Helper()
	p, err := nethttp.NewReplay(g, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func withID(id string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set("Idempotency-Key", id) }
}

var byID = keyfunc.Must(keyfunc.Header("Idempotency-Key"))

func TestReplay(t *testing.T) {
	c := newClock()
	gate := memory(t, c)
	status, calls := http.StatusInternalServerError, 0
	all := guard(t, nethttp.Config{
		Gate: gate,
		Rules: []nethttp.Rule{{
			Policy: policy(t, core.PolicyConfig{Name: "all", Algorithm: core.FixedWindow{Limit: 6, Window: 24 * time.Hour}}), Key: keyfunc.RemoteIP(),
		}},
	})
	h := replay(t, all, nethttp.ReplayConfig{Once: newOnce(t, gate), ID: byID, HandledStatus: 409}).Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls++
		if r.Header.Get("Panic") != "" {
			panic(http.ErrAbortHandler)
		}
		w.WriteHeader(status)
	}))
	try := func(want int, change ...func(*http.Request)) *http.Response {
		t.Helper()
		r := get(h, change...)
		if r.StatusCode != want {
			t.Errorf("status %d, want %d", r.StatusCode, want)
		}
		return r
	}
	try(500, withID("a"))
	func() {
		defer func() { _ = recover() }()
		get(h, withID("a"), func(r *http.Request) { r.Header.Set("Panic", "1") })
	}()
	status = http.StatusCreated
	try(201, withID("a"))
	r := try(409, withID("a"))
	if text := body(t, r); !strings.Contains(text, "was handled before") || r.Header.Get("Retry-After") != "" || r.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("%v: %s", r.Header, text)
	}
	try(201, withID("b"))
	try(400) // no id, which counts under the rules too
	try(429, withID("c"))
	if calls != 4 {
		t.Errorf("the handler ran %d times", calls)
	}
}

func TestReplayOptions(t *testing.T) {
	gate := memory(t, newClock())
	running, leave := make(chan struct{}), make(chan int)
	h := replay(t, nil, nethttp.ReplayConfig{
		Once: newOnce(t, gate), ID: byID, NoID: nethttp.NoKeySkip, MaxWait: time.Minute, HandledStatus: http.StatusOK,
		Succeeded: func(_ *http.Request, status int) bool { return status == http.StatusTeapot },
	}).Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Idempotency-Key") != "" {
			running <- struct{}{}
			w.WriteHeader(<-leave)
		}
	}))
	for range 2 {
		if r := get(h); r.StatusCode != http.StatusOK {
			t.Errorf("without an id: %d", r.StatusCode)
		}
	}
	answers := make(chan *http.Response)
	for range 2 {
		go func() { answers <- get(h, withID("a")) }()
	}
	<-running
	leave <- http.StatusOK // which is a failure here, so that the other goes on
	if r := <-answers; r.StatusCode != http.StatusOK {
		t.Errorf("the first: %d", r.StatusCode)
	}
	<-running
	leave <- http.StatusTeapot
	if r := <-answers; r.StatusCode != http.StatusTeapot {
		t.Errorf("the second: %d", r.StatusCode)
	}
	if r := get(h, withID("a")); r.StatusCode != http.StatusOK || body(t, r) != "" {
		t.Errorf("the third: %d", r.StatusCode)
	}
}

func TestReplayOfRunningRequest(t *testing.T) {
	gate := memory(t, newClock())
	var h http.Handler
	h = replay(t, nil, nethttp.ReplayConfig{Once: newOnce(t, gate), ID: byID}).
		Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if nethttp.AdmissionFromContext(r.Context()) == nil {
				t.Error("the handler has no admission")
			}
			other := get(h, withID("a")) // of another client
			if text := body(t, other); other.StatusCode != http.StatusConflict || other.Header.Get("Retry-After") == "" || !strings.Contains(text, "is being handled") {
				t.Errorf("%d %v: %s", other.StatusCode, other.Header, text)
			}
		}))
	if r := get(h, withID("a")); r.StatusCode != http.StatusOK {
		t.Error(r.StatusCode)
	}
}

// A handler that panics after its response, one that leaves because its context has ended, and one that
// says so, have failed. A refused request keeps what it has spent.
func TestReplayOfFailedHandler(t *testing.T) {
	gate := memory(t, newClock())
	calls, leave := 0, func() {}
	all := guard(t, nethttp.Config{
		Gate: gate,
		Rules: []nethttp.Rule{{
			Policy: policy(t, core.PolicyConfig{Name: "all", Algorithm: core.FixedWindow{Limit: 10, Window: 24 * time.Hour}}), Key: keyfunc.RemoteIP(),
			Settle: nethttp.CountOnly(http.StatusOK),
		}},
	})
	h := replay(t, all, nethttp.ReplayConfig{Once: newOnce(t, gate), ID: byID, HandledStatus: 409}).Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch calls++; calls {
		case 1:
			w.WriteHeader(http.StatusOK)
			panic(http.ErrAbortHandler)
		case 2: // its client leaves
			leave()
		case 3:
			w.WriteHeader(http.StatusOK)
			nethttp.AdmissionFromContext(r.Context()).Fail()
		}
	}))
	func() {
		defer func() { _ = recover() }()
		get(h, withID("a"))
	}()
	get(h, withID("a"), func(r *http.Request) {
		ctx, cancel := context.WithCancel(r.Context())
		leave = cancel
		*r = *r.WithContext(ctx)
	})
	for i, want := range []int{200, 200, 409, 409} {
		r := get(h, withID("a"))
		if r.StatusCode != want {
			t.Errorf("request %d: %d, want %d", i, r.StatusCode, want)
		}
	}
	if r := get(h, withID("b")); calls != 5 || !strings.HasPrefix(r.Header.Get("RateLimit"), `"all";r=3;`) {
		t.Errorf("the handler ran %d times, %s", calls, r.Header.Get("RateLimit"))
	}
}

// An ID of a Replay that panics leaves no slot taken, and a request that the Guard skips is handled
// once too, unless the Replay skips it.
func TestReplayBesideOthers(t *testing.T) {
	gate := memory(t, newClock())
	slots, err := semaphore.New(gate, semaphore.Config{Name: "slots"})
	if err != nil {
		t.Fatal(err)
	}
	one := guard(t, nethttp.Config{
		Skip: func(r *http.Request) bool { return r.Header.Get("Friend") != "" },
		Slot: &nethttp.Slot{Semaphore: slots, Caps: []nethttp.Cap{{Key: keyfunc.RemoteIP(), Limit: 1}}},
	})
	h := replay(t, one, nethttp.ReplayConfig{
		Once: newOnce(t, gate), HandledStatus: 409,
		ID: func(r *http.Request) (string, error) {
			if r.Header.Get("Idempotency-Key") == "" {
				panic(http.ErrAbortHandler)
			}
			return byID(r)
		},
		Skip: func(r *http.Request) bool { return r.Method == http.MethodHead },
	}).Handler(http.HandlerFunc(ok))
	func() {
		defer func() { _ = recover() }()
		get(h)
	}()
	friend := func(r *http.Request) { r.Header.Set("Friend", "1") }
	for i, want := range []int{200, 409} {
		if r := get(h, withID("a"), friend); r.StatusCode != want {
			t.Errorf("a friend's request %d: %d, want %d", i, r.StatusCode, want)
		}
	}
	for range 2 {
		if r := get(h, withID("a"), friend, func(r *http.Request) { r.Method = http.MethodHead }); r.StatusCode != 200 {
			t.Errorf("a HEAD: %d", r.StatusCode)
		}
	}
	for i, want := range []int{200, 409, 409} {
		if r := get(h, withID("b")); r.StatusCode != want {
			t.Errorf("request %d: %d, want %d", i, r.StatusCode, want)
		}
	}
}

func TestReplayFaults(t *testing.T) {
	_, err := nethttp.NewReplay(new(nethttp.Guard), nethttp.ReplayConfig{NoID: 7, MaxWait: -1, HandledStatus: 42})
	for _, want := range []string{"the Guard is nil or zero", "ReplayConfig.Once is missing", "ReplayConfig.ID is nil",
		"ReplayConfig.NoID is 7", "ReplayConfig.MaxWait is -1ns", "ReplayConfig.HandledStatus is 42"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in\n%v", want, err)
		}
	}
	gate := dead(t)
	o, err := once.New(gate, once.Config{Name: "ids", Window: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	h := replay(t, nil, nethttp.ReplayConfig{Once: o, ID: byID}).Handler(http.HandlerFunc(ok))
	if r := get(h, withID("a")); r.StatusCode != http.StatusServiceUnavailable || r.Header.Get("Retry-After") != "1" {
		t.Errorf("without Redis: %d, %v", r.StatusCode, r.Header)
	}
}

// Two replicas get each id ten times at once. Each id is handled once, although one in ten fails at
// first.
func TestReplayOverReplicas(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	const ids = 1000
	var handled, tried [ids]atomic.Int64
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var i int
		if _, err := fmt.Sscan(r.Header.Get("Idempotency-Key"), &i); err != nil {
			t.Error(err)
		}
		if tried[i].Add(1) == 1 && i%10 == 0 {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		handled[i].Add(1)
	})
	var replicas []*httptest.Server
	for range 2 {
		gate, err := core.NewRedis(s.Client(t), core.Config{Prefix: s.Prefix, Timeout: 5 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = gate.Close(t.Context()) })
		server := httptest.NewServer(replay(t, nil, nethttp.ReplayConfig{
			Once: newOnce(t, gate), ID: byID, MaxWait: time.Minute, HandledStatus: 409,
		}).Handler(handler))
		t.Cleanup(server.Close)
		replicas = append(replicas, server)
	}
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 50}}
	t.Cleanup(client.CloseIdleConnections)
	statuses := make(map[int]int)
	var mu sync.Mutex
	var wg sync.WaitGroup
	slots := make(chan struct{}, 50)
	for i := range ids {
		for n := range 10 {
			slots <- struct{}{}
			wg.Go(func() {
				defer func() { <-slots }()
				r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, replicas[n%2].URL, nil)
				if err != nil {
					t.Error(err)
					return
				}
				r.Header.Set("Idempotency-Key", fmt.Sprint(i))
				answer, err := client.Do(r)
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, answer.Body)
				_ = answer.Body.Close()
				mu.Lock()
				statuses[answer.StatusCode]++
				mu.Unlock()
			})
		}
	}
	wg.Wait()
	for i := range ids {
		if n := handled[i].Load(); n != 1 {
			t.Errorf("id %d was handled %d times", i, n)
		}
	}
	if statuses[200] != ids || statuses[502] != ids/10 || statuses[409] != 9*ids-ids/10 {
		t.Errorf("statuses %v", statuses)
	}
}

// One id on two routes, or with two methods, is two ids, unless AnyRoute says otherwise.
func TestReplayTellsRoutesApart(t *testing.T) {
	for _, around := range []bool{false, true} {
		for _, anyRoute := range []bool{false, true} {
			t.Run(fmt.Sprintf("around the mux %v, AnyRoute %v", around, anyRoute), func(t *testing.T) {
				p := replay(t, nil, nethttp.ReplayConfig{Once: newOnce(t, memory(t, newClock())), ID: byID, AnyRoute: anyRoute})
				handle := func(http.ResponseWriter, *http.Request) {}
				wrap := p.Handler
				if around {
					wrap = func(h http.Handler) http.Handler { return h }
				}
				mux := http.NewServeMux()
				for _, route := range []string{"POST /orders", "PUT /orders", "POST /orders/{id}/cancel"} {
					mux.Handle(route, wrap(http.HandlerFunc(handle)))
				}
				var h http.Handler = mux
				if around {
					h = p.Handler(mux)
				}
				other, again := 200, 200 // an answer is repeated
				if anyRoute {
					other = 422
				}
				for _, c := range []struct {
					method, path, id string
					want             int
				}{
					{"POST", "/orders", `k`, 200}, {"POST", "/orders", `"k"`, again}, {"PUT", "/orders", `k`, other},
					{"POST", "/orders/1/cancel", `k`, other}, {"POST", "/orders/1/cancel", `"k"`, other},
				} {
					r := httptest.NewRequest(c.method, c.path, nil)
					r.Header.Set("Idempotency-Key", c.id)
					w := httptest.NewRecorder()
					if h.ServeHTTP(w, r); w.Code != c.want {
						t.Errorf("%s %s, %s: %d, want %d", c.method, c.path, c.id, w.Code, c.want)
					}
				}
			})
		}
	}
}
