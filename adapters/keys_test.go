package adapters_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	chimiddleware "github.com/go-chi/chi/v5/middleware"
	"github.com/labstack/echo/v5"

	chigate "github.com/headgate/headgate/adapters/chi"
	echov5gate "github.com/headgate/headgate/adapters/echov5"
	gingate "github.com/headgate/headgate/adapters/gin"
	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/keyfunc"
)

// client attacks, through proxy or directly.
const client, proxy = "203.0.113.9", "10.0.0.1"

// attacks are what a client writes into the headers in claimed.
var attacks = []struct {
	name  string
	lines []string
}{
	{"nothing", nil},
	{"leftmost address", []string{"6.6.6.6"}},
	{"list", []string{"6.6.6.6, 7.7.7.7"}},
	{"several lines", []string{"6.6.6.6", "7.7.7.7"}},
	{"many lines", slices.Repeat([]string{"6.6.6.6"}, 200)},
	{"garbage", []string{"not an ip \u2603"}},
	{"garbage hop", []string{"6.6.6.6, unknown"}},
	{"garbage line", []string{"6.6.6.6", "_hidden"}},
	{"empty", []string{""}},
	{"comma", []string{"6.6.6.6,"}},
	{"commas", []string{",,,"}},
	{"a proxy's address", []string{"10.6.6.6"}},
	{"all hops trusted", []string{"10.6.6.6, 10.0.0.2, 10.0.0.1"}},
	{"mapped proxy", []string{"6.6.6.6, ::ffff:10.0.0.2"}},
	{"mapped address", []string{"::ffff:6.6.6.6"}},
	{"loopback", []string{"127.0.0.1"}},
	{"IPv6 loopback", []string{"::1"}},
	{"zone", []string{"6.6.6.6, fe80::1%eth0"}},
	{"port", []string{"6.6.6.6:80"}},
	{"brackets", []string{"[2001:db8::6]"}},
	{"brackets and port", []string{"[2001:db8::6]:80"}},
	{"octal", []string{"006.006.006.006"}},
	{"quotes", []string{`"6.6.6.6"`}},
	{"open quote", []string{`for="6.6.6.6`}},
	{"escaped quote", []string{`for="6.6.6.6\"`}},
	{"Forwarded", []string{"for=6.6.6.6"}},
	{"Forwarded, trusted", []string{`for="[::ffff:10.0.0.2]", for=10.0.0.2`}},
	{"Forwarded, obfuscated", []string{"for=6.6.6.6, for=_hidden"}},
	{"Forwarded, unknown", []string{"for=unknown"}},
	{"1 MiB", []string{strings.Repeat("6.6.6.6, ", 1<<20/9)}},
	{"1 MiB of proxies", []string{strings.Repeat("10.0.0.2,", 1<<20/9) + "10.0.0.2"}},
	{"1 MiB of one address", []string{strings.Repeat("6", 1<<20)}},
}

// claimed are headers that some server reads a client address from.
var claimed = []string{
	"X-Forwarded-For", "Forwarded", "X-Real-Ip", "True-Client-Ip", "X-Client-Ip", "Cf-Connecting-Ip", "Client-Ip", "X-Forwarded",
	"X-Cluster-Client-Ip", "X-Original-Forwarded-For", "X-Appengine-Remote-Addr", "Fly-Client-Ip", "X-Remote-Ip", "Via",
}

// proxied changes the client's headers as a proxy does: it adds to the lists and overwrites
// X-Real-Ip.
func proxied(h http.Header, newLine bool) {
	for name, added := range map[string]string{"X-Forwarded-For": client, "Forwarded": "for=" + client} {
		if lines := h[name]; len(lines) == 0 || newLine {
			h[name] = append(slices.Clone(lines), added)
		} else {
			h[name] = append(slices.Clone(lines[:len(lines)-1]), lines[len(lines)-1]+", "+added)
		}
	}
	h["X-Real-Ip"] = []string{client}
}

// byKey returns an app behind a guard of one rule by a key, which it records.
func (f *fixture) byKey(fw framework, p core.PolicyConfig, key keyfunc.Func) http.Handler {
	return fw.build(&app{root: f.limit(p, keyed(f.recorded(key))), routes: routes})
}

