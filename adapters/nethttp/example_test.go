package nethttp_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/keyfunc"
)

// newGate returns a Gate in memory whose clock stands still, so that the output of an example is
// the same in every run. A service with several processes uses core.NewRedis.
func newGate() *core.Gate {
	clock := core.NewManualClock(time.Unix(1_800_000_000, 0))
	return core.Must(core.NewMemory(core.Config{Clock: clock.Now}))
}

func newPolicy(name string, algorithm core.Algorithm) *core.Policy {
	return core.Must(core.NewPolicy(core.PolicyConfig{Name: name, Algorithm: algorithm}))
}

// request plays a GET request with these headers, each a name and a value.
func request(h http.Handler, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

var hello = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
	fmt.Fprint(w, "hello")
})

func ExampleLimit() {
	gate := newGate()
	api := core.Must(nethttp.Limit(gate, "api", core.PerMinute(2), keyfunc.RemoteIP()))
	h := api.Handler(hello)
	fmt.Println(request(h).Header().Get("RateLimit"))
	fmt.Println(request(h).Header().Get("RateLimit"))
	w := request(h)
	fmt.Println(w.Code, "Retry-After:", w.Header().Get("Retry-After"))
	// Output:
	// "api";r=1;t=30
	// "api";r=0;t=30
	// 429 Retry-After: 30
}

// One guard wraps any number of handlers, which share its limits.
func ExampleGuard_Handler() {
	api := core.Must(nethttp.Limit(newGate(), "api", core.PerMinute(1), keyfunc.RemoteIP()))
	mux := http.NewServeMux()
	mux.Handle("GET /a", api.Handler(hello))
	mux.Handle("GET /b", api.Handler(hello))
	for _, path := range []string{"/a", "/b"} {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		fmt.Println(w.Code)
	}
	// Output:
	// 200
	// 429
}

// Two rules are one decision. A request that the tenant's limit denies spends nothing of the
// user's.
func ExampleNewGuard() {
	api := core.Must(nethttp.NewGuard(nethttp.Config{
		Gate:  newGate(),
		Scope: keyfunc.Must(keyfunc.Header("X-Tenant")), // behind authentication
		Rules: []nethttp.Rule{{
			Policy: newPolicy("tenant", core.PerMinute(2)),
			Key:    keyfunc.Must(keyfunc.Static("all")),
		}, {
			Policy: newPolicy("user", core.PerMinute(100)),
			Key:    keyfunc.Must(keyfunc.Header("X-User")),
		}},
	}))
	h := api.Handler(hello)
	for range 3 {
		w := request(h, "X-Tenant", "acme", "X-User", "ann")
		fmt.Println(w.Code, w.Header().Get("RateLimit"))
	}
	// Output:
	// 200 "tenant";r=1;t=30, "user";r=99;t=1
	// 200 "tenant";r=0;t=30, "user";r=98;t=1
	// 429 "tenant";r=0;t=30, "user";r=98;t=1
}

func ExampleSlot() {
	gate := newGate()
	streams := core.Must(semaphore.New(gate, semaphore.Config{Name: "streams"}))
	chat := core.Must(nethttp.NewGuard(nethttp.Config{Gate: gate, Slot: &nethttp.Slot{
		Semaphore: streams,
		Caps: []nethttp.Cap{
			{Name: "streams", Key: keyfunc.Must(keyfunc.Header("X-User")), Limit: 1},
		},
	}}))
	second := chat.Handler(hello)
	first := chat.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		fmt.Println("while the first runs:", request(second, "X-User", "ann").Code)
	}))
	request(first, "X-User", "ann")
	fmt.Println("when it has returned:", request(second, "X-User", "ann").Code)
	// Output:
	// while the first runs: 429
	// when it has returned: 200
}

// Only failed logins count. A client that logs in successfully is not limited.
func ExampleCountOnly() {
	logins := core.Must(nethttp.NewGuard(nethttp.Config{Gate: newGate(), Rules: []nethttp.Rule{{
		Policy: newPolicy("logins", core.PerHour(2)),
		Key:    keyfunc.RemoteIP(),
		Settle: nethttp.CountOnly(http.StatusUnauthorized, http.StatusForbidden),
	}}}))
	login := logins.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Password") != "secret" {
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	for _, password := range []string{"secret", "secret", "secret", "guess", "guess", "guess"} {
		fmt.Println(request(login, "Password", password).Code)
	}
	// Output:
	// 200
	// 200
	// 200
	// 401
	// 401
	// 429
}

