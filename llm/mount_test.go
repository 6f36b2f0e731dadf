package llm_test

import (
	"context"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	echov4 "github.com/labstack/echo/v4"
	"github.com/labstack/echo/v5"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/llm"
)

// One Meter serves every framework.
func TestFrameworks(t *testing.T) {
	gin.SetMode(gin.ReleaseMode)
	for name, mount := range map[string]func(m *llm.Meter, next http.Handler) http.Handler{
		"chi": func(m *llm.Meter, next http.Handler) http.Handler {
			h := chi.NewRouter()
			h.Use(m.Handler)
			h.Post("/v1/*", next.ServeHTTP)
			return h
		},
		"gin": func(m *llm.Meter, next http.Handler) http.Handler {
			h := gin.New()
			h.POST("/v1/*rest", gin.WrapH(m.Handler(next)))
			return h
		},
		"echo": func(m *llm.Meter, next http.Handler) http.Handler {
			h := echov4.New()
			h.POST("/v1/*", echov4.WrapHandler(next), echov4.WrapMiddleware(m.Handler))
			return h
		},
		"echo v5": func(m *llm.Meter, next http.Handler) http.Handler {
			h := echo.New()
			h.POST("/v1/*", echo.WrapHandler(next), echo.WrapMiddleware(m.Handler))
			return h
		},
		"mux": func(m *llm.Meter, next http.Handler) http.Handler {
			h := http.NewServeMux()
			h.Handle("POST /v1/", m.Handler(next))
			return h
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, core.UnitTokens, 60, nil)
			r.answer = chat(7, 11)
			r.serve(mount(r.meter, proxyTo(t, r.upstream)))
			if response := r.post(chatPath, streamed); response.StatusCode != 200 ||
				response.Header.Get("X-Ratelimit-Remaining-Tokens") != "7" ||
				strings.Count(read(t, response), "word") != 11 {
				t.Errorf("%d, %v", response.StatusCode, response.Header)
			}
			r.want(llm.OutcomeReported, llm.Usage{Input: 7, Output: 11}, 18)
			if status, body := r.ask(chatPath, `{"model":"m","prompt":"`+strings.Repeat("a", 400)+`"}`); status != 429 ||
				!strings.Contains(body, `"insufficient_quota"`) {
				t.Errorf("%d %s", status, body)
			}
			gatetest.Equal(t, r.post(chatPath, `{`).StatusCode, 400, "status")
		})
	}
}

// Handlers around the Meter see what is written into the request behind it, such as the pattern and the
// path values of a mux, and forms. Handlers behind it see the
// admission and the slot.
func TestContextOfTheHandler(t *testing.T) {
	for _, abort := range []llm.Abort{llm.AbortStop, llm.AbortDrain} {
		r := newRig(t, core.UnitTokens, 1000, func(cfg *llm.Config) {
			cfg.Abort = abort
			setSlot(cfg, nethttp.Cap{Key: tenant, Limit: 1})
		})
		mux := http.NewServeMux()
		mux.HandleFunc("POST /v1/chat/{rest...}", func(w http.ResponseWriter, q *http.Request) {
			a := nethttp.AdmissionFromContext(q.Context())
			if a == nil || a.Decision().At(0).Used != 53 ||
				nethttp.LeaseFromContext(q.Context()) == nil ||
				q.PathValue("rest") != "completions" {
				t.Errorf("%v: admission %v", abort, a)
			}
			q.MultipartForm = new(multipart.Form)
			chat(7, 11)(w, q)
		})
		pattern := make(chan string, 1)
		meter := r.meter.Handler(mux)
		r.serve(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			meter.ServeHTTP(w, q)
			pattern <- fmt.Sprint(q.Pattern, " ", q.PathValue("rest"), " ", q.MultipartForm != nil)
		}))
		read(t, r.post(chatPath, streamed))
		gatetest.Equal(t, <-pattern, "POST /v1/chat/{rest...} completions true", "%v: pattern", abort)
		<-r.reports
	}
}

type tenantName struct{}

// Observe receives one event for an admitted request, with the request as the handlers around the
// Meter have passed it on. A refused request has none.
func TestEventHasItsRequest(t *testing.T) {
	var events []string
	r := newRig(t, core.UnitTokens, 60, func(cfg *llm.Config) {
		cfg.Observe = func(ctx context.Context, e core.Event) {
			response, ok := e.(*llm.ResponseEvent)
			if !ok || ctx != response.HTTP.Context() || response.HTTP.Pattern != "POST /v1/" {
				t.Errorf("%T %+v", e, response)
				return
			}
			name, _ := ctx.Value(tenantName{}).(string)
			events = append(events, e.EventName()+" of "+name+": "+response.Outcome.String())
		}
	})
	mux := http.NewServeMux()
	mux.Handle("POST /v1/", r.meter.Handler(http.HandlerFunc(chat(7, 50))))
	for range 2 {
		q := httptest.NewRequest(http.MethodPost, chatPath, strings.NewReader(streamed))
		q.Header.Set("X-Tenant", "acme")
		mux.ServeHTTP(httptest.NewRecorder(),
			q.WithContext(context.WithValue(q.Context(), tenantName{}, "acme")))
	}
	gatetest.Equal(t, strings.Join(events, ", "), "response of acme: reported", "got")
}

