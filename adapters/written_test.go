package adapters_test

import (
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	chimiddleware "github.com/go-chi/chi/v5/middleware"
	echov4 "github.com/labstack/echo/v4"
	"github.com/labstack/echo/v5"

	chigate "github.com/headgate/headgate/adapters/chi"
	echogate "github.com/headgate/headgate/adapters/echo"
	echov5gate "github.com/headgate/headgate/adapters/echov5"
	gingate "github.com/headgate/headgate/adapters/gin"
	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/keyfunc"
)

const fileSize = 1 << 20

// download is a handler that writes a body, and how a client asks for it.
type download struct {
	name    string
	size    int
	handler http.HandlerFunc
	method  string   // POST if it is empty
	headers []string // name and value
}

func downloads(t *testing.T) []download {
	path := filepath.Join(t.TempDir(), "file.bin")
	gatetest.NoError(t, os.WriteFile(path, make([]byte, fileSize), 0o600))
	abc := func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("ab"))
		_, _ = io.WriteString(w, "c")
	}
	file := func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, path) }
	return []download{
		{name: "nothing", size: 0, handler: func(http.ResponseWriter, *http.Request) {}},
		{name: "two writes", size: 3, handler: abc},
		{name: "HEAD", size: 0, handler: abc, method: http.MethodHead},
		{name: "a file", size: fileSize, handler: file},
		{name: "HEAD of a file", size: 0, handler: file, method: http.MethodHead},
		{name: "a range of a file", size: 1000, handler: file, headers: []string{"Range", "bytes=500-1499"}},
		{name: "a copy of a file", size: fileSize, handler: func(w http.ResponseWriter, _ *http.Request) {
			f, err := os.Open(path)
			if err != nil {
				t.Error(err)
				return
			}
			defer f.Close()
			_, _ = io.Copy(w, f)
		}},
		{name: "a stream", size: 30, handler: func(w http.ResponseWriter, r *http.Request) {
			for range 10 {
				abc(w, r)
				_ = http.NewResponseController(w).Flush()
			}
		}},
		{name: "304", size: 0, handler: func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusNotModified)
			abc(w, r) // which fails
		}},
		{name: "an error", size: 4, handler: func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "bad", http.StatusBadRequest) }},
		{name: "panic after a body", size: 3, handler: func(w http.ResponseWriter, r *http.Request) {
			abc(w, r)
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}},
		{name: "hijack", size: 0, handler: func(w http.ResponseWriter, _ *http.Request) {
			conn, rw, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			_, _ = rw.WriteString("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
			_ = rw.Flush()
		}},
	}
}

// metered returns a guard that tells the bytes of each response.
func metered(gate *core.Gate, name string) (*nethttp.Guard, chan int64) {
	seen := make(chan int64, 1)
	p := core.Must(core.NewPolicy(core.PolicyConfig{
		Name: name, Algorithm: core.PerHour(1 << 40), Unit: core.UnitContentBytes,
	}))
	return core.Must(nethttp.NewGuard(nethttp.Config{Gate: gate, Dialect: nethttp.None{}, Rules: []nethttp.Rule{{
		Policy: p, Key: keyfunc.Must(keyfunc.Static("k")),
		Settle: func(r *http.Request, _ int, _ int64) int64 {
			n := nethttp.AdmissionFromContext(r.Context()).Written()
			seen <- n
			return n
		},
	}}})), seen
}

// play checks that the client gets the bytes of a download, and that the guards tell as many.
func (d download) play(t *testing.T, h http.Handler, all ...chan int64) {
	t.Helper()
	server := httptest.NewUnstartedServer(h)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.Start()
	defer server.Close()
	method := d.method
	if method == "" {
		method = http.MethodPost
	}
	r := core.Must(http.NewRequestWithContext(t.Context(), method, server.URL+"/users/1", nil))
	for i := 0; i < len(d.headers); i += 2 {
		r.Header.Set(d.headers[i], d.headers[i+1])
	}
	response := gatetest.Must(server.Client().Do(r))(t)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Error(err)
	}
	if len(body) != d.size {
		t.Errorf("the client gets %d bytes, want %d", len(body), d.size)
	}
	for i, seen := range all {
		if n := <-seen; n != int64(d.size) {
			t.Errorf("guard %d tells %d bytes, want %d", i, n, d.size)
		}
	}
}

