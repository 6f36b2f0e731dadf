package adapters_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"mime/multipart"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	echov4 "github.com/labstack/echo/v4"
	"github.com/labstack/echo/v5"

	chigate "github.com/headgate/headgate/adapters/chi"
	echogate "github.com/headgate/headgate/adapters/echo"
	echov5gate "github.com/headgate/headgate/adapters/echov5"
	gingate "github.com/headgate/headgate/adapters/gin"
	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core/once"
	"github.com/headgate/headgate/keyfunc"
)

// outside is a middleware around the guards.
type outside = func(http.Handler) http.Handler

// around puts Admitters around a handler of POST and HEAD /files/{id}, in each framework. A router of chi makes a
// copy of its own, so what stands around its guards is middleware of that router.
var around = map[string]func(outside, http.HandlerFunc, ...nethttp.Admitter) http.Handler{
	"net-http": func(out outside, h http.HandlerFunc, all ...nethttp.Admitter) http.Handler {
		var next http.Handler = h
		for _, g := range all {
			next = g.Handler(next)
		}
		return out(next)
	},
	"chi": func(out outside, h http.HandlerFunc, all ...nethttp.Admitter) http.Handler {
		r := chi.NewRouter()
		r.Use(out)
		for _, g := range all {
			r.Use(chigate.Middleware(g))
		}
		r.Post("/files/{id}", h)
		r.Head("/files/{id}", h)
		return r
	},
	"gin": func(out outside, h http.HandlerFunc, all ...nethttp.Admitter) http.Handler {
		gin.SetMode(gin.ReleaseMode)
		e := gin.New()
		for _, g := range all {
			e.Use(gingate.Middleware(g))
		}
		e.POST("/files/:id", gin.WrapF(h))
		e.HEAD("/files/:id", gin.WrapF(h))
		return out(e)
	},
	"echo": func(out outside, h http.HandlerFunc, all ...nethttp.Admitter) http.Handler {
		e := echov4.New()
		for _, g := range all {
			e.Use(echogate.Middleware(g))
		}
		e.POST("/files/:id", echov4.WrapHandler(h))
		e.HEAD("/files/:id", echov4.WrapHandler(h))
		return out(e)
	},
	"echov5": func(out outside, h http.HandlerFunc, all ...nethttp.Admitter) http.Handler {
		e := echo.New()
		for _, g := range all {
			e.Use(echov5gate.Middleware(g))
		}
		e.POST("/files/:id", echo.WrapHandler(h))
		e.HEAD("/files/:id", echo.WrapHandler(h))
		return out(e)
	},
}

// eachAround calls f with a handler behind a guard, a guard with a slot, two guards, and a Replay, in
// each framework.
func eachAround(t *testing.T, h http.HandlerFunc, f func(t *testing.T, fw string, build func(outside) http.Handler)) {
	for name, wrap := range around {
		for kind, admitters := range map[string]func(*testing.T) []nethttp.Admitter{
			"guard": func(t *testing.T) []nethttp.Admitter {
				f := newFixture(t)
				return []nethttp.Admitter{f.guard(f.perRoute())}
			},
			"slot": func(t *testing.T) []nethttp.Admitter {
				f := newFixture(t)
				cfg := f.perRoute()
				streams(f, &cfg)
				return []nethttp.Admitter{f.guard(cfg)}
			},
			"two guards": func(t *testing.T) []nethttp.Admitter {
				f := newFixture(t)
				return []nethttp.Admitter{f.guard(f.perRoute()), f.guard(f.perItem())}
			},
			"replay": func(t *testing.T) []nethttp.Admitter {
				f := newFixture(t)
				ids, err := once.New(f.gate, once.Config{Name: "ids", Window: time.Hour})
				if err != nil {
					t.Fatal(err)
				}
				p, err := nethttp.NewReplay(f.guard(f.perRoute()), nethttp.ReplayConfig{
					Once: ids, ID: keyfunc.Must(keyfunc.Header("Idempotency-Key"))})
				if err != nil {
					t.Fatal(err)
				}
				return []nethttp.Admitter{p}
			},
		} {
			t.Run(name+"/"+kind, func(t *testing.T) {
				f(t, name, func(out outside) http.Handler { return wrap(out, h, admitters(t)...) })
			})
		}
	}
}

