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

func failure(status int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		fmt.Fprint(w,
			`{"error":{"message":"no"},"usage":{"prompt_tokens":7,"completion_tokens":11}}`)
	}
}

// The estimate is an input of 3 and an output of 50.
func TestUpstreamIsSettled(t *testing.T) {
	for _, c := range []struct {
		name    string
		answer  http.HandlerFunc
		status  int // 0 if the gateway may break off before its head or behind it
		outcome llm.Outcome
		usage   llm.Usage
	}{
		{"400", failure(400), 400, llm.OutcomeFailed, llm.Usage{}},
		{"429", failure(429), 429, llm.OutcomeFailed, llm.Usage{}},
		{"500", failure(500), 500, llm.OutcomeFailed, llm.Usage{}},
		{"529", failure(529), 529, llm.OutcomeFailed, llm.Usage{}},
		{"redirect", failure(302), 302, llm.OutcomeFailed, llm.Usage{}},
		{"breaks off before the first byte", abort, 502, llm.OutcomeFailed, llm.Usage{}},
		{"breaks off after the head", events(0, abort), 0, llm.OutcomeCut, llm.Usage{Input: 3}},
		{"breaks off between events", events(4, abort), 200, llm.OutcomeCut,
			llm.Usage{Input: 3, Output: 4}},
		{"breaks off in an event", events(4, func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprint(w, `data: {"choices":[{"delta":{"content":"wo`)
			_ = http.NewResponseController(w).Flush()
			abort(w, r)
		}), 200, llm.OutcomeCut, llm.Usage{Input: 3, Output: 5}},
		{"ends without a last event", events(4, nil), 200, llm.OutcomeCut,
			llm.Usage{Input: 3, Output: 4}},
		{"ends in an event", events(4, func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, `data: {"choices":[{"delta":{"content":"word"}}]}`)
		}), 200, llm.OutcomeCut, llm.Usage{Input: 3, Output: 5}},
		{"error event", events(4, func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, "data: {\"error\":{\"message\":\"overloaded\"}}\n\ndata: [DONE]\n\n")
		}), 200, llm.OutcomeCut, llm.Usage{Input: 3, Output: 4}},
		{"error event after a search", func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, `data: {"choices":[],"usage":{"server_tool_use":{"web_search_requests":1}}}`+
				"\n\ndata: {\"error\":{\"message\":\"overloaded\"}}\n\n")
		}, 200, llm.OutcomeCut, llm.Usage{Input: 3}},
		{"no usage", events(4, func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, "data: [DONE]\n\n")
		}), 200, llm.OutcomeUnreported, llm.Usage{Input: 3, Output: 50}},
		{"no usage and more than the estimate", events(60, func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, "data: [DONE]\n\n")
		}), 200, llm.OutcomeUnreported, llm.Usage{Input: 3, Output: 60}},
		{"invalid JSON in a chunk", events(4, func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprint(w, "data: {oops\n\n")
			chat(7, 2)(w, r)
		}), 200, llm.OutcomeReported, llm.Usage{Input: 7, Output: 2}},
		{"usage in a broken chunk", events(4, func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, `data: {"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":1}`+
				"\n\ndata: [DONE]\n\n")
		}), 200, llm.OutcomeUnreported, llm.Usage{Input: 3, Output: 50}},
		{"usage of nothing", events(4, chat(0, 0)), 200, llm.OutcomeUnreported,
			llm.Usage{Input: 3, Output: 50}},
		{"input of nothing", chat(0, 11), 200, llm.OutcomeUnreported,
			llm.Usage{Input: 3, Output: 11}},
		{"output of nothing", events(4, chat(7, 0)), 200, llm.OutcomeUnreported,
			llm.Usage{Input: 7, Output: 50}},
		{"usage of nothing in a document", func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, `{"choices":[{"message":{"content":"word"}}],`+
				`"usage":{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0}}`)
		}, 200, llm.OutcomeUnreported, llm.Usage{Input: 3, Output: 50}},
		{"sound without an input", func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, `{"choices":[{"message":{"content":"word"}}],"usage":{"prompt_tokens":0,`+
				`"completion_tokens":1000,"completion_tokens_details":{"audio_tokens":800,"reasoning_tokens":90}}}`)
		}, 200, llm.OutcomeUnreported, llm.Usage{Input: 3, Output: 200, AudioOut: 800, Reasoning: 90}},
		{"usage of nothing without an answer", chat(0, 0), 200, llm.OutcomeReported, llm.Usage{}},
		{"no content", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) }, 204,
			llm.OutcomeUnreported, llm.Usage{Input: 3, Output: 50}},
		{"empty", func(http.ResponseWriter, *http.Request) {}, 200, llm.OutcomeUnreported,
			llm.Usage{Input: 3, Output: 50}},
		{"a page", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>") }, 200,
			llm.OutcomeUnreported, llm.Usage{Input: 3, Output: 50}},
		{"early hints", func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(103)
			chat(7, 11)(w, r)
		}, 200, llm.OutcomeReported, llm.Usage{Input: 7, Output: 11}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, core.UnitTokens, 1000, nil)
			r.answer = c.answer
			client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error {
				return http.ErrUseLastResponse
			}}
			response, err := client.Do(r.request(chatPath, streamed))
			if err == nil {
				_, _ = io.Copy(io.Discard, response.Body)
				response.Body.Close()
				if c.status != 0 && response.StatusCode != c.status {
					t.Errorf("status %d", response.StatusCode)
				}
			} else if c.status != 0 {
				t.Error(err)
			}
			r.want(c.outcome, c.usage, c.usage.Total())
		})
	}
}