func TestSpoofing(t *testing.T) {
	type way struct {
		name            string
		key             keyfunc.Func
		outside         func(http.Handler) http.Handler
		direct, proxied bool
	}
	each(t, func(t *testing.T, fw framework) {
		ways := []way{
			{"RemoteIP", keyfunc.RemoteIP(), nil, true, false},
			{"TrustedProxies", keyfunc.Must(keyfunc.TrustedProxies(proxies...)), nil, true, true},
			{"Forwarded", keyfunc.Must(keyfunc.Forwarded(proxies...)), nil, true, true},
			{"TrustedHeader", keyfunc.Must(keyfunc.TrustedHeader("X-Real-Ip", proxies...)), nil, true, true},
			{"TrustedHops", keyfunc.Must(keyfunc.TrustedHops(1)), nil, false, true},
		}
		if fw.clientIP != nil {
			key, outside := fw.configured()
			// chi's middleware trusts every peer, so its network must be closed.
			ways = append(ways, way{"ClientIP", key, outside, fw.name != "chi", true},
				way{"ClientIP by default", fw.clientIP(), nil, true, false})
		}
		for _, w := range ways {
			f := newFixture(t)
			h := f.byKey(fw, core.PolicyConfig{Algorithm: core.PerHour(1_000_000)}, w.key)
			if w.outside != nil {
				h = w.outside(h)
			}
			for _, a := range attacks {
				for _, by := range []string{"directly", "by a proxy", "by a proxy that adds a line"} {
					if by == "directly" && !w.direct || by != "directly" && !w.proxied {
						continue
					}
					f.keys = nil
					got := send(h, "GET", "/users/1", func(r *http.Request) {
						r.RemoteAddr = client + ":666"
						for _, name := range claimed {
							r.Header[name] = slices.Clone(a.lines)
						}
						if by != "directly" {
							r.RemoteAddr = proxy + ":666"
							proxied(r.Header, by != "by a proxy")
						}
					})
					// By default the framework knows no proxies. To derive no key is as good as the
					// right one.
					if w.name == "ClientIP by default" && got.Code >= 400 && len(f.keys) == 0 {
						continue
					}
					keys := strings.Join(f.keys, ", ")
					gatetest.Equal(t, keys, client, "%s, %s, %s: status %d, keys", w.name, a.name, by, got.Code)
				}
			}
		}
	})
}

// A peer whose own address is trusted cannot choose its key either.
func TestSpoofingByATrustedPeer(t *testing.T) {
	byXFF := keyfunc.Must(keyfunc.TrustedProxies(proxies...))
	byForwarded := keyfunc.Must(keyfunc.Forwarded(proxies...))
	each(t, func(t *testing.T, fw framework) {
		keys := map[string]keyfunc.Func{"TrustedProxies": byXFF, "Forwarded": byForwarded}
		var outside func(http.Handler) http.Handler
		if fw.configured != nil {
			keys["ClientIP"], outside = fw.configured()
		}
		for name, key := range keys {
			f := newFixture(t)
			h := f.byKey(fw, one, key)
			if outside != nil {
				h = outside(h)
			}
			got := send(h, "GET", "/users/1", func(r *http.Request) {
				r.RemoteAddr = proxy + ":666"
				r.Header.Set("X-Forwarded-For", "10.6.6.6, 10.7.7.7")
				r.Header.Set("Forwarded", "for=10.6.6.6, for=10.7.7.7")
			})
			want := []string{proxy}
			if name == "ClientIP" && fw.name == "chi" { // chi finds no address, so there is no key
				want = nil
			}
			if !slices.Equal(f.keys, want) {
				t.Errorf("%s: keys %q, status %d", name, f.keys, got.Code)
			}
		}
	})
}

// A framework that trusts every peer is detected at the first request, whatever its headers.
func TestClientIPByDefault(t *testing.T) {
	want := map[string]int{"chi": 400, "gin": 500, "echo": 500, "echov5": 200}
	each(t, func(t *testing.T, fw framework) {
		if fw.clientIP == nil {
			t.Skip("net/http has none")
		}
		h := newFixture(t).byKey(fw, one, fw.clientIP())
		gatetest.Equal(t, send(h, "GET", "/users/1").Code, want[fw.name], "status")
	})
}