// What a handler writes into its request is seen outside of the guard, and the server removes the
// files of an upload.
func TestRequestIsSeenOutside(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /files/{id}", func(w http.ResponseWriter, r *http.Request) {
		if err := r.ParseMultipartForm(10); err != nil {
			t.Error(err)
		}
		r.SetPathValue("id", r.PathValue("id")+" of a mux")
		r.RemoteAddr = "192.0.2.7:1"
		r.Body = io.NopCloser(strings.NewReader("again"))
	})
	eachAround(t, mux.ServeHTTP, func(t *testing.T, fw string, build func(outside) http.Handler) {
		dir := t.TempDir()
		t.Setenv("TMPDIR", dir)
		files := func() []os.DirEntry {
			all, err := os.ReadDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			return all
		}
		server := httptest.NewServer(build(func(h http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				h.ServeHTTP(w, r)
				body, _ := io.ReadAll(r.Body)
				if n := len(files()); n != 1 {
					t.Errorf("%d files while the upload is handled", n)
				}
				fmt.Fprintln(w, r.Pattern, r.PathValue("id"), r.FormValue("text"), r.PostForm.Get("text"), r.RemoteAddr, string(body))
			})
		}))
		defer server.Close()
		var sent bytes.Buffer
		form := multipart.NewWriter(&sent)
		part, err := form.CreateFormFile("file", "file")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := part.Write(make([]byte, 100<<10)); err != nil {
			t.Fatal(err)
		}
		if err := errorsOf(form.WriteField("text", "hello"), form.Close()); err != nil {
			t.Fatal(err)
		}
		r, err := http.NewRequest("POST", server.URL+"/files/7", &sent)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", form.FormDataContentType())
		r.Header.Set("Idempotency-Key", "k")
		response, err := server.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		seen, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		const want = "POST /files/{id} 7 of a mux hello hello 192.0.2.7:1 again\n"
		if got := string(seen); got != want {
			t.Errorf("outside: %q, want %q", got, want)
		}
		server.Close() // waits for the ends of requests
		if n := len(files()); n != 0 && fw != "chi" {
			t.Errorf("%d files stay", n)
		}
	})
}

func errorsOf(all ...error) error {
	for _, err := range all {
		if err != nil {
			return err
		}
	}
	return nil
}

// A handler sees the trailers of a request when it has read the body, whether the request announced
// them or not, and so do the handlers outside of the guard.
func TestTrailersOfRequests(t *testing.T) {
	for _, announced := range []string{"", "Trailer: X-Sum\r\n"} {
		read := func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			fmt.Fprintln(w, "inside", r.Trailer.Get("X-Sum"))
		}
		eachAround(t, read, func(t *testing.T, fw string, build func(outside) http.Handler) {
			if fw == "chi" && announced == "" {
				t.Skip("a router of chi loses them itself")
			}
			server := httptest.NewServer(build(func(h http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					h.ServeHTTP(w, r)
					fmt.Fprintln(w, "outside", r.Trailer.Get("X-Sum"))
				})
			}))
			defer server.Close()
			conn, err := net.Dial("tcp", server.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			_, err = io.WriteString(conn, "POST /files/7 HTTP/1.1\r\nHost: x\r\nIdempotency-Key: k\r\n"+announced+
				"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX-Sum: 42\r\n\r\n")
			if err != nil {
				t.Fatal(err)
			}
			response, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			if got, _ := io.ReadAll(response.Body); string(got) != "inside 42\noutside 42\n" {
				t.Errorf("%q", got)
			}
		})
	}
}
