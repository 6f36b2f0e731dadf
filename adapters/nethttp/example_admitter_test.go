package nethttp_test

import (
	"fmt"
	"net/http"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfunc"
)

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
	api, err := nethttp.NewGuard(nethttp.Config{
		Gate:    newGate(),
		Rules:   []nethttp.Rule{{Policy: newPolicy("api", core.PerMinute(1)), Key: keyfunc.RemoteIP()}},
		Dialect: nethttp.Legacy{Refusal: nethttp.Refusal{PlainText: true}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	h := api.Handler(hello)
	request(h)
	w := request(h)
	fmt.Println(w.Code, w.Header().Get("X-RateLimit-Reset"))
	fmt.Print(w.Body)
	// Output:
	// 429 60
	// The quota of policy "api" is exhausted.
}