// Behind a proxy that connects through a Unix socket, each client has its own limit, and one that
// writes X-Forwarded-For itself cannot choose another.
func TestProxyOnUnixSocket(t *testing.T) {
	hops := core.Must(keyfunc.TrustedHops(1))
	named := core.Must(keyfunc.TrustedProxies(keyfunc.UnixSocket))
	for name, key := range map[string]keyfunc.Func{"TrustedHops": hops, "TrustedProxies": named} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, fw framework) {
				f := newFixture(t)
				dir := gatetest.Must(os.MkdirTemp("", ""))(t) // that of the test is too long for a socket
				t.Cleanup(func() { _ = os.RemoveAll(dir) })
				listener := gatetest.Must(net.Listen("unix", filepath.Join(dir, "s")))(t)
				server := httptest.NewUnstartedServer(fw.bare(f.limit(one, keyed(key)), ok))
				_ = server.Listener.Close()
				server.Listener = listener
				server.Start()
				t.Cleanup(server.Close)
				client := &http.Client{Transport: &http.Transport{
					DisableKeepAlives: true,
					DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
						return new(net.Dialer).DialContext(ctx, "unix", listener.Addr().String())
					},
				}}
				for _, c := range []struct {
					forwarded string
					status    int
				}{
					{"198.51.100.7", 200}, {"198.51.100.7", 429}, {"198.51.100.8", 200},
					{"6.6.6.6, 198.51.100.8", 429}, {"", 400},
				} {
					r := core.Must(http.NewRequestWithContext(t.Context(), "GET", "http://headgate/users/1", nil))
					if c.forwarded != "" {
						r.Header.Set("X-Forwarded-For", c.forwarded)
					}
					response := gatetest.Must(client.Do(r))(t)
					response.Body.Close()
					gatetest.Equal(t, response.StatusCode, c.status, "%q: status", c.forwarded)
				}
			})
		})
	}
}

const noTenant = "no tenant"

// tenantOf returns the key that PathValue derives from a request for this escaped path. Without
// keepRaw the URL has its decoded Path alone, as after a rewrite.
func tenantOf(t *testing.T, escaped string, keepRaw bool, build func(*nethttp.Guard) http.Handler) string {
	t.Helper()
	path := gatetest.Must(url.PathUnescape(escaped))(t)
	tenant := noTenant
	byTenant := keyfunc.Must(keyfunc.PathValue("tenant"))
	guard := newFixture(t).limit(one, keyed(func(r *http.Request) (string, error) {
		key, err := byTenant(r)
		if err == nil {
			tenant = key
		}
		return key, err
	}))
	send(build(guard), "GET", "/", func(r *http.Request) {
		r.URL.Path, r.URL.RawPath = path, ""
		if keepRaw {
			r.URL.RawPath = escaped
		}
	})
	return tenant
}

func TestPathValueHasOneSpelling(t *testing.T) {
	for _, c := range []struct {
		name, path  string
		raw, plain  string // the values with and without RawPath
		unlikeInGin string // the value in gin, which matches the decoded path, with RawPath
	}{
		{name: "plain", path: "/t/acme/reports", raw: "acme", plain: "acme"},
		{name: "escaped letter", path: "/t/%61cme/reports", raw: "acme", plain: "acme"},
		{name: "escaped slash", path: "/t/a%2Fb/reports", raw: "a/b", plain: noTenant, unlikeInGin: noTenant},
		{name: "escaped percent sign", path: "/t/100%25/reports", raw: "100%", plain: "100%"},
		{name: "escape of an escape", path: "/t/%2561cme/reports", raw: "%61cme", plain: "%61cme"},
		{name: "plus sign", path: "/t/a+b/reports", raw: "a+b", plain: "a+b"},
	} {
		t.Run(c.name, func(t *testing.T) {
			each(t, func(t *testing.T, fw framework) {
				build := func(g *nethttp.Guard) http.Handler {
					return fw.build(&app{root: g, routes: []route{{"GET", "/t/{tenant}/reports", ok}}})
				}
				want := c.raw
				if fw.name == "gin" && c.unlikeInGin != "" {
					want = c.unlikeInGin
				}
				gatetest.Equal(t, tenantOf(t, c.path, true, build), want, "with RawPath: got")
				gatetest.Equal(t, tenantOf(t, c.path, false, build), c.plain, "without RawPath: got")
			})
		})
	}
}

