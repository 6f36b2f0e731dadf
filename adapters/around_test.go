package adapters_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/gin-gonic/gin"
	echov4 "github.com/labstack/echo/v4"
	"github.com/labstack/echo/v5"

	echogate "github.com/headgate/headgate/adapters/echo"
	echov5gate "github.com/headgate/headgate/adapters/echov5"
	gingate "github.com/headgate/headgate/adapters/gin"
	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/keyfunc"
)

// Handlers around a guard with slots have a context that has not ended with the slot.
func TestContextAroundSlots(t *testing.T) {
	alive := func(t *testing.T, ctx context.Context) {
		t.Helper()
		if decided := nethttp.AdmissionFromContext(ctx) != nil; ctx.Err() != nil || !decided {
			t.Errorf("context: %v, decided %v", ctx.Err(), decided)
		}
	}
	f := newFixture(t)
	cfg := f.perRoute()
	streams(f, &cfg)
	g := f.guard(cfg)
	t.Run("gin", func(t *testing.T) {
		engine := gin.New()
		engine.Use(func(c *gin.Context) {
			c.Next()
			alive(t, c.Request.Context())
		}, gingate.Middleware(g))
		engine.GET("/gin", gin.WrapF(ok))
		send(engine, "GET", "/gin")
	})
	t.Run("echo", func(t *testing.T) {
		e := echov4.New()
		e.HTTPErrorHandler = func(_ error, c echov4.Context) { alive(t, c.Request().Context()) }
		e.Use(echogate.Middleware(g))
		e.GET("/echo", func(echov4.Context) error { return io.ErrUnexpectedEOF })
		send(e, "GET", "/echo")
	})
	t.Run("echov5", func(t *testing.T) {
		e := echo.New()
		e.HTTPErrorHandler = func(c *echo.Context, _ error) { alive(t, c.Request().Context()) }
		e.Use(echov5gate.Middleware(g))
		e.GET("/echov5", func(*echo.Context) error { return io.ErrUnexpectedEOF })
		send(e, "GET", "/echov5")
	})
}

// A request that is dispatched again is decided again.
func TestRedispatchedRequestCountsAgain(t *testing.T) {
	f := newFixture(t)
	cfg := f.perRoute()
	streams(f, &cfg)
	engine := gin.New()
	engine.Use(func(c *gin.Context) {
		c.Next()
		if c.Writer.Status() == 404 && !c.Writer.Written() {
			c.Request.URL.Path = "/index"
			engine.HandleContext(c)
			c.Abort()
		}
	}, gingate.Middleware(f.guard(cfg)))
	engine.GET("/index", func(c *gin.Context) {
		lease := nethttp.LeaseFromContext(c.Request.Context())
		if err := lease.Extend(c.Request.Context()); lease == nil || err != nil || c.Request.Context().Err() != nil {
			t.Errorf("lease %v: %v, context %v", lease, err, c.Request.Context().Err())
		}
		c.String(200, "index")
	})
	w := send(engine, "GET", "/nope")
	if last := w.Header().Values("RateLimit"); w.Code != 200 || last[len(last)-1] != `"address";r=98;t=1, "route";r=2;t=20` {
		t.Errorf("status %d, %v", w.Code, w.Header())
	}
}

// A refused request is refused again, whoever dispatches it.
func TestRefusalIsRepeated(t *testing.T) {
	t.Run("gin", func(t *testing.T) {
		engine, retried := gin.New(), false
		engine.Use(func(c *gin.Context) {
			c.Next()
			if c.Writer.Status() == 429 && !retried {
				retried = true
				engine.HandleContext(c)
				c.Abort()
			}
		}, gingate.WithConfig(newFixture(t).once(), gingate.Config{Refuse: func(c *gin.Context, a *nethttp.Admission) { c.Status(a.Status()) }}))
		served := 0
		engine.GET("/", func(*gin.Context) { served++ })
		send(engine, "GET", "/")
		if w := send(engine, "GET", "/"); served != 1 || !retried || w.Code != 429 {
			t.Errorf("served %d times, status %d", served, w.Code)
		}
	})
	t.Run("echo", func(t *testing.T) {
		e := echov4.New()
		e.Use(func(next echov4.HandlerFunc) echov4.HandlerFunc {
			return func(c echov4.Context) error {
				return errors.Join(next(c), next(c))
			}
		}, echogate.Middleware(newFixture(t).once()))
		served := 0
		e.GET("/", func(echov4.Context) error { served++; return nil })
		send(e, "GET", "/")
		if served != 1 { // the second call counts too
			t.Errorf("served %d times", served)
		}
	})
}

