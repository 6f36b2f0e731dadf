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

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/once"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/keyfunc"
)

// eachAround calls f with a handler behind a guard, a guard with a slot, two guards, and a Replay, in
// each framework.
func eachAround(t *testing.T, h http.HandlerFunc, f func(t *testing.T, fw string, build func(outside) http.Handler)) {
	for _, fw := range frameworks {
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
				ids := core.Must(once.New(f.gate, once.Config{Name: "ids", Window: time.Hour}))
				p, err := nethttp.NewReplay(f.guard(f.perRoute()), nethttp.ReplayConfig{
					Once: ids, ID: keyfunc.Must(keyfunc.Header("Idempotency-Key"))})
				if err != nil {
					t.Fatal(err)
				}
				return []nethttp.Admitter{p}
			},
		} {
			t.Run(fw.test()+"/"+kind, func(t *testing.T) {
				f(t, fw.name, func(out outside) http.Handler { return fw.around(out, h, admitters(t)...) })
			})
		}
	}
}

// What a handler writes into its request is seen outside of the guard, and the server removes the
// files of an upload.
func TestRequestIsSeenOutside(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /users/{id}", func(w http.ResponseWriter, r *http.Request) {
		gatetest.Worked(t, r.ParseMultipartForm(10))
		r.SetPathValue("id", r.PathValue("id")+" of a mux")
		r.RemoteAddr = "192.0.2.7:1"
		r.Body = io.NopCloser(strings.NewReader("again"))
	})
	eachAround(t, mux.ServeHTTP, func(t *testing.T, fw string, build func(outside) http.Handler) {
		dir := t.TempDir()
		t.Setenv("TMPDIR", dir)
		files := func() []os.DirEntry {
			return gatetest.Must(os.ReadDir(dir))(t)
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
		part := gatetest.Must(form.CreateFormFile("file", "file"))(t)
		gatetest.Must(part.Write(make([]byte, 100<<10)))(t)
		gatetest.NoError(t, errorsOf(form.WriteField("text", "hello"), form.Close()))
		r := core.Must(http.NewRequest("POST", server.URL+"/users/7", &sent))
		r.Header.Set("Content-Type", form.FormDataContentType())
		r.Header.Set("Idempotency-Key", "k")
		response := gatetest.Must(server.Client().Do(r))(t)
		defer response.Body.Close()
		seen := gatetest.Must(io.ReadAll(response.Body))(t)
		const want = "POST /users/{id} 7 of a mux hello hello 192.0.2.7:1 again\n"
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
			conn := gatetest.Must(net.Dial("tcp", server.Listener.Addr().String()))(t)
			defer conn.Close()
			gatetest.Must(io.WriteString(conn, "POST /users/7 HTTP/1.1\r\nHost: x\r\nIdempotency-Key: k\r\n"+announced+
				"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX-Sum: 42\r\n\r\n"))(t)
			response := gatetest.Must(http.ReadResponse(bufio.NewReader(conn), nil))(t)
			defer response.Body.Close()
			if got, _ := io.ReadAll(response.Body); string(got) != "inside 42\noutside 42\n" {
				t.Errorf("%q", got)
			}
		})
	}
}