// customer is a core.Plan that has a limit under each of some policies.
type customer map[string]core.Algorithm

func (c customer) Algorithm(policy string) core.Algorithm { return c[policy] }

func (customer) Cap(string) (limit, share, floor int64) { return 0, 0, 0 }

// The limits of a request are those of its customer's plan. Package plans has plans of a file.
func ExampleConfig_plan() {
	plans := map[string]customer{"ann's key": {"api": core.PerHour(1000)}}
	api := core.Must(nethttp.NewGuard(nethttp.Config{
		Gate: newGate(),
		Rules: []nethttp.Rule{{
			Policy: newPolicy("api", core.PerHour(10)), // of customers without a plan
			Key:    keyfunc.Must(keyfunc.Header("X-Api-Key")),
		}},
		Plan: func(r *http.Request) (core.Plan, error) {
			return plans[r.Header.Get("X-Api-Key")], nil // a nil map names no policy
		},
	}))
	h := api.Handler(hello)
	fmt.Println(request(h, "X-Api-Key", "ann's key").Header().Get("RateLimit-Policy"))
	fmt.Println(request(h, "X-Api-Key", "bob's key").Header().Get("RateLimit-Policy"))
	// Output:
	// "api";q=1000;w=3600
	// "api";q=10;w=3600
}

// The cost of a request is in its body. The handler reads the whole body again.
func ExampleRule_costBody() {
	tokens := core.Must(nethttp.NewGuard(nethttp.Config{Gate: newGate(), Rules: []nethttp.Rule{{
		Policy:   newPolicy("tokens", core.TokenBucket{Burst: 1000}),
		Key:      keyfunc.RemoteIP(),
		CostBody: 1 << 16,
		Cost: func(r *http.Request) int64 {
			var ask struct {
				MaxTokens int64 `json:"max_tokens"`
			}
			if err := json.NewDecoder(r.Body).Decode(&ask); err != nil || ask.MaxTokens < 1 {
				return 500 // also for a body of more than CostBody bytes
			}
			return ask.MaxTokens
		},
	}}}))
	fmt.Println(request(tokens.Handler(hello)).Header().Get("RateLimit"))
	// Output: "tokens";r=500
}

// An operator looks up and resets the limits of a client by a request that it makes up.
func ExampleGuard_Charges() {
	gate := newGate()
	byAPIKey := keyfunc.Must(keyfunc.Header("X-Api-Key"))
	api := core.Must(nethttp.Limit(gate, "api", core.PerHour(3), byAPIKey))
	h := api.Handler(hello)
	request(h, "X-Api-Key", "ann's key")

	r := httptest.NewRequest("GET", "/", nil)
	r.Header.Set("X-Api-Key", "ann's key")
	charges, err := api.Charges(r)
	if err != nil {
		fmt.Println(err)
		return
	}
	d, err := gate.Peek(context.Background(), charges...)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, result := range d.Results() {
		fmt.Println(result.Policy.Name(), "has", result.Remaining, "left")
	}
	if err := gate.Reset(context.Background(), charges...); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(request(h, "X-Api-Key", "ann's key").Header().Get("RateLimit"))
	// Output:
	// api has 2 left
	// "api";r=2;t=1200
}

// Guards at the start of a program need no error handling.
func Example() {
	api := core.Must(nethttp.Limit(newGate(), "api", core.PerMinute(100), keyfunc.RemoteIP()))
	fmt.Println(request(api.Handler(hello)).Body)
	// Output: hello
}

// An adapter for a framework of your own drives an Exchange from Admit to Finish.
func ExampleAdmitter() {
	type handler func(w http.ResponseWriter, r *http.Request) (status int)
	limited := func(g nethttp.Admitter, next handler) handler {
		if err := g.Check(); err != nil {
			panic(err)
		}
		return func(w http.ResponseWriter, r *http.Request) (status int) {
			x := g.Admit(r)
			x.WriteHeaders(w.Header())
			if !x.Allowed() {
				g.Refuse(w, r, &x.Admission)
				x.Finish(r, x.Status())
				return x.Status()
			}
			inner := r.WithContext(x.WithContext(r.Context()))
			status = http.StatusInternalServerError // if next panics
			defer func() { x.Finish(inner, status) }()
			status = next(w, inner)
			return status
		}
	}
	api := core.Must(nethttp.Limit(newGate(), "api", core.PerMinute(1), keyfunc.RemoteIP()))
	h := limited(api, func(_ http.ResponseWriter, r *http.Request) int {
		fmt.Println(nethttp.AdmissionFromContext(r.Context()).Decision().At(0).Remaining, "left")
		return http.StatusOK
	})
	for range 2 {
		request(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Println(h(w, r))
		}))
	}
	// Output:
	// 0 left
	// 200
	// 429
}

