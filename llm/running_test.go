package llm_test

import (
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/llm"
)

// small is a stream with an estimate of 3 tokens of input and 5 of output.
const small = `{"model":"m","stream":true,"max_tokens":5,"messages":[{"role":"user","content":"abcdefgh"}]}`

// A stream that outgrows its estimate is charged while it runs, and settled to the token.
func TestRunningCharges(t *testing.T) {
	for _, every := range []int64{1, 4, 1000} {
		r := newRig(t, core.UnitTokens, 10_000, func(cfg *llm.Config) { cfg.ChargeEvery = every })
		resume, goOn := make(chan struct{}), make(chan struct{})
		r.answer = events(5, func(w http.ResponseWriter, q *http.Request) {
			<-resume
			events(1, nil)(w, q)
			<-goOn
			chat(7, 20)(w, q)
		})
		response := r.post(chatPath, small)
		next := func(n int) {
			if _, err := io.ReadFull(response.Body, make([]byte, n*len(word))); err != nil {
				t.Error(err)
			}
		}
		if next(5); r.used() != 8 {
			t.Errorf("%d tokens are used within the estimate", r.used())
		}
		close(resume)
		next(1)
		// The charge follows its event.
		for used := r.used(); used != 8+every; used = r.used() {
			gatetest.Need(t, used, 8, "tokens are used beyond the estimate")
		}
		close(goOn)
		read(t, response)
		if report := r.want(llm.OutcomeReported, llm.Usage{Input: 7, Output: 20}, 27); report.Indebted {
			t.Error("it is indebted")
		}
	}
}

// A request that a guard lets pass without limits is not charged while it runs either.
func TestExemptRequestIsNotCharged(t *testing.T) {
	for name, change := range map[string]func(*nethttp.Config){
		"Skip": func(cfg *nethttp.Config) { cfg.Skip = func(*http.Request) bool { return true } },
	} {
		r := newRig(t, core.UnitTokens, 10, func(cfg *llm.Config) {
			cfg.ChargeEvery, cfg.Overrun = 1, llm.OverrunEnd
			change(&cfg.Guard)
		})
		r.answer = chat(7, 20)
		outer := core.Must(nethttp.Limit(r.gate, "outer", core.PerMinute(9), tenant))
		r.serve(outer.Handler(r.meter.Handler(proxyTo(t, r.upstream))))
		if body := read(t, r.post(chatPath, small)); strings.Count(body, "word") != 20 {
			t.Errorf("%s: %s", name, body)
		}
		r.want(llm.OutcomeReported, llm.Usage{Input: 7, Output: 20}, 0)
	}
}

// With OverrunDebt a stream goes on without room, and later requests wait for its debt.
func TestOverrunDebt(t *testing.T) {
	r := newRig(t, core.UnitTokens, 10, func(cfg *llm.Config) { cfg.ChargeEvery = 2 })
	goOn := make(chan struct{})
	r.answer = events(9, func(w http.ResponseWriter, q *http.Request) {
		<-goOn
		chat(3, 12)(w, q)
	})
	response := r.post(chatPath, small)
	if _, err := io.ReadFull(response.Body, make([]byte, 9*len(word))); err != nil {
		t.Error(err)
	}
	close(goOn)
	if body := read(t, response); strings.Count(body, "word") != 12 {
		t.Errorf("the client was sent %s", body)
	}
	if report := r.want(llm.OutcomeReported, llm.Usage{Input: 3, Output: 12}, 15); !report.Indebted {
		t.Error("it is not indebted")
	}
	gatetest.Equal(t, r.post(chatPath, small).StatusCode, 429, "status")
}

