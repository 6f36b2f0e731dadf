package nethttp

import (
	"fmt"
	"net/http"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfunc"
)

// Middleware applies the guard to the handlers it wraps. A panic of theirs goes through.
func Middleware(g *Guard) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			a := g.Admit(r)
			a.WriteHeaders(w.Header())
			if !a.Allowed() {
				g.Refuse(w, r, a)
				return
			}
			inner := r.WithContext(a.WithContext(r.Context()))
			// A mux sets the pattern of the request it is given, and those outside of us look for it in theirs.
			defer func() { r.Pattern = inner.Pattern }()
			next.ServeHTTP(w, inner)
		})
	}
}

// Limit is the middleware of one rule: a policy named "default" with this limit, counted on key.
func Limit(gate *core.Gate, limit core.Algorithm, key keyfunc.Func) (func(http.Handler) http.Handler, error) {
	policy, err := core.NewPolicy(core.PolicyConfig{Name: "default", Algorithm: limit})
	if err != nil {
		return nil, fmt.Errorf("nethttp: Limit: %w", err)
	}
	g, err := NewGuard(Config{Gate: gate, Rules: []Rule{{Policy: policy, Key: key}}})
	if err != nil {
		return nil, fmt.Errorf("nethttp: Limit: %w", err)
	}
	return Middleware(g), nil
}
