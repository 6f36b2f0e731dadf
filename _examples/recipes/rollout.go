package recipes

import (
	"context"
	"hash/fnv"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfunc"
	"github.com/headgate/headgate/plans"
)

// Routes has the limits of a file in front of handlers, by their patterns. The file says which limit
// counts which routes, and may change while the program runs.
func Routes(gate *core.Gate, file string, handlers map[string]http.Handler) (http.Handler, *plans.Book) {
	book := core.Must(plans.New(plans.Config{File: file}))
	guard := core.Must(nethttp.Quotas(gate, book, byTenant))
	mux := http.NewServeMux()
	for pattern, handler := range handlers {
		mux.Handle(pattern, guard.Handler(handler)) // within the mux, where the route is known
	}
	return mux, book
}

// one is a core.Plan with one limit.
type one struct{ limit core.Algorithm }

func (p one) Algorithm(string) core.Algorithm { return p.limit }

func (one) Cap(string) (limit, share, floor int64) { return 0, 0, 0 }

// Canary tries a new limit on some percent of the tenants, always the same ones.
func Canary(gate *core.Gate, next http.Handler, percent *atomic.Int64) http.Handler {
	api := core.Must(core.NewPolicy(core.PolicyConfig{Name: "api", Algorithm: core.PerMinute(60)}))
	guard := core.Must(nethttp.NewGuard(nethttp.Config{
		Gate: gate, Rules: []nethttp.Rule{{Policy: api, Key: byTenant}},
		Plan: func(r *http.Request) (core.Plan, error) {
			tenant, err := byTenant(r)
			if err != nil {
				return nil, err
			}
			hash := fnv.New32a()
			_, _ = hash.Write([]byte("api, May 2027 " + tenant)) // another canary takes other tenants
			if int64(hash.Sum32()%100) < percent.Load() {
				return one{core.PerMinute(30)}, nil
			}
			return nil, nil
		},
	}))
	return guard.Handler(next)
}

// Region admits a region's percentage of 6,000 requests a minute of each tenant. Each region has a
// Redis of its own.
func Region(gate *core.Gate, next http.Handler, percent *atomic.Int64) http.Handler {
	api := core.Must(core.NewPolicy(core.PolicyConfig{Name: "api", Algorithm: core.PerMinute(6000)}))
	guard := core.Must(nethttp.NewGuard(nethttp.Config{
		Gate: gate, Rules: []nethttp.Rule{{Policy: api, Key: byTenant}},
		Plan: func(*http.Request) (core.Plan, error) {
			return one{core.PerMinute(max(1, 6000*percent.Load()/100))}, nil
		},
	}))
	return guard.Handler(next)
}

// Exempt leaves out health checks, and a load test from some networks until a time in seconds since
// 1970, which an operator sets.
func Exempt(gate *core.Gate, next http.Handler, until *atomic.Int64) http.Handler {
	fromLab := core.Must(keyfunc.InNetworks(keyfunc.RemoteIP(), "192.0.2.0/24"))
	api := core.Must(core.NewPolicy(core.PolicyConfig{Name: "api", Algorithm: core.PerMinute(60)}))
	guard := core.Must(nethttp.NewGuard(nethttp.Config{
		Gate: gate, Rules: []nethttp.Rule{{Policy: api, Key: keyfunc.RemoteIP()}},
		Skip: func(r *http.Request) bool {
			return r.URL.Path == "/healthz" || fromLab(r) && time.Now().Unix() < until.Load()
		},
	}))
	return guard.Handler(next)
}

// Rotating makes a client that reads "user:password" from a file for each new connection.
func Rotating(addr, file string) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr: addr, ContextTimeoutEnabled: true, DialerRetries: 1,
		CredentialsProviderContext: func(context.Context) (user, password string, err error) {
			text, err := os.ReadFile(file)
			user, password, _ = strings.Cut(strings.TrimSpace(string(text)), ":")
			return user, password, err
		},
	})
}