// With OverrunEnd a stream without room ends between two events, with an error of its format, and
// its body ends as usual. The server sees that the request is cancelled.
func TestOverrunEnd(t *testing.T) {
	const delta = "event: content_block_delta\n" +
		`data: {"type":"content_block_delta","delta":{"type":"text_delta","text":"word"}}` + "\n\n"
	const item = "event: response.output_text.delta\n" +
		`data: {"type":"response.output_text.delta","delta":"word","sequence_number":6}` + "\n\n"
	const message = `"message":"The budget is spent, and the stream ends here."`
	const quota = `{` + message +
		`,"type":"insufficient_quota","param":null,"code":"insufficient_quota"}`
	for _, c := range []struct {
		name, path, options, event string
		keep                       bool
		last                       string
	}{
		{name: "chat", path: chatPath, event: word},
		{name: "chat with usage", path: chatPath,
			options: `"stream_options":{"include_usage":true},`, event: word},
		{name: "chat with KeepBody", path: chatPath, event: word, keep: true},
		{name: "responses", path: responsesPath, event: item,
			last: "event: error\n" + `data: {"type":"error","code":"insufficient_quota",` + message +
				`,"param":null,"error":` + quota + `,"sequence_number":7}` + "\n\n"},
		{name: "messages", path: messagesPath, event: delta,
			last: "event: error\n" + `data: {"type":"error","error":{"type":"rate_limit_error",` +
				message + "}}\n\n"},
	} {
		if c.last == "" {
			c.last = `data: {"error":` + quota + "}\n\ndata: [DONE]\n\n"
		}
		// Pieces that end within events, so that the stream stands between two of them only within
		// a piece.
		for _, cut := range []int{0, 30} {
			t.Run(fmt.Sprintf("%s, cut at %d", c.name, cut), func(t *testing.T) {
				r := newRig(t, core.UnitTokens, 10, func(cfg *llm.Config) {
					cfg.ChargeEvery, cfg.Overrun, cfg.KeepBody = 2, llm.OverrunEnd, c.keep
				})
				stopped := make(chan struct{})
				r.answer = func(w http.ResponseWriter, q *http.Request) {
					w.Header().Set("Content-Type", "text/event-stream")
					fmt.Fprint(w, c.event[:cut])
					for {
						fmt.Fprint(w, c.event[cut:]+c.event[:cut])
						if http.NewResponseController(w).Flush(); q.Context().Err() != nil {
							close(stopped)
							return
						}
					}
				}
				ask := fmt.Sprintf(`{"model":"m","stream":true,%s "max_tokens":5,`+
					`"max_output_tokens":5,"system":"abcdefgh"}`, c.options)
				body := read(t, r.post(c.path, ask))
				<-stopped
				rest, ok := strings.CutSuffix(body, c.last)
				n := len(rest) / len(c.event)
				if !ok || rest != strings.Repeat(c.event, n) || n < 8 {
					t.Fatalf("%d events:\n%s", n, body)
				}
				report := <-r.reports
				want := llm.Usage{Input: 2, Output: int64(n)}
				if report.Usage.Output > want.Output { // of an event that had begun
					want.Output++
				}
				if report.Outcome != llm.OutcomeCut || report.Usage != want || !report.Indebted ||
					r.used() != want.Total() {
					t.Errorf("%d units are used for %d events, %+v", r.used(), n, report)
				}
			})
		}
	}
}

// A stream that the upstream sends with a Content-Length ends as well.
func TestOverrunEndOfKnownLength(t *testing.T) {
	r := newRig(t, core.UnitTokens, 10, func(cfg *llm.Config) {
		cfg.ChargeEvery, cfg.Overrun, cfg.KeepBody = 1, llm.OverrunEnd, true
	})
	r.answer = func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		w.Header().Set("Content-Length", fmt.Sprint(1000*len(word)))
		fmt.Fprint(w, strings.Repeat(word, 1000))
	}
	if body := read(t, r.post(chatPath, small)); !strings.HasSuffix(body, "data: [DONE]\n\n") {
		t.Errorf("the client was sent %s", body)
	}
	if report := <-r.reports; report.Outcome != llm.OutcomeCut {
		t.Errorf("%+v", report)
	}
}

