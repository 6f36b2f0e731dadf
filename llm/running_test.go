package llm_test

import (
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
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
			gatetest.Worked(t, gatetest.Err(io.ReadFull(response.Body, make([]byte, n*len(word)))))
		}
		next(5)
		gatetest.Equal(t, r.used(), 8, "tokens used within the estimate")
		close(resume)
		next(1)
		// The charge follows its event.
		for used := r.used(); used != 8+every; used = r.used() {
			gatetest.Need(t, used, 8, "tokens are used beyond the estimate")
		}
		close(goOn)
		read(t, response)
		report := r.want(llm.OutcomeReported, llm.Usage{Input: 7, Output: 20}, 27)
		gatetest.Equal(t, report.Indebted, false, "indebted")
	}
}

// A request that a guard lets pass without limits is not charged while it runs either.
func TestExemptRequestIsNotCharged(t *testing.T) {
	r := newRig(t, core.UnitTokens, 10, func(cfg *llm.Config) {
		cfg.ChargeEvery, cfg.Overrun = 1, llm.OverrunEnd
		cfg.Guard.Skip = func(*http.Request) bool { return true }
	})
	r.answer = chat(7, 20)
	outer := core.Must(nethttp.Limit(r.gate, "outer", core.PerMinute(9), tenant))
	r.serve(outer.Handler(r.meter.Handler(proxyTo(t, r.upstream))))
	gatetest.Equal(t, strings.Count(read(t, r.post(chatPath, small)), "word"), 20, "words")
	r.want(llm.OutcomeReported, llm.Usage{Input: 7, Output: 20}, 0)
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
	gatetest.Worked(t, gatetest.Err(io.ReadFull(response.Body, make([]byte, 9*len(word)))))
	close(goOn)
	gatetest.Equal(t, strings.Count(read(t, response), "word"), 12, "words")
	report := r.want(llm.OutcomeReported, llm.Usage{Input: 3, Output: 12}, 15)
	gatetest.Equal(t, report.Indebted, true, "indebted")
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
		upstream                   func(http.Header) // of the proxy
	}{
		{name: "chat", path: chatPath, event: word},
		{name: "chat with another key", path: chatPath, event: word,
			upstream: func(h http.Header) { h.Set("X-Tenant", "gateway") }},
		{name: "chat without a key", path: chatPath, event: word,
			upstream: func(h http.Header) { h.Del("X-Tenant") }},
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
				if proxy := proxyTo(t, r.upstream); c.upstream != nil {
					r.handle(func(w http.ResponseWriter, q *http.Request) {
						c.upstream(q.Header)
						proxy.ServeHTTP(w, q)
					})
				}
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
	gatetest.Equal(t, (<-r.reports).Outcome, llm.OutcomeCut, "outcome")
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
	gatetest.Equal(t, strings.Count(string(gatetest.Must(io.ReadAll(z))(t)), "word"), 12, "the client was sent")
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
	// 17 fit beside the input, and it may end up to ChargeEvery earlier.
	if n < 17-4 || !report.Indebted || report.Usage != (llm.Usage{Input: 3, Output: n}) ||
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
			gatetest.Equal(t, strings.Count(read(t, r.post(chatPath, body)), "word"), 60, "words")
			report := r.want(llm.OutcomeReported, llm.Usage{Input: 3, Output: 60}, 63)
			gatetest.Equal(t, report.Indebted, false, "indebted")
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
		gatetest.Worked(t, gatetest.Err(io.ReadFull(response.Body, make([]byte, 800*len(word)))))
		for r.used() < 803 { // the charge follows its event
			runtime.Gosched()
		}
		close(goOn)
		gatetest.Contains(t, read(t, response), `"`+c.kind+`"`, "a raise of %v: the client was sent", c.lasts)
	}
}
