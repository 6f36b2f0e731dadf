package llm_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/internal/gatetest"
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
			gatetest.Is(t, err, context.Canceled, "%s", name)
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
				slots = setSlot(cfg, nethttp.Cap{Key: tenant, Limit: 1})
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
			key := r.charge().Key
			gatetest.Equal(t, holders(t, slots, key), 1, "hold a slot")
			gatetest.Equal(t, r.used(), 53, "units are used while the response is read on")
			close(gone)
			gatetest.Equal(t, r.want(c.outcome, c.usage, c.usage.Total()).Drained, true, "drained")
			gatetest.Equal(t, holders(t, slots, key), 0, "hold a slot afterwards")
		})
	}
}

// AbortDrain gives up after DrainFor.
func TestDrainEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := core.Must(core.NewMemory(core.Config{}))
		defer func() { _ = gate.Close(t.Context()) }()
		var report llm.ResponseEvent
		m := core.Must(llm.New(llm.Config{
			Guard:   nethttp.Config{Gate: gate},
			Budgets: []llm.Budget{{Policy: policy("budget", core.UnitTokens, 1000), Key: tenant}},
			Abort:   llm.AbortDrain, DrainFor: time.Hour,
			Observe: func(_ context.Context, e core.Event) { report = *e.(*llm.ResponseEvent) },
		}))
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

// A stream whose slot is lost is stopped, whether its client would be drained or not.
func TestLostSlotStopsTheStream(t *testing.T) {
	for _, c := range []struct {
		mode  llm.Abort
		leave bool // the client has left before
	}{{llm.AbortStop, false}, {llm.AbortDrain, false}, {llm.AbortDrain, true}} {
		var slots *semaphore.Semaphore
		r := newRig(t, core.UnitTokens, 1000, func(cfg *llm.Config) {
			cfg.Abort = c.mode
			slots = setSlot(cfg, nethttp.Cap{Key: tenant, Limit: 1})
		})
		r.answer = events(4, func(_ http.ResponseWriter, q *http.Request) { <-q.Context().Done() })
		left := make(chan struct{})
		meter := r.meter.Handler(proxyTo(t, r.upstream))
		r.serve(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			ctx, leave := context.WithCancel(q.Context())
			context.AfterFunc(q.Context(), func() {
				leave() // returns when all contexts of the Meter have ended
				close(left)
			})
			meter.ServeHTTP(w, q.WithContext(ctx))
		}))
		response := r.post(chatPath, streamed)
		gatetest.Worked(t, gatetest.Err(io.ReadFull(response.Body, make([]byte, 4*len(word)))))
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
		gatetest.Fails(t, gatetest.Err(io.ReadAll(response.Body)), "%+v: the stream ends as if it were whole", c)
		response.Body.Close()
		report := r.want(llm.OutcomeCut, llm.Usage{Input: 3, Output: 4}, 7)
		gatetest.Equal(t, report.Drained, c.leave, "%+v: drained", c)
	}
}

// What is held goes back if nobody renews it, as when its process has died: the estimate and the
// running charges. A process that was only paused settles what the stream has used.
func TestAbandonedHoldsGoBack(t *testing.T) {
	clock := core.NewManualClock(time.Date(2026, 2, 2, 0, 0, 0, 0, time.UTC))
	r := newRig(t, core.UnitTokens, 1000, func(cfg *llm.Config) {
		cfg.Guard.Gate = core.Must(core.NewMemory(core.Config{Clock: clock.Now}))
		cfg.ChargeEvery = 10
	})
	r.handle(events(6, func(w http.ResponseWriter, q *http.Request) {
		clock.Advance(time.Minute - time.Microsecond)
		gatetest.Equal(t, r.used(), 18, "units are used before the hold ends")
		clock.Advance(time.Microsecond)
		gatetest.Equal(t, r.used(), 0, "units are used after the hold")
		chat(7, 11)(w, q)
	}))
	read(t, r.post(chatPath, small))
	r.want(llm.OutcomeReported, llm.Usage{Input: 7, Output: 11}, 18)
}