// Requests that a handler makes with its own context, such as the parts of a batch, count each.
func TestRequestsOfAHandlerCount(t *testing.T) {
	each(t, func(t *testing.T, fw framework) {
		f := newFixture(t)
		policy := f.policy(core.PolicyConfig{Name: "p", Algorithm: core.TokenBucket{Burst: 3}})
		g := f.guard(nethttp.Config{Rules: []nethttp.Rule{{Policy: policy, Key: keyfunc.RemoteIP()}}})
		served := 0
		part := fw.bare(g, func(http.ResponseWriter, *http.Request) { served++ })
		send(fw.bare(g, func(_ http.ResponseWriter, r *http.Request) {
			for range 5 {
				part.ServeHTTP(httptest.NewRecorder(), r.Clone(r.Context()))
			}
		}), "GET", "/users/1")
		if served != 2 {
			t.Errorf("%d parts are served", served)
		}
	})
}

// A handler that panics after it has sent a status is settled by that status.
func TestStatusBeforePanicCounts(t *testing.T) {
	each(t, func(t *testing.T, fw framework) {
		f := newFixture(t)
		var seen []int
		var cfg nethttp.Config
		settle(func(_ *http.Request, status int, cost int64) int64 { seen = append(seen, status); return cost })(f, &cfg)
		send(fw.bare(f.guard(cfg), func(http.ResponseWriter, *http.Request) {}), "GET", "/users/1")
		for _, c := range []struct{ sent, want int }{{401, 401}, {0, 500}} {
			func() {
				defer func() { _ = recover() }()
				send(fw.bare(f.guard(cfg), func(w http.ResponseWriter, _ *http.Request) {
					if c.sent > 0 {
						w.WriteHeader(c.sent)
						_, _ = io.WriteString(w, "no")
					}
					panic(http.ErrAbortHandler)
				}), "GET", "/users/1")
			}()
			if got := seen[len(seen)-1]; got != c.want && f.clock.Now().Unix() > 0 {
				t.Errorf("sent %d: seen %d, want %d", c.sent, got, c.want)
			}
			f.clock.Advance(1 << 40)
		}
	})
}

// ClientIP fails if gin or echo is configured to trust every peer.
func TestClientIPRejectsTrustInEveryPeer(t *testing.T) {
	engine := func(set func(*gin.Engine)) keyfunc.Func {
		e := gin.New()
		key := gingate.ClientIP(e)
		set(e)
		return key
	}
	trusting := func(cidr string) func(*gin.Engine) {
		return func(e *gin.Engine) {
			gatetest.NoError(t, e.SetTrustedProxies([]string{"10.0.0.0/8", cidr}))
		}
	}
	_, ipv6, err := net.ParseCIDR("::/0")
	if err != nil {
		t.Fatal(err)
	}
	e := echov4.New()
	e.IPExtractor = echov4.ExtractIPFromXFFHeader(echov4.TrustIPRange(ipv6))
	for name, key := range map[string]keyfunc.Func{
		"gin, TrustedPlatform": engine(func(e *gin.Engine) {
			e.TrustedPlatform = "X-CDN-IP"
			_ = e.SetTrustedProxies(nil)
		}),
		"gin, AppEngine":       engine(func(e *gin.Engine) { e.AppEngine = true; _ = e.SetTrustedProxies(nil) }),
		"gin, RemoteIPHeaders": engine(func(e *gin.Engine) { e.RemoteIPHeaders = []string{"X-CDN-IP"} }),
		"gin, all of IPv6":     engine(trusting("::/0")),
		"gin, most of IPv6":    engine(trusting("2000::/3")),
		"echo, all of IPv6":    echogate.ClientIP(e),
	} {
		for _, peer := range []string{"[2001:db8:1::1]:5", "192.0.2.1:5"} {
			r := httptest.NewRequest("GET", "/", nil)
			r.RemoteAddr = peer
			r.Header.Set("X-CDN-IP", "6.6.6.6")
			r.Header.Set("X-Forwarded-For", "6.6.6.6")
			r.Header.Set("X-Appengine-Remote-Addr", "6.6.6.6")
			if got, err := key(r); err == nil || errors.Is(err, keyfunc.ErrNoKey) {
				t.Errorf("%s, peer %s: %q, %v", name, peer, got, err)
			}
		}
	}
}