func TestUnreachableUpstreamCostsNothing(t *testing.T) {
	r := newRig(t, core.UnitTokens, 1000, nil)
	r.serve(r.meter.Handler(proxyTo(t, "http://127.0.0.1:1")))
	if response := r.post(chatPath, streamed); response.StatusCode != 502 {
		t.Errorf("status %d", response.StatusCode)
	}
	r.want(llm.OutcomeFailed, llm.Usage{}, 0)
}

// A handler behind the Meter may do what any handler does.
func TestHandlerIsSettled(t *testing.T) {
	for _, c := range []struct {
		name    string
		handle  http.HandlerFunc
		body    string
		outcome llm.Outcome
		usage   llm.Usage
	}{
		{"writes nothing", func(http.ResponseWriter, *http.Request) {}, "", llm.OutcomeUnreported,
			llm.Usage{Input: 3, Output: 50}},
		{"panics", func(http.ResponseWriter, *http.Request) { panic("own") }, "", llm.OutcomeFailed,
			llm.Usage{}},
		{"panics in a stream", events(2, func(http.ResponseWriter, *http.Request) { panic("own") }),
			"", llm.OutcomeCut, llm.Usage{Input: 3, Output: 2}},
		{"flushes first", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			w.(http.Flusher).Flush()
			chat(7, 2)(w, r)
		}, "data: [DONE]\n\n", llm.OutcomeReported, llm.Usage{Input: 7, Output: 2}},
		{"copies", func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.Copy(w, strings.NewReader(`{"usage":{"prompt_tokens":7,"completion_tokens":2}}`))
		}, "}", llm.OutcomeReported, llm.Usage{Input: 7, Output: 2}},
		{"writes a string", func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"usage":{"prompt_tokens":7,"completion_tokens":2}}`)
		}, "}", llm.OutcomeReported, llm.Usage{Input: 7, Output: 2}},
		{"sets a deadline", func(w http.ResponseWriter, r *http.Request) {
			if err := http.NewResponseController(w).SetWriteDeadline(time.Time{}); err != nil {
				t.Error(err)
			}
			chat(7, 2)(w, r)
		}, "data: [DONE]\n\n", llm.OutcomeReported, llm.Usage{Input: 7, Output: 2}},
		{"hijacks", func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			conn.Close()
		}, "", llm.OutcomeUnreported, llm.Usage{Input: 3, Output: 50}},
		{"switches protocols", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusSwitchingProtocols)
		}, "", llm.OutcomeUnreported, llm.Usage{Input: 3, Output: 50}},
		{"sends two statuses", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(500)
			w.WriteHeader(200)
			fmt.Fprint(w, "failed")
		}, "failed", llm.OutcomeFailed, llm.Usage{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, core.UnitTokens, 1000, nil)
			r.handle(c.handle)
			if response, err := plainClient.Do(r.request(chatPath, streamed)); err == nil {
				body, _ := io.ReadAll(response.Body)
				response.Body.Close()
				if !strings.HasSuffix(string(body), c.body) {
					t.Errorf("%s", body)
				}
			}
			r.want(c.outcome, c.usage, c.usage.Total())
		})
	}
}

// A flush that no ResponseWriter below can do begins no response: the handler may still fail.
func TestFlushThatNothingSupports(t *testing.T) {
	r := newRig(t, core.UnitTokens, 1000, nil)
	metered := r.meter.Handler(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if err := http.NewResponseController(w).Flush(); !errors.Is(err, http.ErrNotSupported) {
			t.Errorf("error %v", err)
		}
		failure(500)(w, q)
	}))
	r.serve(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		metered.ServeHTTP(struct{ http.ResponseWriter }{w}, q)
	}))
	response := r.post(chatPath, streamed)
	if body := read(t, response); response.StatusCode != 500 {
		t.Errorf("status %d: %s", response.StatusCode, body)
	}
	r.want(llm.OutcomeFailed, llm.Usage{}, 0)
}

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