// Settings and middleware that make a router match another path than its default.
func TestPathValueIsUnescapedOnce(t *testing.T) {
	ginWith := func(set func(*gin.Engine)) func(*nethttp.Guard) http.Handler {
		return func(g *nethttp.Guard) http.Handler {
			engine := gin.New()
			set(engine)
			engine.Use(gingate.Middleware(g))
			engine.GET("/t/:tenant", gin.WrapF(ok))
			return engine
		}
	}
	echov5With := func(cfg echo.RouterConfig) func(*nethttp.Guard) http.Handler {
		return func(g *nethttp.Guard) http.Handler {
			e := echo.NewWithConfig(echo.Config{Router: echo.NewRouter(cfg)})
			e.Use(echov5gate.Middleware(g))
			e.GET("/t/:tenant", echo.WrapHandler(http.HandlerFunc(ok)))
			return e
		}
	}
	tenant := get("/t/{tenant}")
	for _, c := range []struct {
		name, path, want string
		build            func(*nethttp.Guard) http.Handler
	}{
		{"gin, UseRawPath", "/t/%2561cme", "%61cme", ginWith(func(e *gin.Engine) { e.UseRawPath = true })},
		{"gin, UseRawPath and a slash", "/t/a%2Fb", "a/b", ginWith(func(e *gin.Engine) { e.UseRawPath = true })},
		{"echo v5, matching on the decoded path", "/t/%2561cme", "%61cme",
			echov5With(echo.RouterConfig{UseEscapedPathForMatching: true})},
		{"echo v5, unescaping itself", "/t/%2561cme", "%61cme",
			echov5With(echo.RouterConfig{UnescapePathParamValues: true})},
		{"chi, StripSlashes", "/t/%2561cme/", "%61cme", chiOf(use(chimiddleware.StripSlashes), guarded, tenant)},
		{"chi, StripSlashes of nothing", "/t/%2561cme", "%61cme", chiOf(use(chimiddleware.StripSlashes), guarded, tenant)},
		{"chi, CleanPath", "/t//%2561cme", "%61cme", chiOf(use(chimiddleware.CleanPath), guarded, tenant)},
		{"chi, URLFormat", "/t/%2561cme.json", "%61cme", chiOf(use(chimiddleware.URLFormat), guarded, tenant)},
		{"chi, at a route", "/t/%2561cme", "%61cme", chiOf(with("/t/{tenant}"))},
		{"chi, StripPrefix below a mount", "/api/t/%2561cme", "%61cme",
			chiOf(below("/api", use(chimiddleware.StripPrefix("/api")), guarded, tenant))},
		{"chi, StripPrefix and StripSlashes below a mount", "/api/t/%2561cme/", "%61cme",
			chiOf(below("/api", use(chimiddleware.StripSlashes), use(chimiddleware.StripPrefix("/api")), guarded, tenant))},
		{"chi, a value of the mount", "/api/%2561cme/x", "%61cme", chiOf(below("/api", below("/{tenant}", guarded, get("/x"))))},
		{"chi, around a router in StripPrefix", "/api/x/t/%2561cme", "%61cme", chiOf(below("/api", func(r chi.Router, guard outside) {
			r.Mount("/x", http.StripPrefix("/api/x", guard(routerOf(guard, []part{tenant}))))
		}))},
		{"chi, at a route of a router in StripPrefix", "/api/x/t/%2561cme", "%61cme", chiOf(below("/api", func(r chi.Router, guard outside) {
			r.Mount("/x", http.StripPrefix("/api/x", routerOf(guard, []part{with("/t/{tenant}")})))
		}))},
	} {
		t.Run(c.name, func(t *testing.T) {
			gatetest.Equal(t, tenantOf(t, c.path, true, c.build), c.want, "got")
		})
	}
}

