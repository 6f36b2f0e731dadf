package llm_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/keyfunc"
	"github.com/headgate/headgate/llm"
)

var tenant = keyfunc.Must(keyfunc.Header("X-Tenant"))

// rig is a Meter in front of an upstream that a test chooses.
type rig struct {
	*testing.T
	gate     *core.Gate
	meter    *llm.Meter
	budget   *core.Policy
	url      string
	close    func() // closes the gateway
	upstream string
	reports  chan llm.ResponseEvent
	answer   func(w http.ResponseWriter, r *http.Request)

	mu    sync.Mutex
	asked []string // bodies that the upstream has read
}

func newRig(t *testing.T, unit core.Unit, limit int64, change func(*llm.Config)) *rig {
	t.Helper()
	r := &rig{T: t, reports: make(chan llm.ResponseEvent, 100)}
	memory := core.Must(core.NewMemory(core.Config{}))
	r.gate = memory
	r.budget = policy("budget", unit, limit)
	cfg := llm.Config{
		Guard:   nethttp.Config{Gate: r.gate},
		Budgets: []llm.Budget{{Policy: r.budget, Key: tenant}},
		Observe: func(_ context.Context, e core.Event) { r.reports <- *e.(*llm.ResponseEvent) },
	}
	r.Cleanup(func() { // after the servers are closed
		for _, gate := range []*core.Gate{memory, r.gate} {
			gatetest.Worked(t, gate.Close(context.Background()))
		}
	})
	if change != nil {
		change(&cfg)
	}
	r.gate, r.budget = cfg.Guard.Gate, cfg.Budgets[0].Policy
	r.meter = gatetest.Must(llm.New(cfg))(t)
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, _ := io.ReadAll(q.Body)
		r.mu.Lock()
		r.asked = append(r.asked, string(body))
		r.mu.Unlock()
		r.answer(w, q)
	}))
	r.upstream = upstream.URL
	r.serve(r.meter.Handler(proxyTo(t, r.upstream)))
	t.Cleanup(upstream.Close) // before the gateway, whose requests it ends
	return r
}

func proxyTo(t *testing.T, server string) http.Handler {
	t.Helper()
	at := gatetest.Must(url.Parse(server))(t)
	proxy := httputil.NewSingleHostReverseProxy(at)
	proxy.ErrorLog = log.New(io.Discard, "", 0)
	return proxy
}

// serve makes h the gateway.
func (r *rig) serve(h http.Handler) {
	gateway := httptest.NewUnstartedServer(h)
	gateway.Config.ErrorLog = log.New(io.Discard, "", 0)
	gateway.Start()
	r.url, r.close = gateway.URL, sync.OnceFunc(gateway.Close)
	r.Cleanup(r.close)
}

// handle makes h the handler behind the Meter.
func (r *rig) handle(h http.HandlerFunc) { r.serve(r.meter.Handler(h)) }

// request returns a POST of acme, with pairs of a header and its value.
func (r *rig) request(path, body string, header ...string) *http.Request {
	r.Helper()
	q := gatetest.Must(http.NewRequestWithContext(r.Context(), http.MethodPost, r.url+path, strings.NewReader(body)))(r)
	q.Header.Set("X-Tenant", "acme")
	for i := 0; i < len(header); i += 2 {
		q.Header.Set(header[i], header[i+1])
	}
	return q
}

func (r *rig) post(path, body string, header ...string) *http.Response {
	r.Helper()
	return gatetest.Must(plainClient.Do(r.request(path, body, header...)))(r)
}

// ask sends a request and reads the response.
func (r *rig) ask(path, body string, header ...string) (status int, text string) {
	r.Helper()
	response := r.post(path, body, header...)
	return response.StatusCode, read(r.T, response)
}

// spend spends units of the budget of acme.
func (r *rig) spend(units int64) {
	r.Helper()
	charge := r.charge()
	charge.Cost = units
	gatetest.Must(r.gate.Decide(r.Context(), charge))(r)
}

// plainClient asks for no encoding and follows no redirect.
var plainClient = &http.Client{Transport: &http.Transport{DisableCompression: true}}

// want checks what the next request that ended has used, and what the budget counts.
func (r *rig) want(outcome llm.Outcome, usage llm.Usage, used int64) llm.ResponseEvent {
	r.Helper()
	report := <-r.reports
	if report.Outcome != outcome || report.Usage != usage {
		r.Errorf("%v with %+v, want %v with %+v", report.Outcome, report.Usage, outcome, usage)
	}
	gatetest.Equal(r, r.used(), used, "units used")
	return report
}

