package nethttp_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/keyfunc"
)

// The headers of a cached denial state only what is known.
func TestCachedDenial(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		gate := core.Must(core.NewRedis(s.Client(t), core.Config{Prefix: s.Prefix, Timeout: 30 * time.Second}))
		hour := core.TokenBucket{Rate: 1, Per: time.Hour, Burst: 1}
		for _, c := range []struct {
			name         string
			dialect      nethttp.Dialect
			header       string
			asked, known string
		}{
			{"draft", nethttp.Draft11{}, "RateLimit", `"p";r=0;t=3600, "q";r=9;t=6`, `"p";r=0;t=3600`},
			{"legacy", nethttp.Legacy{}, "X-RateLimit-Reset", "3600", "3600"},
		} {
			t.Run(c.name, func(t *testing.T) {
				var known bool
				observe := observed(func(a *nethttp.Admission) { known = a.Decision().Source == core.SourceCache })
				g := guard(t, nethttp.Config{Gate: gate, Dialect: c.dialect, Observe: observe, Rules: []nethttp.Rule{
					{Policy: policy(t, core.PolicyConfig{Name: "p", Algorithm: hour}), Key: keyfunc.Must(keyfunc.Header("User"))},
					{Policy: policy(t, core.PolicyConfig{Name: "q", Algorithm: core.PerMinute(10)}), Key: keyfunc.RemoteIP()},
				}})
				h := g.Handler(http.HandlerFunc(ok))
				named := func(r *http.Request) { r.Header.Set("User", c.name) }
				if r := get(h, named); r.StatusCode != 200 {
					t.Fatal(r.StatusCode, r.Header)
				}
				for range 2 {
					r, want := get(h, named), c.asked
					if known {
						want = c.known
					}
					if r.StatusCode != 429 || r.Header.Get("Retry-After") != "3600" || r.Header.Get(c.header) != want {
						t.Errorf("known %v: %d, %v", known, r.StatusCode, r.Header)
					}
					if c.name == "draft" && r.Header.Get("RateLimit-Policy") != `"p";q=1;w=3600, "q";q=10;w=60` {
						t.Errorf("known %v: %v", known, r.Header)
					}
				}
			})
		}
	})
}
