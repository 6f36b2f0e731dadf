package llm_test

import (
	"context"
	"io"
	"net/http"
	"runtime"
	"testing"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/llm"
)

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
