package adapters_test

import (
	"bufio"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	chimiddleware "github.com/go-chi/chi/v5/middleware"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/gatetest"
)

func TestWebSocket(t *testing.T) {
	each(t, func(t *testing.T, fw framework) {
		f := newFixture(t)
		f.serve(fw.build, &app{root: f.guard(f.perRoute()), routes: []route{{"GET", "/socket/{room}", func(w http.ResponseWriter, r *http.Request) {
			conn, err := websocket.Accept(w, r, nil)
			if err != nil {
				t.Errorf("accept: %v", err)
				return
			}
			defer conn.CloseNow()
			if a := nethttp.AdmissionFromContext(r.Context()); a == nil || !a.Allowed() {
				t.Error("no decision")
			}
			kind, message, err := conn.Read(r.Context())
			if err != nil {
				t.Errorf("read: %v", err)
				return
			}
			_ = conn.Write(r.Context(), kind, []byte(strings.ToUpper(string(message))))
			_ = conn.Close(websocket.StatusNormalClosure, "")
		}}}}, false)
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		for range 3 {
			conn, response, err := websocket.Dial(ctx, f.server.URL+"/socket/1", nil)
			if err != nil {
				t.Fatal(err)
			}
			if response.StatusCode != 101 || response.Header.Get("RateLimit") == "" {
				t.Errorf("status %d, headers %v", response.StatusCode, response.Header)
			}
			if err := conn.Write(ctx, websocket.MessageText, []byte("hello")); err != nil {
				t.Error(err)
			}
			if _, message, err := conn.Read(ctx); string(message) != "HELLO" {
				t.Errorf("got %q, %v", message, err)
			}
			_ = conn.CloseNow()
		}
		if _, response, err := websocket.Dial(ctx, f.server.URL+"/socket/2", nil); err == nil || response == nil || response.StatusCode != 429 || response.Header.Get("Retry-After") != "20" {
			t.Errorf("the fourth: %v", err)
		}
	})
}

// A reverse proxy writes the header of an upgrade to the connection that it has hijacked, with the limits
// of the Guard in place of its server's.
func TestLimitsOfProxiedUpgrade(t *testing.T) {
	const switched = "HTTP/1.1 101 Switching Protocols\nConnection: Upgrade\nUpgrade: echo\n" +
		"X-RateLimit-Limit: 5000\nX-RateLimit-Used: 1\n\n"
	each(t, func(t *testing.T, fw framework) {
		for name, answer := range map[string]string{"at once": switched, "after a hint": earlyHints + switched} {
			f := newFixture(t)
			root := f.spoken(nethttp.Legacy{}, core.PolicyConfig{Algorithm: core.PerMinute(3)})
			proxy := rawServer(t, map[string]string{"/socket": answer})
			f.serve(fw.build, &app{root: root, routes: []route{{"GET", "/socket", proxy.ServeHTTP}}}, false)
			conn := gatetest.Must(net.Dial("tcp", f.server.Listener.Addr().String()))(t)
			defer conn.Close()
			_ = conn.SetDeadline(time.Now().Add(patience))
			fmt.Fprint(conn, "GET /socket HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n")
			in := bufio.NewReader(conn)
			r, err := http.ReadResponse(in, nil)
			if err == nil && r.StatusCode == http.StatusEarlyHints {
				r, err = http.ReadResponse(in, nil)
			}
			if err != nil {
				t.Fatal(err)
			}
			got := fmt.Sprint(r.StatusCode, r.Header["X-Ratelimit-Limit"], r.Header["X-Ratelimit-Remaining"], r.Header["X-Ratelimit-Used"])
			if got != "101 [3] [2] [1]" {
				t.Errorf("%s: %s", name, got)
			}
		}
	})
}

// Compression outside the guard compresses refusals too. Inside it compresses only what handlers
// send.
func TestCompression(t *testing.T) {
	long := strings.Repeat("a long answer ", 1000)
	compress := chimiddleware.Compress(5, "text/plain", "application/json", "application/problem+json")
	answer := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		_, _ = io.WriteString(w, long)
	}
	each(t, func(t *testing.T, fw framework) {
		for _, outside := range []bool{true, false} {
			f := newFixture(t)
			handler, build := http.Handler(http.HandlerFunc(answer)), fw.build
			if outside {
				build = func(a *app) http.Handler { return compress(fw.build(a)) }
			} else {
				handler = compress(handler)
			}
			f.serve(build, &app{root: f.guard(f.perRoute()), routes: []route{{"GET", "/long", handler.ServeHTTP}}}, false)
			f.server.Client().Transport.(*http.Transport).DisableCompression = true
			for i := range 4 {
				got := f.ask("GET /long", "Accept-Encoding: gzip")
				body, compressed := got.Body, got.Header.Get("Content-Encoding") == "gzip"
				if compressed {
					unzip := gatetest.Must(gzip.NewReader(strings.NewReader(body)))(t)
					plain, err := io.ReadAll(unzip)
					if err != nil {
						t.Errorf("outside %v, request %d: %v", outside, i, err)
					}
					body = string(plain)
				}
				if want := outside || i < 3; compressed != want {
					t.Errorf("outside %v, request %d: compressed %v", outside, i, compressed)
				}
				switch {
				case i < 3 && (got.Status != 200 || body != long):
					t.Errorf("outside %v, request %d: status %d, %d bytes", outside, i, got.Status, len(body))
				case i == 3 && (got.Status != 429 || !strings.HasPrefix(body, "{") || got.Header.Get("Retry-After") != "20"):
					t.Errorf("outside %v, refused: status %d, %s", outside, got.Status, body)
				}
			}
		}
	})
}
