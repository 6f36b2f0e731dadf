package nethttp_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/keyfunc"
)

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
	guard, err := nethttp.NewGuard(nethttp.Config{Gate: newGate(), Rules: []nethttp.Rule{{
		Policy: newPolicy("guesses", core.PerHour(1)),
		Key:    keyfunc.Must(keyfunc.Header("Login")),
		NoKey:  nethttp.NoKeySkip, // wrong: keep NoKeyRefuse
	}}})
	if err != nil {
		fmt.Println(err)
		return
	}
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
	streams, err := semaphore.New(gate, semaphore.Config{Name: "streams"})
	if err != nil {
		fmt.Println(err)
		return
	}
	guard, err := nethttp.NewGuard(nethttp.Config{Gate: gate, Slot: &nethttp.Slot{
		Semaphore: streams, Caps: []nethttp.Cap{{Key: keyfunc.RemoteIP(), Limit: 1}},
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
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
