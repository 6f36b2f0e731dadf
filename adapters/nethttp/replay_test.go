package nethttp_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/once"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/keyfunc"
)

func newOnce(t *testing.T, g *core.Gate) *once.Once {
	t.Helper()
	o := gatetest.Must(once.New(g, once.Config{Name: "ids", Window: time.Hour}))(t)
	return o
}

func replay(t *testing.T, g *nethttp.Guard, cfg nethttp.ReplayConfig) *nethttp.Replay {
	t.Helper()
	p := gatetest.Must(nethttp.NewReplay(g, cfg))(t)
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
			Policy: policy(t, core.PolicyConfig{Name: "all", Algorithm: core.FixedWindow{Limit: 7, Window: 24 * time.Hour}}), Key: keyfunc.RemoteIP(),
		}},
	})
	h := replay(t, all, nethttp.ReplayConfig{Once: newOnce(t, gate), ID: byID, HandledStatus: 409}).Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls++
		if r.Header.Get("Panic") != "" {
			panic(http.ErrAbortHandler)
		}
		w.WriteHeader(status)
		if calls == 3 {
			nethttp.AdmissionFromContext(r.Context()).Fail()
		}
	}))
	try := func(want int, change ...func(*http.Request)) *http.Response {
		t.Helper()
		r := get(h, change...)
		gatetest.Equal(t, r.StatusCode, want, "status")
		return r
	}
	try(500, withID("a"))
	func() {
		defer func() { _ = recover() }()
		get(h, withID("a"), func(r *http.Request) { r.Header.Set("Panic", "1") })
	}()
	status = http.StatusCreated
	try(201, withID("a")) // which has failed, as the handler says
	try(201, withID("a"))
	r := try(409, withID("a"))
	if text := body(t, r); !strings.Contains(text, "was handled before") || r.Header.Get("Retry-After") != "" || r.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("%v: %s", r.Header, text)
	}
	try(201, withID("b"))
	try(400) // no id, which counts under the rules too
	try(429, withID("c"))
	gatetest.Equal(t, calls, 5, "runs of the handler")
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
	gatetest.Equal(t, get(h, withID("a")).StatusCode, http.StatusOK, "got")
}

// A request that the Guard skips is handled once too, unless the Replay skips it.
func TestReplayOfSkippedRequests(t *testing.T) {
	h := replay(t, counted(t, func(cfg *nethttp.Config) {
		cfg.Skip = func(*http.Request) bool { return true }
	}), nethttp.ReplayConfig{
		Once: newOnce(t, memory(t, newClock())), ID: byID, HandledStatus: 409,
		Skip: func(r *http.Request) bool { return r.Method == http.MethodHead },
	}).Handler(http.HandlerFunc(ok))
	for _, c := range []struct {
		method string
		status int
	}{{"POST", 200}, {"POST", 409}, {"HEAD", 200}, {"HEAD", 200}} {
		answers(t, get(h, withID("a"), func(r *http.Request) { r.Method = c.method }), c.status)
	}
}

// A HandledStatus below 300 is no refusal, so Config.Refuse is not asked.
func TestHandledIsNotRefused(t *testing.T) {
	for _, status := range []int{200, 409} {
		refused := false
		g := counted(t, func(cfg *nethttp.Config) {
			cfg.Refuse = func(w http.ResponseWriter, _ *http.Request, a *nethttp.Admission) {
				refused = true
				http.Error(w, "refused", a.Status())
			}
		})
		h := replay(t, g, nethttp.ReplayConfig{Once: newOnce(t, memory(t, newClock())), ID: byID, HandledStatus: status}).
			Handler(http.HandlerFunc(ok))
		get(h, withID("a"))
		answers(t, get(h, withID("a")), status)
		gatetest.Equal(t, refused, status == 409, "%d is refused", status)
	}
}

