package nethttp

import "net/http"

// Admitter admits requests or refuses them: a *Guard, or a *Replay around one. Every adapter takes
// one.
//
// An adapter calls Admit, Exchange.WriteHeaders, and then either the next handler with the context
// that Exchange.WithContext and the ResponseWriter that Exchange.Writer returns, or Refuse. In both
// cases it calls Exchange.Finish or FinishWritten at the end, also if WriteHeaders or Refuse panics:
// both call funcs of the configuration.
type Admitter interface {
	// Check returns an error if no constructor made it, as for a nil *Guard. An adapter panics with
	// it when it is mounted, so that the mistake is found before the first request.
	Check() error
	// Admit decides on a request, spends the costs of its rules and takes its slot. It writes
	// nothing.
	Admit(r *http.Request) *Exchange
	// Refuse answers a request that was not admitted.
	Refuse(w http.ResponseWriter, r *http.Request, a *Admission)
	// Handler returns a handler that passes admitted requests to next.
	Handler(next http.Handler) http.Handler
}

// handler passes the requests that g admits to next.
func handler(g Admitter, next http.Handler) http.Handler {
	if err := g.Check(); err != nil {
		panic(err)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x := g.Admit(r)
		if !x.Allowed() {
			defer func() { x.Finish(r, x.Status()) }()
			x.WriteHeaders(w.Header())
			g.Refuse(w, r, &x.Admission)
			return
		}
		inner := r.WithContext(x.WithContext(r.Context()))
		returned := false
		defer func() { x.FinishWritten(inner, returned) }()
		x.WriteHeaders(w.Header())
		next.ServeHTTP(x.Writer(w), inner)
		returned = true
	})
}