// An encoded stream cannot be ended between two events. It goes on and becomes a debt.
func TestOverrunOfAnEncodedStream(t *testing.T) {
	r := newRig(t, core.UnitTokens, 10, func(cfg *llm.Config) { cfg.ChargeEvery, cfg.Overrun = 1, llm.OverrunEnd })
	r.answer = func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		for range 12 {
			fmt.Fprint(z, word)
			_ = z.Flush()
			_ = http.NewResponseController(w).Flush()
		}
		fmt.Fprintf(z, usageChunk+"data: [DONE]\n\n", 3, 12)
		_ = z.Close()
	}
	response := r.post(chatPath, small)
	z := gatetest.Must(gzip.NewReader(response.Body))(t)
	if body, err := io.ReadAll(z); err != nil || strings.Count(string(body), "word") != 12 {
		t.Errorf("%v, the client was sent %s", err, body)
	}
	response.Body.Close()
	r.want(llm.OutcomeReported, llm.Usage{Input: 3, Output: 12}, 15)
}

// A stream whose estimate was lowered to the limit is charged beyond the limit, not beyond its
// estimate.
func TestLoweredEstimateIsCharged(t *testing.T) {
	r := newRig(t, core.UnitTokens, 20, func(cfg *llm.Config) { cfg.ChargeEvery, cfg.Overrun = 4, llm.OverrunEnd })
	r.answer = func(w http.ResponseWriter, q *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for q.Context().Err() == nil {
			events(1, nil)(w, q)
		}
	}
	body := read(t, r.post(chatPath, streamed)) // 3 + 50
	n := int64(strings.Count(body, "word"))
	report := <-r.reports
	if report.Usage.Output > n { // of an event that had begun
		n++
	}
	if n < 18 || !report.Indebted || report.Usage != (llm.Usage{Input: 3, Output: n}) ||
		r.used() != 3+n {
		t.Errorf("%d events, %d units are used, %+v", n, r.used(), report)
	}
}

