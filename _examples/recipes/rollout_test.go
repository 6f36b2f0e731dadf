package recipes

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/redistest"
)

var accepts = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })

// The second of two requests of a tenant states what the first has cost.
func TestCosts(t *testing.T) {
	query := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { Points(r.Context(), 250) })
	recipes := map[string]struct {
		make func(*core.Gate) http.Handler
		body string
		used int
		of   int
	}{
		"upload":      {func(g *core.Gate) http.Handler { return Uploads(g, accepts) }, strings.Repeat("x", 5000), 5000, 1 << 30},
		"batch":       {func(g *core.Gate) http.Handler { return Batch(g, accepts) }, `[{"a":1},{"a":2},{"a":3}]`, 3, 1000},
		"not a batch": {func(g *core.Gate) http.Handler { return Batch(g, accepts) }, `{`, 1, 1000},
		"query":       {func(g *core.Gate) http.Handler { return GraphQL(g, query) }, `{}`, 250, 10_000},
	}
	for name, tt := range recipes {
		t.Run(name, func(t *testing.T) {
			clock := core.NewManualClock(time.Now())
			gate := gatetest.Memory(t, core.Config{Clock: clock.Now})
			h := tt.make(gate)
			chunked := tenantRequest("acme", "")
			chunked.Body, chunked.ContentLength = io.NopCloser(strings.NewReader(tt.body)), -1
			serve(h, chunked)
			second := 1 // of an empty body, or 100 that a query reserves
			switch name {
			case "upload":
				second = 0
			case "query":
				second = 100
			}
			want := fmt.Sprintf("r=%d;", tt.of-tt.used-second)
			gatetest.Contains(t, serve(h, tenantRequest("acme", "")).Header().Get("RateLimit"), want, "got")
		})
	}
}

func TestRoutesOfAFile(t *testing.T) {
	each(t, func(t *testing.T, gate *core.Gate) {
		file := filepath.Join(t.TempDir(), "plans.yaml")
		gatetest.NoError(t, os.WriteFile(file, []byte(`
default: free
plans:
  free: {limits: {all: {rate: 60, per: 1m}, reports: {rate: 2, per: 1h}}}
routes: {reports: ["/reports/{id}"]}
`), 0o600))
		api, book := Routes(gate, file, map[string]http.Handler{"/reports/{id}": accepts, "/items": accepts})
		defer book.Close()
		for i, step := range []struct {
			path string
			want int
		}{{"/reports/1", 200}, {"/items", 200}, {"/reports/2", 200}, {"/reports/3", 429}, {"/items", 200}} {
			r := tenantRequest("acme", "")
			r.URL.Path = step.path
			gatetest.Equal(t, serve(api, r).Code, step.want, "%d: %s has status", i, step.path)
		}
	})
}

// limits counts the tenants that have each RateLimit-Policy.
func limits(h http.Handler) map[string]int {
	found := make(map[string]int)
	for i := range 200 {
		found[serve(h, tenantRequest(fmt.Sprint("tenant-", i), "")).Header().Get("RateLimit-Policy")]++
	}
	return found
}

func TestShareOfTenantsAndOfRegions(t *testing.T) {
	gate := gatetest.Memory(t, core.Config{})
	var percent atomic.Int64
	canary, region := Canary(gate, accepts, &percent), Region(gate, accepts, &percent)
	few := 0
	for _, p := range []int64{0, 10, 100} {
		percent.Store(p)
		found := limits(canary)
		tried := found[`"api";q=30;w=60`]
		if p == 10 {
			few = tried
		} else if want := int(2 * p); tried != want {
			t.Errorf("%d %%: %v", p, found)
		}
	}
	if few < 5 || few > 45 {
		t.Errorf("10 %% of 200 tenants are %d", few)
	}
	percent.Store(40)
	if found := limits(region); found[`"api";q=2400;w=60`] != 200 {
		t.Errorf("40 %% of the limit: %v", found)
	}
}

func TestExemptUntil(t *testing.T) {
	gate := gatetest.Memory(t, core.Config{Clock: core.NewManualClock(time.Now()).Now})
	var until atomic.Int64
	h := Exempt(gate, accepts, &until)
	ask := func(path string) (status int) {
		for range 61 {
			status = serve(h, httptest.NewRequest(http.MethodGet, path, nil)).Code // from 192.0.2.1
		}
		return status
	}
	until.Store(time.Now().Add(time.Hour).Unix())
	gatetest.Equal(t, ask("/"), 200, "the load test: status")
	until.Store(0)
	gatetest.Equal(t, ask("/"), 429, "after it: status")
	gatetest.Equal(t, ask("/healthz"), 200, "a probe: status")
}

func TestPasswordIsRotated(t *testing.T) {
	s := redistest.Start(t)
	admin := s.Client(t)
	acl := func(rules ...any) {
		t.Helper()
		gatetest.NoError(t, admin.Do(t.Context(), append([]any{"ACL", "SETUSER", "app"}, rules...)...).Err())
	}
	file := filepath.Join(t.TempDir(), "redis")
	password := func(p string) { gatetest.NoError(t, os.WriteFile(file, []byte("app:"+p+"\n"), 0o600)) }
	acl("on", ">old", "~*", "&*", "+@all")
	password("old")
	client := Rotating(s.Addr, file)
	defer client.Close()
	gate := gatetest.Redis(t, client, core.Config{Prefix: s.Prefix})
	api := core.Must(core.NewPolicy(core.PolicyConfig{Name: "api", Algorithm: core.PerMinute(60)}))
	decide := func(when string) {
		t.Helper()
		d, err := gate.Decide(t.Context(), core.Charge{Policy: api, Key: core.Must(core.NewKey("acme")), Cost: 1})
		if err != nil || d.Source != core.SourceRedis {
			t.Errorf("%s: %v decided, %v, %v", when, d.Source, d.Cause, err)
		}
	}
	decide("by the old password")
	acl(">new")
	password("new")
	acl("<old")
	decide("on an open connection")
	gatetest.NoError(t, admin.Do(t.Context(), "CLIENT", "KILL", "USER", "app").Err())
	gatetest.NoError(t, client.Ping(t.Context()).Err()) // connects again
	decide("by the new password")
}
