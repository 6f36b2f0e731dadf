package nethttp

import (
	"fmt"
	"net/http"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfunc"
)

// Middleware applies the guard to the handlers it wraps. A panic of theirs goes through. It panics itself, when it is
// called, if the guard was not made by NewGuard.
func Middleware(g *Guard) func(http.Handler) http.Handler {
	if g == nil || len(g.cfg.Rules) == 0 && g.cfg.Concurrency == nil {
		panic("nethttp: Middleware of a Guard that NewGuard did not make")
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			a := g.Admit(r)
			a.WriteHeaders(w.Header())
			if !a.Allowed() {
				g.Refuse(w, r, a)
				a.Finish(r, a.Status())
				return
			}
			inner := r.WithContext(a.WithContext(r.Context()))
			w, seen := a.watch(w)
			returned := false
			defer func() {
				// A mux sets the pattern of the request it is given, and those outside of us look for it in theirs.
				r.Pattern = inner.Pattern
				a.Finish(inner, seen.code(returned))
			}()
			next.ServeHTTP(w, inner)
			returned = true
		})
	}
}

// Limit is the middleware of one rule: a policy of this name and limit, counted on key. Limits of one name and one
// algorithm count together, wherever they are.
func Limit(gate *core.Gate, name string, limit core.Algorithm, key keyfunc.Func) (func(http.Handler) http.Handler, error) {
	policy, err := core.NewPolicy(core.PolicyConfig{Name: name, Algorithm: limit})
	if err != nil {
		return nil, fmt.Errorf("nethttp: Limit: %w", err)
	}
	g, err := NewGuard(Config{Gate: gate, Rules: []Rule{{Policy: policy, Key: key}}})
	if err != nil {
		return nil, fmt.Errorf("nethttp: Limit: %w", err)
	}
	return Middleware(g), nil
}