// Clients that read X-RateLimit headers and want a line of text have a Dialect of their own.
func ExampleDialect() {
	api := core.Must(nethttp.NewGuard(nethttp.Config{
		Gate:    newGate(),
		Rules:   []nethttp.Rule{{Policy: newPolicy("api", core.PerMinute(1)), Key: keyfunc.RemoteIP()}},
		Dialect: nethttp.Legacy{Refusal: nethttp.Refusal{PlainText: true}},
	}))
	h := api.Handler(hello)
	request(h)
	w := request(h)
	fmt.Println(w.Code, w.Header().Get("X-RateLimit-Reset"))
	fmt.Print(w.Body)
	// Output:
	// 429 60
	// The quota of policy "api" is exhausted.
}

// Do not read an identity outside the authentication. There the client writes it: here a client
// that may make one request an hour makes three by three names.
func ExampleNewGuard_incorrect() {
	perUser := core.Must(nethttp.Limit(newGate(), "user", core.PerHour(1),
		keyfunc.Must(keyfunc.Header("X-User"))))
	authenticate := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r.Header.Set("X-User", "ann") // verified by r's cookie
			next.ServeHTTP(w, r)
		})
	}
	wrong := perUser.Handler(authenticate(hello)) // right: authenticate(perUser.Handler(hello))
	for _, name := range []string{"a", "b", "c"} {
		fmt.Println(request(wrong, "X-User", name).Code)
	}
	// Output:
	// 200
	// 200
	// 200
}

// Do not use NoKeySkip if a client can leave the key out and still be served. Here the login reads
// the name from the query or from a header, and the rule only from the header, so guesses by the
// query are not limited.
func ExampleNoKey_incorrect() {
	guard := core.Must(nethttp.NewGuard(nethttp.Config{Gate: newGate(), Rules: []nethttp.Rule{{
		Policy: newPolicy("guesses", core.PerHour(1)),
		Key:    keyfunc.Must(keyfunc.Header("Login")),
		NoKey:  nethttp.NoKeySkip, // wrong: keep NoKeyRefuse
	}}}))
	login := guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusUnauthorized) // the password is wrong
	}))
	for range 3 {
		w := httptest.NewRecorder()
		login.ServeHTTP(w, httptest.NewRequest("GET", "/?login=ann", nil))
		fmt.Println(w.Code)
	}
	// Output:
	// 401
	// 401
	// 401
}

// Do not call Admit without Finish in an adapter of your own. Here the slot of a request that has
// returned stays taken.
func ExampleGuard_Admit_incorrect() {
	gate := newGate()
	streams := core.Must(semaphore.New(gate, semaphore.Config{Name: "streams"}))
	guard := core.Must(nethttp.NewGuard(nethttp.Config{Gate: gate, Slot: &nethttp.Slot{
		Semaphore: streams, Caps: []nethttp.Cap{{Key: keyfunc.RemoteIP(), Limit: 1}},
	}}))
	adapter := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			x := guard.Admit(r) // wrong: x.Finish is never called
			x.WriteHeaders(w.Header())
			if !x.Allowed() {
				guard.Refuse(w, r, &x.Admission)
				return
			}
			next.ServeHTTP(w, r.WithContext(x.WithContext(r.Context())))
		})
	}
	h := adapter(hello)
	fmt.Println(request(h).Code)
	fmt.Println(request(h).Code)
	// Output:
	// 200
	// 429
}

// A client reads what it has used. The clock of the example stands still.
func ExampleGuard_Usage() {
	gate := newGate()
	api := core.Must(nethttp.NewGuard(nethttp.Config{Gate: gate, Rules: []nethttp.Rule{{
		Policy: newPolicy("day", core.Calendar{Limit: 1000, Every: core.PeriodDay, In: time.UTC}),
		Key:    keyfunc.BearerToken(), // which an earlier middleware has checked
	}}}))
	request(api.Handler(hello), "Authorization", "Bearer abc")
	w := request(api.Usage(), "Authorization", "Bearer abc")
	fmt.Println(w.Header().Get("Content-Type"))
	fmt.Print(w.Body)
	// Output:
	// application/json
	// {"policies":[{"name":"day","q":1000,"qu":"requests","w":86400,"used":1,"r":999,"t":57600,"reset":57600}],"caps":[]}
}