// A stream that has told its usage goes on to its end, although a running charge was denied before.
func TestAnsweredStreamIsWhole(t *testing.T) {
	const usage = `data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":20}}` + "\n\n"
	for cut := range usage {
		r := newRig(t, core.UnitTokens, 15, func(cfg *llm.Config) {
			cfg.ChargeEvery, cfg.Overrun = 4, llm.OverrunEnd
		})
		all := strings.Repeat(word, 20) + usage + "data: [DONE]\n\n"
		at := 20*len(word) + cut
		r.handle(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprint(w, all[:at])
			fmt.Fprint(w, all[at:])
		})
		body := read(t, r.post(chatPath, small))
		whole := strings.HasSuffix(body, "data: [DONE]\n\n")
		if ended := strings.Contains(body, `"error"`); !whole ||
			strings.Count(body, "word") != 20 && !ended {
			t.Fatalf("cut at %d: the client was sent %s", cut, body[max(0, len(body)-200):])
		}
	}
}

// A long stream has few running charges, so that it takes little memory and ends soon.
func TestLongStreamHasFewCharges(t *testing.T) {
	charges := 0
	r := newRig(t, core.UnitTokens, 1_000_000, func(cfg *llm.Config) {
		cfg.ChargeEvery = 32
		budget := cfg.Budgets[0].Key
		cfg.Budgets[0].Key = func(r *http.Request) (string, error) {
			charges++ // the key is derived for each charge
			return budget(r)
		}
	})
	r.handle(events(20_000, func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":20000}}`+
			"\n\ndata: [DONE]\n\n")
	}))
	read(t, r.post(chatPath, small))
	r.want(llm.OutcomeReported, llm.Usage{Input: 3, Output: 20_000}, 20_003)
	if charges > 25 {
		t.Errorf("%d charges", charges)
	}
}

// Of an encoding that the Meter cannot read, a client can ask for none, and of none where the usage is
// asked for, because it could not be hidden, or where a stream may be ended between two events.
func TestClientChoosesNoUnreadEncoding(t *testing.T) {
	const message = `{"model":"m","max_tokens":5}`
	const stream = `{"model":"m","max_tokens":5,"stream":true}`
	for _, c := range []struct {
		path, body, accepts, want string
		overrun                   llm.Overrun
	}{
		{messagesPath, message, "br", "identity", 0}, {messagesPath, message, "zstd, br", "identity", 0},
		{messagesPath, message, "gzip;q=0, br", "identity", 0}, {messagesPath, message, "br, gzip;q=0.5", "identity", 0},
		{messagesPath, message, "", "identity", 0},
		{chatPath, `{"model":"m","stream":true}`, "gzip, br", "identity", 0},
		{chatPath, `{"model":"m","stream":true,"stream_options":{"include_usage":false}}`, "gzip", "identity", 0},
		{chatPath, `{"model":"m","stream":false}`, "gzip, br", "gzip", 0},
		{messagesPath, stream, "gzip", "gzip", 0}, {messagesPath, stream, "gzip", "identity", llm.OverrunEnd},
		{messagesPath, message, "gzip", "gzip", llm.OverrunEnd},
	} {
		r := newRig(t, core.UnitTokens, 1000, func(cfg *llm.Config) { cfg.ChargeEvery, cfg.Overrun = 1, c.overrun })
		var asked string
		r.handle(func(w http.ResponseWriter, q *http.Request) {
			asked = q.Header.Get("Accept-Encoding")
			chat(1, 1)(w, q)
		})
		r.ask(c.path, c.body, "Accept-Encoding", c.accepts)
		gatetest.Equal(t, asked, c.want, "%s, %q: the server was asked for", c.body, c.accepts)
	}
}

const word = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"word\"}}],\"usage\":null}\n\n"