// An estimate above the limit passes on an untouched key. Later requests wait for the debt.
func TestEstimateAboveTheLimit(t *testing.T) {
	clock := core.NewManualClock(time.Unix(1e9, 0))
	r := newRig(t, core.UnitTokens, 10, func(cfg *llm.Config) {
		cfg.Guard.Gate = core.Must(core.NewMemory(core.Config{Clock: clock.Now}))
		cfg.Budgets[0].Policy = core.Must(core.NewPolicy(core.PolicyConfig{
			Name: "budget", Unit: core.UnitTokens, Hold: time.Minute, Algorithm: core.PerMinute(60),
		}))
	})
	q := `{"model":"m","max_tokens":500}`
	r.handle(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"usage":{"prompt_tokens":10,"completion_tokens":80}}`)
	})
	read(t, r.post(chatPath, q))
	r.want(llm.OutcomeReported, llm.Usage{Input: 10, Output: 80}, 90)
	if response := r.post(chatPath, q); response.StatusCode != 429 ||
		response.Header.Get("Retry-After") != "90" {
		t.Errorf("status %d, retry after %s", response.StatusCode,
			response.Header.Get("Retry-After"))
	}
	clock.Advance(90*time.Second - time.Microsecond)
	gatetest.Equal(t, r.post(chatPath, q).StatusCode, 429, "status before the debt is paid")
	clock.Advance(time.Microsecond)
	gatetest.Equal(t, r.post(chatPath, q).StatusCode, 200, "status once the debt is paid")
}

// While Redis fails a running charge is put off, the stream goes on, and the end is settled.
func TestRedisFailsWhileAStreamRuns(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		var down atomic.Bool
		client := s.Client(t)
		client.AddHook(failing{&down})
		gate := core.Must(core.NewRedis(client, core.Config{Prefix: s.Prefix[:30], Timeout: 30 * time.Second}))
		p := core.Must(core.NewPolicy(core.PolicyConfig{
			Name: "budget", Unit: core.UnitTokens, Hold: time.Minute, OnFailure: core.FailClosed,
			Algorithm: core.Calendar{Limit: 1000, Every: core.PeriodYear, In: time.UTC},
		}))
		r := newRig(t, core.UnitTokens, 1000, func(cfg *llm.Config) {
			cfg.Guard.Gate, cfg.Budgets[0].Policy = gate, p
			cfg.ChargeEvery, cfg.Overrun = 2, llm.OverrunEnd
		})
		r.answer = events(5, func(w http.ResponseWriter, q *http.Request) {
			down.Store(true)
			events(10, nil)(w, q)
			chat(7, 15)(w, q)
		})
		if body := read(t, r.post(chatPath, small)); strings.Count(body, "word") != 30 ||
			!strings.HasSuffix(body, "data: [DONE]\n\n") {
			t.Errorf("the client was sent %s", body)
		}
		if report := <-r.reports; report.Outcome != llm.OutcomeReported ||
			report.Usage != (llm.Usage{Input: 7, Output: 15}) || report.Indebted {
			t.Errorf("%+v", report)
		}
	})
}

// failing is a hook of a Redis client whose commands fail while it is set.
type failing struct{ *atomic.Bool }

func (f failing) DialHook(next redis.DialHook) redis.DialHook { return next }

func (f failing) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if f.Load() {
			cmd.SetErr(io.ErrUnexpectedEOF)
			return io.ErrUnexpectedEOF
		}
		return next(ctx, cmd)
	}
}

func (f failing) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// What a request has paid for, and what its running charges may spend, is bounded by the budget with
// its raises.
func TestRunningChargesHeedRaises(t *testing.T) {
	for _, c := range []struct {
		name      string
		maxTokens int
	}{
		{"estimate above the raised budget", 500},
		{"running charges above the budget", 5},
	} {
		t.Run(c.name, func(t *testing.T) {
			raisable := core.Must(core.NewPolicy(core.PolicyConfig{
				Name: "budget", Unit: core.UnitTokens, Hold: time.Minute, Raisable: true,
				Algorithm: core.Calendar{Limit: 10, Every: core.PeriodYear, In: time.UTC},
			}))
			r := newRig(t, core.UnitTokens, 10, func(cfg *llm.Config) {
				cfg.ChargeEvery, cfg.Overrun = 1, llm.OverrunEnd
				cfg.Budgets[0].Policy = raisable
			})
			charges := gatetest.Must(r.meter.Guard(llm.FormatOpenAIChat).Charges(r.request(chatPath, small)))(t)
			gatetest.Must(r.gate.Adjust(t.Context(), core.Adjustment{
				ID: "top-up", Policy: raisable, Key: charges[0].Key, Raise: 90, Until: time.Now().Add(time.Hour),
			}))(t)
			r.answer = chat(3, 60)
			body := strings.Replace(small, `"max_tokens":5`, fmt.Sprintf(`"max_tokens":%d`, c.maxTokens), 1)
			if body := read(t, r.post(chatPath, body)); strings.Count(body, "word") != 60 {
				t.Errorf("the client was sent %s", body)
			}
			if report := r.want(llm.OutcomeReported, llm.Usage{Input: 3, Output: 60}, 63); report.Indebted {
				t.Error("it is indebted")
			}
		})
	}
}

// The end of a stream says that a budget is spent if it will be once the raise of another one has ended.
func TestOverrunHeedsRaisesThatEnd(t *testing.T) {
	for _, c := range []struct {
		lasts time.Duration
		kind  string
	}{{time.Hour, "rate_limit_exceeded"}, {time.Second, "insufficient_quota"}} {
		clock := core.NewManualClock(time.Date(2026, 5, 5, 5, 5, 5, 0, time.UTC))
		budget := func(name string, limit core.Algorithm) *core.Policy {
			return core.Must(core.NewPolicy(core.PolicyConfig{
				Name: name, Unit: core.UnitTokens, Hold: time.Minute, Raisable: true, Algorithm: limit,
			}))
		}
		month := budget("month", core.Calendar{Limit: 1000, Every: core.PeriodMonth, In: time.UTC})
		r := newRig(t, core.UnitTokens, 10, func(cfg *llm.Config) {
			cfg.ChargeEvery, cfg.Overrun = 1, llm.OverrunEnd
			cfg.Guard.Gate = core.Must(core.NewMemory(core.Config{Clock: clock.Now}))
			cfg.Budgets[0].Policy = budget("minute", core.FixedWindow{Limit: 1000, Window: time.Minute})
			cfg.Budgets = append(cfg.Budgets, llm.Budget{Policy: month, Key: tenant})
		})
		charges := gatetest.Must(r.meter.Guard(llm.FormatOpenAIChat).Charges(r.request(chatPath, small)))(t)
		gatetest.Must(r.gate.Adjust(t.Context(), core.Adjustment{
			ID: "top-up", Policy: month, Key: charges[1].Key, Units: 500, Raise: 9000, Until: clock.Now().Add(c.lasts),
		}))(t)
		goOn := make(chan struct{})
		r.answer = events(800, func(w http.ResponseWriter, q *http.Request) {
			<-goOn
			events(300, func(_ http.ResponseWriter, q *http.Request) { <-q.Context().Done() })(w, q)
		})
		response := r.post(chatPath, small)
		if _, err := io.ReadFull(response.Body, make([]byte, 800*len(word))); err != nil {
			t.Error(err)
		}
		for r.used() < 803 { // the charge follows its event
			runtime.Gosched()
		}
		close(goOn)
		gatetest.Contains(t, read(t, response), `"`+c.kind+`"`, "a raise of %v: the client was sent", c.lasts)
	}
}

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
			if report := r.want(c.outcome, c.usage, c.usage.Total()); !report.Drained {
				t.Error("it was not drained")
			}
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
	gatetest.NoError(t, err)
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
		gatetest.Fails(t, gatetest.Err(io.ReadAll(response.Body)), "%+v: the stream ends as if it were whole", c)
		response.Body.Close()
		if report := r.want(llm.OutcomeCut, llm.Usage{Input: 3, Output: 4}, 7); report.Drained != c.leave {
			t.Errorf("%+v: %+v", c, report)
		}
	}
}

// A stream keeps what it holds, its running charges included, and settles it after an hour as after
// a second. It needs no slot for that.
func TestStreamKeepsItsHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := core.Must(core.NewMemory(core.Config{}))
		defer func() { _ = gate.Close(t.Context()) }()
		p := policy("budget", core.UnitTokens, 1000)
		m := core.Must(llm.New(llm.Config{
			Guard: nethttp.Config{Gate: gate}, Budgets: []llm.Budget{{Policy: p, Key: tenant}}, ChargeEvery: 10,
		}))
		q := httptest.NewRequest(http.MethodPost, chatPath, strings.NewReader(small)) // 3 + 5
		q.Header.Set("X-Tenant", "acme")
		charge := core.Charge{Policy: p, Key: core.Must(core.NewKey(core.Must(tenant(q)))), Cost: core.NoCost}
		used := func() int64 {
			d := gatetest.Must(gate.Peek(t.Context(), charge))(t)
			return d.At(0).Used
		}
		m.Handler(events(6, func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(time.Hour)
			gatetest.Equal(t, used(), 18, "units are used after an hour")
			chat(7, 11)(w, r)
		})).ServeHTTP(httptest.NewRecorder(), q)
		time.Sleep(time.Hour)
		gatetest.Equal(t, used(), 18, "units are used afterwards")
	})
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
// asked for, because it could not be hidden.
func TestClientChoosesNoUnreadEncoding(t *testing.T) {
	const message = `{"model":"m","max_tokens":5}`
	for _, c := range []struct{ path, body, accepts, want string }{
		{messagesPath, message, "br", "identity"}, {messagesPath, message, "zstd, br", "identity"},
		{messagesPath, message, "gzip;q=0, br", "identity"}, {messagesPath, message, "br, gzip;q=0.5", "identity"},
		{messagesPath, message, "", "identity"},
		{chatPath, `{"model":"m","stream":true}`, "gzip, br", "identity"},
		{chatPath, `{"model":"m","stream":true,"stream_options":{"include_usage":false}}`, "gzip", "identity"},
		{chatPath, `{"model":"m","stream":false}`, "gzip, br", "gzip"},
	} {
		r := newRig(t, core.UnitTokens, 1000, nil)
		var asked string
		r.handle(func(w http.ResponseWriter, q *http.Request) {
			asked = q.Header.Get("Accept-Encoding")
			chat(1, 1)(w, q)
		})
		if r.ask(c.path, c.body, "Accept-Encoding", c.accepts); asked != c.want {
			t.Errorf("%s, %q: the server was asked for %q, want %q", c.body, c.accepts, asked, c.want)
		}
	}
}

const word = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"word\"}}],\"usage\":null}\n\n"
