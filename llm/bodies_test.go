package llm_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/llm"
)

// Bodies of one tenant that stall take no more of MaxBodies than they leave to others.
func TestATenantCannotFillMaxBodies(t *testing.T) {
	const size = 1 << 16
	for _, scoped := range []bool{false, true} {
		r := newRig(t, core.UnitTokens, 1_000_000, func(cfg *llm.Config) {
			cfg.MaxBody, cfg.MaxBodies = size, 8*size
			if scoped {
				cfg.Guard.Scope, cfg.Budgets[0].Key = tenant, llm.ModelKey
			}
		})
		h := r.meter.Handler(http.HandlerFunc(ok))
		post := func(tenant string, body io.Reader) int {
			q := httptest.NewRequest(http.MethodPost, chatPath, body)
			q.Header.Set("X-Tenant", tenant)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, q)
			return w.Code
		}
		whole := `{"model":"m","max_tokens":1,"x":"` + strings.Repeat("y", size/2) + `"}`
		stalled, ends := 0, make(chan int)
		var clients []*io.PipeWriter
		for ; stalled < 16; stalled++ {
			body, client := io.Pipe()
			refused := make(chan int, 1)
			go func() {
				code := post("acme", body)
				body.Close() // as a server does
				refused <- code
				ends <- code
			}()
			if _, err := io.WriteString(client, strings.Repeat(" ", size/2+1)); err != nil {
				if code := <-refused; code != http.StatusServiceUnavailable {
					t.Errorf("%d", code)
				}
				<-ends
				break
			}
			clients = append(clients, client)
		}
		if stalled < 2 || stalled > 5 {
			t.Errorf("%d bodies of a tenant fit", stalled)
		}
		if code := post("globex", strings.NewReader(whole)); code != http.StatusOK {
			t.Errorf("another tenant gets %d", code)
		}
		for _, c := range clients {
			c.CloseWithError(io.ErrUnexpectedEOF)
			<-ends
		}
		if code := post("acme", strings.NewReader(whole)); code != http.StatusOK {
			t.Errorf("after its bodies: %d", code)
		}
	}
}

// pipes is a net.Listener whose connections are pipes, so that a server runs in a synctest bubble.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	if c, ok := <-p; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (p pipes) Close() error { return nil }
func (p pipes) Addr() net.Addr {
	return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}
}

// A body that comes too slowly is refused. One that comes fast enough may take its time, and so may
// the response.
func TestSlowBodiesAreCut(t *testing.T) {
	const piece = 16 << 10
	for _, c := range []struct {
		name    string
		pieces  int
		every   time.Duration
		timeout time.Duration // of the server
		status  int
	}{
		{"at once", 64, 0, 0, 200},
		{"at the rate", 64, time.Second, 0, 200},
		{"slowly", 64, 2 * time.Second, 0, 408},
		{"never", 2, time.Hour, 0, 408},
		{"later than the server wants", 64, time.Second, 20 * time.Second, 408},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				gate := core.Must(core.NewMemory(core.Config{}))
				defer gate.Close(context.Background())
				meter, err := llm.New(llm.Config{
					Guard: nethttp.Config{Gate: gate}, Budgets: []llm.Budget{{Policy: policy("budget", core.UnitTokens, 1e9), Key: tenant}},
				})
				if err != nil {
					t.Fatal(err)
				}
				listener := make(pipes)
				server := &http.Server{ReadTimeout: c.timeout, ErrorLog: log.New(io.Discard, "", 0),
					Handler: meter.Handler(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
						_, _ = io.Copy(io.Discard, q.Body)
						select {
						case <-q.Context().Done():
							w.WriteHeader(499)
						case <-time.After(time.Hour):
						}
					}))}
				go server.Serve(listener)
				near, far := net.Pipe()
				listener <- far
				defer func() {
					close(listener)
					server.Close()
					near.Close()
					time.Sleep(2 * time.Hour) // until the goroutines of both sides have ended
				}()
				go func() {
					fmt.Fprintf(near, "POST %s HTTP/1.1\r\nHost: x\r\nX-Tenant: acme\r\nContent-Length: %d\r\n\r\n", chatPath, c.pieces*piece)
					text := `{"model":"m","max_tokens":1,"x":"` + strings.Repeat("y", c.pieces*piece)
					text = text[:c.pieces*piece-2] + `"}`
					for ; text != ""; text = text[piece:] {
						if _, err := io.WriteString(near, text[:piece]); err != nil {
							return
						}
						time.Sleep(c.every)
					}
				}()
				response, err := http.ReadResponse(bufio.NewReader(near), nil)
				if err != nil {
					t.Fatal(err)
				}
				if response.StatusCode != c.status {
					t.Errorf("%d, want %d", response.StatusCode, c.status)
				}
			})
		})
	}
}