// part adds something to a router of chi, such as a route or the guard.
type part func(r chi.Router, guard outside)

// chiOf returns what makes a router of parts.
func chiOf(parts ...part) func(*nethttp.Guard) http.Handler {
	return func(g *nethttp.Guard) http.Handler { return routerOf(chigate.Middleware(g), parts) }
}

func routerOf(guard outside, parts []part) chi.Router {
	r := chi.NewRouter()
	for _, p := range parts {
		p(r, guard)
	}
	return r
}

// guarded uses the guard.
func guarded(r chi.Router, guard outside) { r.Use(guard) }

func use(m outside) part { return func(r chi.Router, _ outside) { r.Use(m) } }

func get(path string) part { return func(r chi.Router, _ outside) { r.Get(path, ok) } }

// with is a route with the guard.
func with(path string) part { return func(r chi.Router, guard outside) { r.With(guard).Get(path, ok) } }

// below is a mounted router of parts.
func below(path string, parts ...part) part {
	return func(r chi.Router, guard outside) { r.Mount(path, routerOf(guard, parts)) }
}

// stripped is a router of parts in http.StripPrefix, which the router around it does not know.
func stripped(path string, parts ...part) part {
	return func(r chi.Router, guard outside) { r.Mount(path, http.StripPrefix(path, routerOf(guard, parts))) }
}

// chi's middleware finds the whole pattern wherever it is installed, and whatever other middleware
// rewrites.
func TestChiFindsTheRouteEverywhere(t *testing.T) {
	handler := http.HandlerFunc(ok)
	for _, c := range []struct {
		name, target string
		parts        []part
		want         string
	}{
		{"Use", "/users/1", []part{guarded, get("/users/{id}")}, "/users/{id}"},
		{"With", "/users/1", []part{with("/users/{id}")}, "/users/{id}"},
		{"Group", "/users/1", []part{func(r chi.Router, guard outside) {
			r.Group(func(r chi.Router) {
				r.Use(guard)
				r.Get("/users/{id}", handler)
			})
		}}, "/users/{id}"},
		{"Route", "/api/items/7", []part{func(r chi.Router, guard outside) {
			r.Route("/api", func(r chi.Router) {
				r.Use(guard)
				r.Get("/items/{id}", handler)
			})
		}}, "/api/items/{id}"},
		{"Use above a mount", "/api/t/acme/items/7", []part{guarded, below("/api/t/{tenant}", get("/items/{id}"))}, "/api/t/{tenant}/items/{id}"},
		{"Use of a mounted router", "/api/t/acme/items/7", []part{below("/api/t/{tenant}", guarded, get("/items/{id}"))}, "/api/t/{tenant}/items/{id}"},
		{"With of a mounted router", "/api/items/7", []part{below("/api", with("/items/{id}"))}, "/api/items/{id}"},
		{"With of a mount", "/api/users/7", []part{func(r chi.Router, guard outside) {
			r.With(guard).Route("/api", func(r chi.Router) { r.Get("/users/{id}", handler) })
		}}, "/api/users/{id}"},
		{"two mounts deep", "/a/b/items/7", []part{below("/a", below("/b", guarded, get("/items/{id:[0-9]+}")))}, "/a/b/items/{id:[0-9]+}"},
		{"mount of a foreign handler", "/files/a/b", []part{guarded, func(r chi.Router, _ outside) { r.Mount("/files", handler) }}, "/files/*"},
		{"404 of a mounted router", "/api/nope", []part{below("/api", guarded, get("/items/{id}"))}, "/api/*"},
		{"wildcard of With below a mount", "/api/files/a/b", []part{below("/api", with("/files/*"))}, "/api/files/*"},
		{"GetHead", "HEAD /users/1", []part{use(chimiddleware.GetHead), guarded, get("/users/{id}")}, "/users/{id}"},
		{"GetHead inside", "HEAD /users/1", []part{guarded, use(chimiddleware.GetHead), get("/users/{id}")}, "/users/{id}"},
		{"StripSlashes", "/users/1/", []part{use(chimiddleware.StripSlashes), guarded, get("/users/{id}")}, "/users/{id}"},
		{"StripSlashes and With", "/users/1/", []part{use(chimiddleware.StripSlashes), with("/users/{id}")}, "/users/{id}"},
		{"StripSlashes and a mount", "/api/items/7/", []part{use(chimiddleware.StripSlashes), below("/api", guarded, get("/items/{id}"))}, "/api/items/{id}"},
		{"StripSlashes of nothing, and a mount", "/api/items/7", []part{use(chimiddleware.StripSlashes), below("/api", guarded, get("/items/{id}"), get("/*"))}, "/api/items/{id}"},
		{"StripSlashes and the rest of a mount", "/api/other", []part{use(chimiddleware.StripSlashes), below("/api", guarded, get("/items/{id}"), get("/*"))}, "/api/*"},
		{"CleanPath", "/users//1", []part{use(chimiddleware.CleanPath), guarded, get("/users/{id}")}, "/users/{id}"},
		{"CleanPath and a mount", "/api//items/x/../7", []part{use(chimiddleware.CleanPath), below("/api", guarded, get("/items/{id}"))}, "/api/items/{id}"},
		{"mount with StripPrefix", "/_api/users/7", []part{below("/_api", use(chimiddleware.StripPrefix("/_api")), guarded, get("/users/{id}"))}, "/_api/users/{id}"},
		{"mount of a value with StripPrefix", "/t/acme/users/7",
			[]part{below("/t/{tenant:[a-z]{2,9}}", use(chimiddleware.StripPrefix("/t/acme")), guarded, get("/users/{id}"))}, "/t/{tenant:[a-z]{2,9}}/users/{id}"},
		{"router in StripPrefix, wrapped", "/api/users/7", []part{func(r chi.Router, guard outside) {
			r.Mount("/api", http.StripPrefix("/api", guard(routerOf(guard, []part{get("/users/{id}")}))))
		}}, "/api/users/{id}"},
		{"router in StripPrefix, Use", "/api/users/7", []part{stripped("/api", guarded, get("/users/{id}"))}, "/api/*"},
		{"router in StripPrefix, With", "/api/users/7", []part{stripped("/api", with("/users/{id}"))}, "/api/users/{id}"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFixture(t)
			method, target, found := strings.Cut(c.target, " ")
			if !found {
				method, target = http.MethodGet, c.target
			}
			w := send(chiOf(c.parts...)(f.guard(f.perRoute())), method, target)
			gatetest.Equal(t, w.Code == 404, strings.HasPrefix(c.name, "404"), "status %d", w.Code)
			gatetest.Equal(t, strings.Join(f.keys, ", "), c.want, "keys")
		})
	}
}

