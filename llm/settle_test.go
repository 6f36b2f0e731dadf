package llm_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/llm"
)

// events is a handler that sends some events, and then calls do.
func events(n int, do func(w http.ResponseWriter, r *http.Request)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for range n {
			fmt.Fprint(w, word)
		}
		_ = http.NewResponseController(w).Flush()
		if do != nil {
			do(w, r)
		}
	}
}

func abort(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

// A stream whose client leaves is stopped, and pays its input and what was seen.
func TestClientLeavesMidStream(t *testing.T) {
	r := newRig(t, core.UnitTokens, 1000, nil)
	stopped := make(chan struct{})
	r.answer = events(4, func(_ http.ResponseWriter, q *http.Request) {
		<-q.Context().Done()
		close(stopped)
	})
	response := r.post(chatPath, streamed)
	if _, err := io.ReadFull(response.Body, make([]byte, 4*len(word))); err != nil {
		t.Error(err)
	}
	response.Body.Close()
	<-stopped
	r.want(llm.OutcomeCut, llm.Usage{Input: 3, Output: 4}, 7)
}

// A client that leaves before there is a response pays its input, which the server may have read.
// An estimate of cached input is input too.
func TestClientLeavesBeforeTheResponse(t *testing.T) {
	r := newRig(t, core.UnitTokens, 1000, func(cfg *llm.Config) {
		cfg.Estimate = func(*http.Request, llm.Request, []byte) (llm.Usage, error) {
			return llm.Usage{Input: 3, CacheRead: 20, CacheWrite: 100, Output: 50}, nil
		}
	})
	for name, handle := range map[string]http.HandlerFunc{
		"proxy": nil,
		"handler that returns": func(_ http.ResponseWriter, q *http.Request) {
			r.answer(nil, q)
		},
		"handler that panics": func(_ http.ResponseWriter, q *http.Request) {
			r.answer(nil, q)
			panic(http.ErrAbortHandler)
		},
		"handler that has sent the head": func(w http.ResponseWriter, q *http.Request) {
			w.WriteHeader(200)
			_ = http.NewResponseController(w).Flush()
			r.answer(nil, q)
		},
	} {
		if handle != nil {
			r.handle(handle)
		}
		before := r.used()
		ctx, leave := context.WithCancel(t.Context())
		r.answer = func(_ http.ResponseWriter, q *http.Request) {
			leave()
			<-q.Context().Done()
		}
		if response, err := plainClient.Do(r.request(chatPath, streamed).WithContext(ctx)); err == nil {
			_, err = io.ReadAll(response.Body)
			response.Body.Close()
			if !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v", name, err)
			}
		}
		t.Log(name)
		r.want(llm.OutcomeCut, llm.Usage{Input: 3, CacheRead: 20, CacheWrite: 100}, before+123)
	}
}

// AbortDrain reads on when the client has left, keeps the slot until the end and settles by the
// usage.
func TestDrain(t *testing.T) {
	for _, c := range []struct {
		name    string
		first   int // events before the client leaves
		rest    http.HandlerFunc
		outcome llm.Outcome
		usage   llm.Usage
	}{
		{"in a stream", 4, chat(7, 11), llm.OutcomeReported, llm.Usage{Input: 7, Output: 11}},
		{"before the response", 0, chat(7, 11), llm.OutcomeReported,
			llm.Usage{Input: 7, Output: 11}},
		{"before an error", 0, failure(429), llm.OutcomeFailed, llm.Usage{}},
		{"and the server breaks off", 4, abort, llm.OutcomeCut, llm.Usage{Input: 3, Output: 4}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var slots *semaphore.Semaphore
			r := newRig(t, core.UnitTokens, 1000, func(cfg *llm.Config) {
				cfg.Abort = llm.AbortDrain
				slots = core.Must(semaphore.New(cfg.Guard.Gate, semaphore.Config{Name: "streams"}))
				cfg.Guard.Slot = &nethttp.Slot{
					Semaphore: slots, Caps: []nethttp.Cap{{Key: tenant, Limit: 1}},
				}
			})
			ctx, leave := context.WithCancel(t.Context())
			left, gone := make(chan struct{}), make(chan struct{})
			r.answer = func(w http.ResponseWriter, q *http.Request) {
				if c.first > 0 {
					events(c.first, nil)(w, q)
				} else {
					leave()
				}
				<-gone
				c.rest(w, q)
			}
			meter := r.meter.Handler(proxyTo(t, r.upstream))
			r.serve(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
				seen, cancel := context.WithCancel(context.WithoutCancel(q.Context()))
				context.AfterFunc(q.Context(), func() {
					cancel() // returns when the Meter's context has ended too
					close(left)
				})
				meter.ServeHTTP(w, q.WithContext(seen))
			}))
			response, err := plainClient.Do(r.request(chatPath, streamed).WithContext(ctx))
			if err == nil {
				_, _ = io.ReadFull(response.Body, make([]byte, c.first*len(word)))
				leave()
				response.Body.Close()
			}
			<-left
			key := core.Must(core.NewKey(core.Must(tenant(r.request(chatPath, "")))))
			if holders, _, err := slots.Holders(t.Context(), key); len(holders) != 1 ||
				err != nil {
				t.Errorf("%d hold a slot, %v", len(holders), err)
			}
			if n := r.used(); n != 53 {
				t.Errorf("%d units are used while the response is read on", n)
			}
			close(gone)
			if report := r.want(c.outcome, c.usage, c.usage.Total()); !report.Drained {
				t.Error("it was not drained")
			}
			if holders, _, err := slots.Holders(t.Context(), key); len(holders) != 0 ||
				err != nil {
				t.Errorf("%d hold a slot afterwards, %v", len(holders), err)
			}
		})
	}
}

