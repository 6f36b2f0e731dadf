package middleware

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	"github.com/go-chi/httprate"
	echov4 "github.com/labstack/echo/v4"
	echov4middleware "github.com/labstack/echo/v4/middleware"
	"github.com/labstack/echo/v5"
	echomiddleware "github.com/labstack/echo/v5/middleware"
	"github.com/throttled/throttled/v2"
	throttledmemory "github.com/throttled/throttled/v2/store/memstore"
	ulule "github.com/ulule/limiter/v3"
	ululegin "github.com/ulule/limiter/v3/drivers/middleware/gin"
	ululehttp "github.com/ulule/limiter/v3/drivers/middleware/stdlib"
	ululememory "github.com/ulule/limiter/v3/drivers/store/memory"

	"golang.org/x/time/rate"

	"github.com/headgate/headgate/lab/bench/internal/measure"
)

// errUnlimited is that of a line that refuses nobody.
var errUnlimited = errors.New("it has no limit")

// peers is other middleware with its defaults, by the client's address, in memory.
func peers() []line {
	return []line{
		{"net/http", "two fields and a value of the context", measure.Floor, func(limit int) (http.Handler, error) {
			if limit < outOfReach {
				return nil, errUnlimited
			}
			return mux(stated), nil
		}},
		{"net/http", "httprate", measure.Peer, func(limit int) (http.Handler, error) {
			return mux(httprate.LimitBy(limit, time.Hour, address)), nil
		}},
		{"net/http", "ulule/limiter v3", measure.Peer, func(limit int) (http.Handler, error) {
			return mux(ululehttp.NewMiddleware(ululeLimiter(limit)).Handler), nil
		}},
		{"net/http", "throttled v2", measure.Peer, func(limit int) (http.Handler, error) {
			store, err := throttledmemory.NewCtx(100_000)
			if err != nil {
				return nil, fmt.Errorf("make the store: %w", err)
			}
			// Its arithmetic is in nanoseconds of 64 bits, which a larger burst at this rate does not fit.
			burst := min(limit, 1<<20)
			limiter, err := throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{
				MaxRate: throttled.PerHour(limit), MaxBurst: burst - 1,
			})
			if err != nil {
				return nil, fmt.Errorf("make the limiter: %w", err)
			}
			byAddress := &throttled.VaryBy{RemoteAddr: true}
			return mux((&throttled.HTTPRateLimiterCtx{RateLimiter: limiter, VaryBy: byAddress}).RateLimit), nil
		}},
		{"chi", "httprate", measure.Peer, func(limit int) (http.Handler, error) {
			r := chi.NewRouter()
			r.Use(httprate.LimitBy(limit, time.Hour, address))
			r.Get("/users/{id}", nothing)
			return r, nil
		}},
		{"gin", "ulule/limiter v3", measure.Peer, func(limit int) (http.Handler, error) {
			gin.SetMode(gin.ReleaseMode)
			engine := gin.New()
			engine.Use(ululegin.NewMiddleware(ululeLimiter(limit)))
			engine.GET("/users/:id", gin.WrapF(nothing))
			return engine, nil
		}},
		{"echo v4", "its own RateLimiter", measure.Peer, func(limit int) (http.Handler, error) {
			e := echov4.New()
			e.Use(echov4middleware.RateLimiter(echov4middleware.NewRateLimiterMemoryStoreWithConfig(
				echov4middleware.RateLimiterMemoryStoreConfig{Rate: perSecond(limit), Burst: limit, ExpiresIn: time.Hour},
			)))
			e.GET("/users/:id", echov4.WrapHandler(http.HandlerFunc(nothing)))
			return e, nil
		}},
		{"echo v5", "its own RateLimiter", measure.Peer, func(limit int) (http.Handler, error) {
			e := echo.New()
			e.Use(echomiddleware.RateLimiter(echomiddleware.NewRateLimiterMemoryStoreWithConfig(
				echomiddleware.RateLimiterMemoryStoreConfig{Rate: float64(perSecond(limit)), Burst: limit, ExpiresIn: time.Hour},
			)))
			e.GET("/users/:id", echo.WrapHandler(http.HandlerFunc(nothing)))
			return e, nil
		}},
	}
}

// address is the peer's, as httprate's documentation now has one write it.
func address(r *http.Request) (string, error) {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	return httprate.CanonicalizeIP(host), err
}

type statedKey struct{}

// stated is the least that middleware does which states a limit, and tells the handler of it.
func stated(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		left := w.Header()
		left.Set("RateLimit-Policy", `"hello";q=1000;w=3600`)
		left.Set("RateLimit", `"hello";r=`+strconv.Itoa(1000-len(left)))
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), statedKey{}, w)))
	})
}

// perSecond is the rate of a limit for an hour.
func perSecond(limit int) rate.Limit { return rate.Limit(float64(limit) / time.Hour.Seconds()) }

func mux(middleware func(http.Handler) http.Handler) http.Handler {
	m := http.NewServeMux()
	m.Handle("GET /users/{id}", middleware(http.HandlerFunc(nothing)))
	return m
}

func ululeLimiter(limit int) *ulule.Limiter {
	return ulule.New(ululememory.NewStore(), ulule.Rate{Period: time.Hour, Limit: int64(limit)})
}