// unasked checks that the upstream was not asked and that nothing is spent.
func (r *rig) unasked() {
	r.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.asked) > 0 || len(r.reports) > 0 {
		r.Errorf("the upstream was asked %q, %d reports", r.asked, len(r.reports))
	}
	gatetest.Equal(r, r.used(), 0, "units are used")
}

// used returns what acme has used of the budget.
func (r *rig) used() int64 {
	r.Helper()
	return r.usedOf(r.budget)
}

func (r *rig) usedOf(p *core.Policy) int64 {
	r.Helper()
	for _, result := range r.peek() {
		if result.Policy == p {
			return result.Used
		}
	}
	r.Fatalf("%s is no rule", p.Name())
	return 0
}

// peek returns the limits of acme.
func (r *rig) peek() []core.Result {
	r.Helper()
	q := httptest.NewRequest(http.MethodPost, "/v1/chat/completions", nil)
	q.Header.Set("X-Tenant", "acme")
	q.Header.Set("X-User", "ann")
	charges := gatetest.Must(r.meter.Guard(llm.FormatOpenAIChat).Charges(q))(r)
	d := gatetest.Must(r.gate.Peek(r.Context(), charges...))(r)
	var all []core.Result
	for _, result := range d.Results() {
		all = append(all, result)
	}
	return all
}

// setSlot gives the Guard a Slot with these caps.
func setSlot(cfg *llm.Config, caps ...nethttp.Cap) *semaphore.Semaphore {
	s := core.Must(semaphore.New(cfg.Guard.Gate, semaphore.Config{Name: "streams"}))
	cfg.Guard.Slot = &nethttp.Slot{Semaphore: s, Caps: caps}
	return s
}

// holders returns how many hold a slot of a key.
func holders(t *testing.T, s *semaphore.Semaphore, key core.Key) int {
	t.Helper()
	all, _, err := s.Holders(t.Context(), key)
	gatetest.NoError(t, err)
	return len(all)
}

// policy returns a limit on a year.
func policy(name string, unit core.Unit, limit int64) *core.Policy {
	return core.Must(core.NewPolicy(core.PolicyConfig{
		Name: name, Unit: unit, Hold: time.Minute,
		Algorithm: core.Calendar{Limit: limit, Every: core.PeriodYear, In: time.UTC},
	}))
}

func read(t *testing.T, response *http.Response) string {
	t.Helper()
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	gatetest.Worked(t, err)
	return string(body)
}

// usageChunk states a number of input and of output tokens.
const usageChunk = `data: {"choices":[],"usage":{"prompt_tokens":%d,"completion_tokens":%d}}` + "\n\n"

// chat streams that many tokens, and the usage if the request asks for it.
func chat(prompt, tokens int) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for range tokens {
			fmt.Fprint(w, word)
			w.(http.Flusher).Flush()
		}
		fmt.Fprintf(w, usageChunk, prompt, tokens)
		fmt.Fprint(w, "data: [DONE]\n\n")
	}
}

const streamed = `{"model":"m","stream":true,"max_tokens":50,"messages":[{"role":"user","content":"abcdefgh"}]}`

// A stream whose server has sent all of the answer is not ended, whatever it has used.
func TestWholeAnswerIsNotEnded(t *testing.T) {
	for _, c := range []struct{ path, transcript string }{
		{"/v1/chat/completions", "chat-text.sse"},
		{"/v1/responses", "responses-text.sse"},
		{"/v1/messages", "messages-text.sse"},
	} {
		body := gatetest.Must(os.ReadFile(filepath.Join("internal", "wire", "testdata", c.transcript)))(t)
		whole := string(body)
		for _, halves := range []bool{false, true} {
			r := newRig(t, core.UnitOutputTokens, 1, func(cfg *llm.Config) {
				cfg.MaxOutput, cfg.ChargeEvery, cfg.Overrun = 1, 1, llm.OverrunEnd
			})
			r.handle(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				last := len(whole)
				if halves { // the budget denies within the last event
					last--
				}
				fmt.Fprint(w, whole[:last])
				fmt.Fprint(w, whole[last:])
			})
			got := read(t, r.post(c.path, `{"model":"m","stream":true,"stream_options":{"include_usage":true}}`))
			gatetest.Equal(t, got, whole, "%s: the client was sent", c.transcript)
			if report := <-r.reports; report.Outcome != llm.OutcomeReported ||
				report.Usage.Output < 2 {
				t.Errorf("%s: %+v", c.transcript, report)
			}
		}
	}
}