// AbortDrain gives up after DrainFor.
func TestDrainEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := core.Must(core.NewMemory(core.Config{}))
		defer func() { _ = gate.Close(t.Context()) }()
		var report llm.ResponseEvent
		m, err := llm.New(llm.Config{
			Guard:   nethttp.Config{Gate: gate},
			Budgets: []llm.Budget{{Policy: policy("budget", core.UnitTokens, 1000), Key: tenant}},
			Abort:   llm.AbortDrain, DrainFor: time.Hour,
			Observe: func(_ context.Context, e core.Event) { report = *e.(*llm.ResponseEvent) },
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, leave := context.WithCancel(t.Context())
		q := httptest.NewRequestWithContext(ctx, http.MethodPost, chatPath,
			strings.NewReader(streamed))
		q.Header.Set("X-Tenant", "acme")
		var took time.Duration
		m.Handler(events(4, func(w http.ResponseWriter, r *http.Request) {
			leave()
			left := time.Now()
			<-r.Context().Done()
			took = time.Since(left)
		})).ServeHTTP(httptest.NewRecorder(), q)
		if took != time.Hour || report.Outcome != llm.OutcomeCut ||
			report.Usage != (llm.Usage{Input: 3, Output: 4}) || !report.Drained {
			t.Errorf("it took %v: %+v", took, report)
		}
	})
}

// An informational response passes before the response, and the limits are in the response only.
func TestInformationalResponse(t *testing.T) {
	r := newRig(t, core.UnitTokens, 1000, nil)
	r.answer = func(w http.ResponseWriter, q *http.Request) {
		w.Header().Set("Link", "</style.css>")
		w.WriteHeader(http.StatusEarlyHints)
		chat(7, 11)(w, q)
	}
	informed := 0
	meter := r.meter.Handler(proxyTo(t, r.upstream))
	r.serve(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		w.Header().Set("X-Request-Id", "1")
		meter.ServeHTTP(w, q)
	}))
	q := r.request(chatPath, streamed)
	response, err := plainClient.Do(q.WithContext(httptrace.WithClientTrace(q.Context(), &httptrace.ClientTrace{
		Got1xxResponse: func(int, textproto.MIMEHeader) error { informed++; return nil },
	})))
	if err != nil {
		t.Fatal(err)
	}
	read(t, response)
	if h := response.Header; informed != 1 || h.Get("X-Ratelimit-Remaining-Tokens") != "947" ||
		h.Get("X-Request-Id") != "1" {
		t.Errorf("%d informational responses, then %v", informed, h)
	}
	r.want(llm.OutcomeReported, llm.Usage{Input: 7, Output: 11}, 18)
}

// A stream whose slot is lost is stopped, whether its client would be drained or not.
func TestLostSlotStopsTheStream(t *testing.T) {
	for _, c := range []struct {
		mode  llm.Abort
		leave bool // the client has left before
	}{{llm.AbortStop, false}, {llm.AbortDrain, false}, {llm.AbortDrain, true}} {
		var slots *semaphore.Semaphore
		r := newRig(t, core.UnitTokens, 1000, func(cfg *llm.Config) {
			cfg.Abort = c.mode
			slots = core.Must(semaphore.New(cfg.Guard.Gate, semaphore.Config{Name: "streams"}))
			cfg.Guard.Slot = &nethttp.Slot{
				Semaphore: slots, Caps: []nethttp.Cap{{Key: tenant, Limit: 1}},
			}
		})
		r.answer = events(4, func(_ http.ResponseWriter, q *http.Request) { <-q.Context().Done() })
		left := make(chan struct{})
		meter := r.meter.Handler(proxyTo(t, r.upstream))
		r.serve(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			context.AfterFunc(q.Context(), func() { close(left) })
			meter.ServeHTTP(w, q)
		}))
		response := r.post(chatPath, streamed)
		if _, err := io.ReadFull(response.Body, make([]byte, 4*len(word))); err != nil {
			t.Error(err)
		}
		if c.leave {
			response.Body.Close()
			<-left
		}
		key := r.charge().Key
		holders, _, err := slots.Holders(t.Context(), key)
		if err != nil || len(holders) != 1 {
			t.Fatalf("%d hold a slot, %v", len(holders), err)
		}
		if n, err := slots.Evict(t.Context(), key, holders[0].ID); n != 1 || err != nil {
			t.Errorf("%d were evicted, %v", n, err)
		}
		if _, err := io.ReadAll(response.Body); err == nil {
			t.Errorf("%+v: the stream ends as if it were whole", c)
		}
		response.Body.Close()
		if report := r.want(llm.OutcomeCut, llm.Usage{Input: 3, Output: 4}, 7); report.Drained != c.leave {
			t.Errorf("%+v: %+v", c, report)
		}
	}
}