// The rules of the Meter's guard are settled by what the handler has responded, when its context has
// ended.
func TestGuardSettlesByTheResponse(t *testing.T) {
	takeOver := func(w http.ResponseWriter) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(err)
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 204 No Content\r\n\r\n")
		conn.Close()
	}
	for _, c := range []struct {
		name string
		want int
		h    func(w http.ResponseWriter)
	}{
		{"nothing", http.StatusOK, func(http.ResponseWriter) {}},
		{"a panic", http.StatusInternalServerError, func(http.ResponseWriter) { panic(http.ErrAbortHandler) }},
		{"an exit", http.StatusInternalServerError, func(http.ResponseWriter) { runtime.Goexit() }},
		{"a panic after 103", http.StatusInternalServerError, func(w http.ResponseWriter) {
			w.WriteHeader(http.StatusEarlyHints)
			panic(http.ErrAbortHandler)
		}},
		{"a panic after a flush", http.StatusOK, func(w http.ResponseWriter) {
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}},
		{"a hijacked connection", http.StatusSwitchingProtocols, takeOver},
		{"one after 403", http.StatusForbidden, func(w http.ResponseWriter) {
			w.WriteHeader(http.StatusForbidden)
			takeOver(w)
		}},
		{"404 of the writer below", http.StatusNotFound, func(w http.ResponseWriter) {
			w.(interface{ Unwrap() http.ResponseWriter }).Unwrap().WriteHeader(http.StatusNotFound)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var handling context.Context
			settled := make(chan error, 1)
			status := 0
			r := newRig(t, core.UnitTokens, 1000, func(cfg *llm.Config) {
				cfg.Guard.Rules = []nethttp.Rule{{
					Policy: policy("requests", core.UnitRequests, 1000), Key: tenant,
					Settle: func(_ *http.Request, s int, cost int64) int64 {
						status = s
						settled <- handling.Err()
						return cost
					},
				}}
			})
			r.handle(func(w http.ResponseWriter, q *http.Request) {
				handling = q.Context()
				c.h(w)
			})
			if response, err := plainClient.Do(r.request(chatPath, small)); err == nil {
				response.Body.Close()
			}
			if err := <-settled; status != c.want || err == nil {
				t.Errorf("settled by %d, want %d; the error of the handler's context is %v", status, c.want, err)
			}
		})
	}
}

// leaves is a hook of a Redis client that ends a request once, when the next script is sent.
type leaves struct {
	leave atomic.Pointer[context.CancelFunc]
}

func (h *leaves) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *leaves) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if leave := h.leave.Swap(nil); leave != nil && strings.HasPrefix(cmd.Name(), "eval") {
			(*leave)()
		}
		return next(ctx, cmd)
	}
}

func (h *leaves) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// A client that leaves while its budget is asked has nothing spent, keeps no slot, and is told of.
func TestClientLeavesBeforeItsBudgetAnswers(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		client, hook := s.Client(t), new(leaves)
		client.AddHook(hook)
		gate := core.Must(core.NewRedis(client, core.Config{Prefix: s.Prefix, Timeout: generous}))
		var running *semaphore.Semaphore
		r := newRig(t, core.UnitTokens, 1000, func(cfg *llm.Config) {
			cfg.Guard.Gate = gate
			running = setSlot(cfg, nethttp.Cap{Name: "streams", Key: tenant, Limit: 1})
		})
		r.answer = chat(1, 1)
		for range 3 {
			ctx, cancel := context.WithCancel(t.Context())
			hook.leave.Store(&cancel)
			q := httptest.NewRequestWithContext(ctx, "POST", chatPath, strings.NewReader(small))
			q.Header.Set("X-Tenant", "acme")
			w := httptest.NewRecorder()
			r.meter.Handler(proxyTo(t, r.upstream)).ServeHTTP(w, q)
			if event := r.want(llm.OutcomeLeft, llm.Usage{}, 0); event.Estimate.Output == 0 || event.HTTP == nil {
				t.Errorf("%+v", event)
			}
			gatetest.Equal(t, w.Code, 503, "status")
			key := core.Must(core.NewKey(core.Must(tenant(q))))
			gatetest.Eventually(t, "the slot is free", func() bool { return holders(t, running, key) == 0 })
		}
	})
}