// A Settle knows the bytes of the response, behind one guard and between others.
func TestSettleKnowsTheBytes(t *testing.T) {
	for _, fw := range frameworks {
		for _, d := range downloads(t) {
			t.Run(fw.test()+"/"+d.name, func(t *testing.T) {
				gate := newFixture(t).gate
				p := core.Must(core.NewPolicy(core.PolicyConfig{Name: "plain", Algorithm: core.PerHour(100)}))
				plain := core.Must(nethttp.NewGuard(nethttp.Config{ // leaves the response alone
					Gate: gate, Rules: []nethttp.Rule{{Policy: p, Key: keyfunc.RemoteIP()}}, Dialect: nethttp.None{}}))
				inner, seenInside := metered(gate, "inside")
				outer, seenOutside := metered(gate, "outside")
				d.play(t, fw.around(same, d.handler, outer, plain, inner), seenInside, seenOutside)
				d.play(t, fw.around(same, d.handler, plain, inner, plain), seenInside)
				d.play(t, fw.around(same, d.handler, plain, outer), seenOutside)
			})
		}
	}
}

// The same holds for the frameworks' own ways to respond.
func TestSettleKnowsTheBytesOfFrameworks(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file.bin")
	gatetest.NoError(t, os.WriteFile(path, make([]byte, fileSize), 0o600))
	withGin := func(h gin.HandlerFunc) func(nethttp.Admitter) http.Handler {
		return func(g nethttp.Admitter) http.Handler {
			e := gin.New()
			e.Use(gingate.Middleware(g))
			e.POST("/users/:id", h)
			return e
		}
	}
	withEcho := func(h echov4.HandlerFunc) func(nethttp.Admitter) http.Handler {
		return func(g nethttp.Admitter) http.Handler {
			e := echov4.New()
			e.Use(echogate.Middleware(g))
			e.POST("/users/:id", h)
			return e
		}
	}
	withEchov5 := func(h echo.HandlerFunc) func(nethttp.Admitter) http.Handler {
		return func(g nethttp.Admitter) http.Handler {
			e := echo.New()
			e.Use(echov5gate.Middleware(g))
			e.POST("/users/:id", h)
			return e
		}
	}
	forbidden := len(`{"message":"Forbidden"}` + "\n")
	for name, c := range map[string]struct {
		size  int
		build func(nethttp.Admitter) http.Handler
	}{
		"gin/JSON":        {len(`{}`), withGin(func(c *gin.Context) { c.JSON(200, gin.H{}) })},
		"gin/String":      {3, withGin(func(c *gin.Context) { c.String(200, "abc") })},
		"gin/File":        {fileSize, withGin(func(c *gin.Context) { c.File(path) })},
		"echo/JSON":       {len("{}\n"), withEcho(func(c echov4.Context) error { return c.JSON(200, struct{}{}) })},
		"echo/File":       {fileSize, withEcho(func(c echov4.Context) error { return c.File(path) })},
		"echo/an error":   {forbidden, withEcho(func(echov4.Context) error { return echov4.ErrForbidden })},
		"echov5/JSON":     {len("{}\n"), withEchov5(func(c *echo.Context) error { return c.JSON(200, struct{}{}) })},
		"echov5/an error": {forbidden, withEchov5(func(*echo.Context) error { return echo.ErrForbidden })},
		"chi/compressed inside": {len(strings.Repeat("a", 10)), func(g nethttp.Admitter) http.Handler {
			r := chi.NewRouter()
			r.Use(chigate.Middleware(g), chimiddleware.Compress(5, "text/none"))
			r.Post("/users/{id}", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, strings.Repeat("a", 10)) })
			return r
		}},
	} {
		t.Run(name, func(t *testing.T) {
			g, seen := metered(newFixture(t).gate, "bytes")
			download{size: c.size}.play(t, c.build(g), seen)
		})
	}
}