// Outside of a router the middleware finds the route that the router will choose, if there is one,
// and handlers around it see the route afterwards.
func TestChiFindsTheRouteOutside(t *testing.T) {
	var seen string
	sees := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { next.ServeHTTP(w, r); seen = r.Pattern })
	}
	for name, c := range map[string]struct {
		build        func(*nethttp.Guard) http.Handler
		target, want string
	}{
		"around the whole router": {func(g *nethttp.Guard) http.Handler {
			return chigate.Middleware(g)(routerOf(nil, []part{get("/users/{id}")}))
		}, "/users/1", "/users/{id}"},
		"outside chi": {func(g *nethttp.Guard) http.Handler {
			return chigate.Middleware(g)(http.HandlerFunc(ok))
		}, "/users/1", keyfunc.Unmatched},
		"StripPrefix of the whole path": {func(g *nethttp.Guard) http.Handler {
			return http.StripPrefix("/app", chiOf(guarded, get("/"))(g))
		}, "/app", "/"},
		"seen by outer middleware": {chiOf(use(sees), guarded, get("/users/{id}")), "/users/1", "/users/{id}"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			if w := send(c.build(f.guard(f.perRoute())), "GET", c.target); w.Code != 200 || !slices.Equal(f.keys, []string{c.want}) {
				t.Errorf("status %d, keys %q", w.Code, f.keys)
			}
		})
	}
	gatetest.Equal(t, seen, "/users/{id}", "outer middleware sees the pattern")
}
