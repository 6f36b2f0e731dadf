package llm_test

import (
	"fmt"
	"mime/multipart"
	"net/http"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	echov4 "github.com/labstack/echo/v4"
	"github.com/labstack/echo/v5"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
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
			if response := r.post(chatPath, `{`); response.StatusCode != 400 {
				t.Errorf("status %d", response.StatusCode)
			}
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
			cfg.Guard.Slot = &nethttp.Slot{
				Semaphore: core.Must(semaphore.New(cfg.Guard.Gate, semaphore.Config{Name: "streams"})),
				Caps:      []nethttp.Cap{{Key: tenant, Limit: 1}},
			}
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
		if got := <-pattern; got != "POST /v1/chat/{rest...} completions true" {
			t.Errorf("%v: pattern %q", abort, got)
		}
		<-r.reports
	}
}

// A Meter counts every request that it is given: twice if it is mounted twice, and those that a
// handler makes with its own context.
func TestMeterCountsEveryRequest(t *testing.T) {
	r := newRig(t, core.UnitTokens, 1000, nil)
	inner := r.meter.Handler(http.HandlerFunc(chat(7, 11)))
	r.serve(r.meter.Handler(inner))
	if body := read(t, r.post(chatPath, streamed)); strings.Contains(body, "prompt_tokens") ||
		strings.Count(body, "word") != 11 {
		t.Errorf("the client was sent %s", body)
	}
	<-r.reports
	r.want(llm.OutcomeReported, llm.Usage{Input: 7, Output: 11}, 18+18)
	r.handle(func(w http.ResponseWriter, q *http.Request) {
		part := r.request(chatPath, streamed).WithContext(q.Context())
		part.RequestURI = ""
		discarded := discard{http.Header{}}
		inner.ServeHTTP(discarded, part)
		fmt.Fprint(w, `{"usage":{"prompt_tokens":1,"completion_tokens":1}}`)
	})
	read(t, r.post(chatPath, streamed))
	<-r.reports
	r.want(llm.OutcomeReported, llm.Usage{Input: 1, Output: 1}, 36+18+2)
}

// discard is a ResponseWriter that drops the response.
type discard struct{ header http.Header }

func (d discard) Header() http.Header         { return d.header }
func (d discard) Write(p []byte) (int, error) { return len(p), nil }
func (d discard) WriteHeader(int)             {}
func (d discard) Flush()                      {}
