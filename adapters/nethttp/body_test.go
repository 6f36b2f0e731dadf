package nethttp_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/internal/gatetest"
)

// A client that leaves while its request waits leaves the queue immediately, although no handler
// has read its body.
func TestClientLeavesTheQueue(t *testing.T) {
	for name, head := range map[string]string{
		"without a body": "GET / HTTP/1.1\r\n\r\n",
		"a length":       "POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}",
		"chunks":         "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			queued, end, entered := make(chan int, 10), make(chan struct{}), make(chan struct{})
			g, s := chat(t, memory(t, newClock()), func(cfg *nethttp.Config) {
				cfg.BufferBody = 2
				cfg.Slot.MaxWait = generous
				cfg.Slot.Caps[1].Limit = 1
				cfg.Slot.OnQueue = func(_ *http.Request, position int) { queued <- position }
			})
			srv := httptest.NewServer(g.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				got, err := io.ReadAll(r.Body)
				if want := strings.Repeat("{}", min(1, strings.Count(head, "POST"))); err != nil || string(got) != want {
					t.Errorf("body %q, %v", got, err)
				}
				entered <- struct{}{}
				<-end
			})))
			defer srv.Close()
			send := func() net.Conn {
				c := gatetest.Must(net.Dial("tcp", srv.Listener.Addr().String()))(t)
				gatetest.Must(fmt.Fprint(c, strings.Replace(head, "\r\n", "\r\nHost: x\r\nX-Tenant: acme\r\nX-User: ann\r\n", 1)))(t)
				return c
			}
			first := send()
			defer first.Close()
			<-entered
			second := send()
			<-queued
			gatetest.NoError(t, second.Close())
			holders(t, s, "acme", 1)
			end <- struct{}{}
			holders(t, s, "acme", 0)
			r := get(g.Handler(http.HandlerFunc(ok)), as("acme", "ann"))
			if got := r.Header.Get("RateLimit"); got != `"requests";r=8` {
				t.Errorf("RateLimit %s after two", got)
			}
		})
	}
}

// The handler reads a buffered body as it was sent. A body that cannot be read spends nothing.
func TestBufferedBody(t *testing.T) {
	broken := errors.New("broken")
	for name, tt := range map[string]struct {
		body   io.Reader
		length int64
		most   int64 // limit of http.MaxBytesReader
		status int
		unread bool // bytes remain unread when the request is admitted
	}{
		"none":             {nil, 0, 0, 200, false},
		"short":            {strings.NewReader("abc"), 3, 0, 200, false},
		"as long":          {strings.NewReader("abcd"), 4, 0, 200, false},
		"longer":           {strings.NewReader("abcde"), 5, 0, 200, true},
		"unknown, short":   {strings.NewReader("abc"), -1, 0, 200, false},
		"unknown, as long": {strings.NewReader("abcd"), -1, 0, 200, false},
		"unknown, longer":  {strings.NewReader("abcdefgh"), -1, 0, 200, true},
		"breaks off":       {io.MultiReader(strings.NewReader("ab"), errorReader{broken}), 4, 0, 400, false},
		"breaks off late":  {io.MultiReader(strings.NewReader("abcd"), errorReader{broken}), -1, 0, 400, false},
		"forbidden":        {strings.NewReader("abc"), -1, 2, 413, false},
	} {
		t.Run(name, func(t *testing.T) {
			first := true
			g, s := chat(t, memory(t, newClock()), func(cfg *nethttp.Config) {
				cfg.BufferBody = 4
				cfg.Slot.MaxWait = generous
				cfg.Observe = observed(func(a *nethttp.Admission) {
					if first && (tt.status == 200) != (a.Err() == nil) || first && tt.status == 400 && !errors.Is(a.Err(), broken) {
						t.Errorf("error %v", a.Err())
					}
					first = false
				})
			})
			var sent bytes.Buffer
			r := httptest.NewRequest(http.MethodPost, "/", nil)
			as("acme", "ann")(r)
			left := func() bool { return false }
			if tt.body != nil {
				if l, ok := tt.body.(*strings.Reader); ok {
					left = func() bool { return l.Len() > 0 }
				}
				r.Body, r.ContentLength = io.NopCloser(io.TeeReader(tt.body, &sent)), tt.length
			}
			w := httptest.NewRecorder()
			if tt.most > 0 {
				r.Body = http.MaxBytesReader(w, r.Body, tt.most)
			}
			g.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				if left() != tt.unread {
					t.Errorf("unread: %v", left())
				}
				got, err := io.ReadAll(r.Body)
				if err != nil || string(got) != sent.String() || left() {
					t.Errorf("body %q of %q, %v", got, sent.String(), err)
				}
				gatetest.Worked(t, r.Body.Close())
			})).ServeHTTP(w, r)
			if w.Code != tt.status {
				t.Errorf("status %d, want %d", w.Code, tt.status)
			}
			holders(t, s, "acme", 0)
			want := `"requests";r=8`
			if tt.status != 200 {
				want = `"requests";r=9`
			}
			if got := get(g.Handler(http.HandlerFunc(ok)), as("acme", "ann")).Header.Get("RateLimit"); got != want {
				t.Errorf("RateLimit %s, want %s", got, want)
			}
		})
	}
}

type errorReader struct{ err error }

func (r errorReader) Read([]byte) (int, error) { return 0, r.err }

// A form that was parsed outside the Guard keeps its uploads, even if a Cost reads the body.
func TestCostBodyKeepsUploads(t *testing.T) {
	guard := priced(t, nethttp.Rule{CostBody: 10, Cost: func(*http.Request) int64 { return 1 }})
	var uploaded []byte
	inner := guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		file, _, err := r.FormFile("upload")
		if err != nil {
			t.Error(err)
			return
		}
		defer file.Close()
		uploaded, _ = io.ReadAll(file)
	}))
	outer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := r.ParseMultipartForm(10); err != nil { // larger uploads are files
			t.Error(err)
		}
		inner.ServeHTTP(w, r)
	})
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	part := gatetest.Must(form.CreateFormFile("upload", "file"))(t)
	content := bytes.Repeat([]byte("x"), 20<<20)
	gatetest.Must(part.Write(content))(t)
	gatetest.NoError(t, form.Close())
	r := httptest.NewRequest(http.MethodPost, "/", &body)
	r.Header.Set("Content-Type", form.FormDataContentType())
	outer.ServeHTTP(httptest.NewRecorder(), r)
	if !bytes.Equal(uploaded, content) {
		t.Errorf("%d bytes uploaded, want %d", len(uploaded), len(content))
	}
}