func TestReplayFaults(t *testing.T) {
	_, err := nethttp.NewReplay(new(nethttp.Guard), nethttp.ReplayConfig{NoID: 7, MaxWait: -1, HandledStatus: 302})
	for _, want := range []string{"the Guard is nil or zero", "ReplayConfig.Once is missing", "ReplayConfig.ID is nil",
		"ReplayConfig.NoID is 7", "ReplayConfig.MaxWait is -1ns", "ReplayConfig.HandledStatus is 302"} {
		gatetest.Contains(t, fmt.Sprint(err), want, "error")
	}
	gate := dead(t)
	o := gatetest.Must(once.New(gate, once.Config{Name: "ids", Window: time.Hour}))(t)
	h := replay(t, nil, nethttp.ReplayConfig{Once: o, ID: byID}).Handler(http.HandlerFunc(ok))
	if r := get(h, withID("a")); r.StatusCode != http.StatusServiceUnavailable || r.Header.Get("Retry-After") != "1" {
		t.Errorf("without Redis: %d, %v", r.StatusCode, r.Header)
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
					r, w := httptest.NewRequest(c.method, c.path, nil), httptest.NewRecorder()
					withID(c.id)(r)
					h.ServeHTTP(w, r)
					gatetest.Equal(t, w.Code, c.want, "%s %s, %s", c.method, c.path, c.id)
				}
			})
		}
	}
}

// The handler of an id runs once, at whatever moment Redis refuses for a second: before the request,
// beside it, or when its handler has returned.
func TestReplayWhileRedisRefuses(t *testing.T) {
	t.Parallel()
	ids, rounds := 20, 1
	if gatetest.Long() {
		ids, rounds = 50, 7
	}
	for name, change := range map[string][2]string{
		"a right for scripts is revoked": {"-evalsha -eval", "+evalsha +eval"},
		"a right in scripts is revoked":  {"-set", "+set"},
		"the password is rotated":        {"<secret >other", "<other >secret"},
		"the user is off":                {"off", "on"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t)
			admin := s.Client(t)
			alter := func(rules string) error {
				args := []any{"ACL", "SETUSER", "app"}
				for _, rule := range strings.Fields(rules) {
					args = append(args, rule)
				}
				if err := admin.Do(context.Background(), args...).Err(); err != nil {
					return err
				}
				return admin.Do(context.Background(), "CLIENT", "KILL", "USER", "app").Err()
			}
			gatetest.NoError(t, alter("on >secret ~* &* +@all"))
			client := s.Client(t, func(o *redis.Options) { o.Username, o.Password = "app", "secret" })
			gate := gatetest.Redis(t, client, core.Config{Timeout: gatetest.BusyTimeout})
			var ran sync.Map
			h := replay(t, nil, nethttp.ReplayConfig{Once: newOnce(t, gate), ID: byID, HandledStatus: 409}).
				Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					n, _ := ran.LoadOrStore(r.Header.Get("Idempotency-Key"), new(atomic.Int64))
					n.(*atomic.Int64).Add(1)
					pass(rand.N(300 * time.Millisecond)) // it pays
				}))
			for round := range rounds {
				var clients sync.WaitGroup
				for i := range ids {
					clients.Go(func() {
						id := fmt.Sprint(round, "-", i)
						pass(rand.N(1400 * time.Millisecond))
						for begun := time.Now(); ; pass(100 * time.Millisecond) {
							r := get(h, withID(id))
							if r.StatusCode == http.StatusConflict && r.Header.Get("Retry-After") == "" {
								return // it was handled
							}
							if time.Since(begun) > gatetest.LongTimeout {
								t.Errorf("%s: status %d at last", id, r.StatusCode)
								return
							}
						}
					})
				}
				pass(200 * time.Millisecond)
				gatetest.Worked(t, alter(change[0]))
				pass(time.Second)
				gatetest.Worked(t, alter(change[1]))
				clients.Wait()
			}
			ran.Range(func(id, n any) bool {
				gatetest.Equal(t, n.(*atomic.Int64).Load(), 1, "runs of the handler of %v", id)
				return true
			})
		})
	}
}

// pass lets time pass.
func pass(d time.Duration) { <-time.After(d) }
