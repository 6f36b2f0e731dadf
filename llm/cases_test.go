package llm_test

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"mime/multipart"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/llm"
)

// llmCase is a request, its response, what a meter must read of it and what that costs, as an
// independent script has checked it.
type llmCase struct {
	dir    string
	Name   string
	Format string
	caseModel

	Also     []caseModel
	Units    map[string]int64
	Labels   map[string]string
	Stated   int64 `json:"stated_micro_dollars"`
	Outcome  string
	Hide     []int
	Complete bool
	Reports  bool  `json:"report_only"` // that something ran which no tariff prices
	Billed   *bool // false of a refusal that costs nothing, whatever it states
	Seen     struct {
		Events int64 `json:"events_with_text"`
	}
	FinalAfter int `json:"final_after_event"`
	Asked      struct {
		MaxOutput int64 `json:"max_output"`
		Choices   int64
		Stream    bool
	} `json:"request"`

	Tariffs map[string]struct {
		Tokens caseTokens
		Steps  []struct {
			From   int64
			Tokens caseTokens
		}
		Units, Factors map[string]int64
	}
	MicroDollars *int64 `json:"micro_dollars"`

	path, contentType, ask string
	status                 int
	header                 http.Header
	body                   []byte
}

// caseModel is what one model has used.
type caseModel struct {
	Model   string
	Usage   caseTokens
	OfWhich struct{ Reasoning int64 } `json:"of_which"`
}

func (m *caseModel) usage() llm.Usage { return m.Usage.usage(m.OfWhich.Reasoning) }

// caseTokens is a number for each kind of token. A price that is absent is nil.
type caseTokens map[string]*int64

func (c caseTokens) of(kind string) int64 {
	if n := c[kind]; n != nil {
		return *n
	}
	return 0
}

func (c caseTokens) usage(reasoning int64) llm.Usage {
	return llm.Usage{
		Input: c.of("input"), CacheRead: c.of("cache_read"), CacheWrite: c.of("cache_write"),
		CacheWriteLong: c.of("cache_write_long"), AudioIn: c.of("audio_in"), ImageIn: c.of("image_in"),
		Output: c.of("output"), AudioOut: c.of("audio_out"), ImageOut: c.of("image_out"),
		Reasoning: reasoning,
	}
}

// price returns prices, of which one of 0 is free.
func (c caseTokens) price() llm.Price {
	of := func(kind string) int64 {
		if n := c[kind]; n != nil && *n == 0 {
			return llm.Free
		}
		return c.of(kind)
	}
	return llm.Price{
		Input: of("input"), CacheRead: of("cache_read"), CacheWrite: of("cache_write"),
		CacheWriteLong: of("cache_write_long"), AudioIn: of("audio_in"), ImageIn: of("image_in"),
		Output: of("output"), AudioOut: of("audio_out"), ImageOut: of("image_out"),
		Reasoning: of("reasoning"),
	}
}

// models returns the models that the case is priced by.
func (c *llmCase) models() map[string]llm.Model {
	models := make(map[string]llm.Model)
	for name, tariff := range c.Tariffs {
		t := llm.Tariff{Price: tariff.Tokens.price(), Units: tariff.Units, Factors: tariff.Factors}
		for _, s := range tariff.Steps {
			t.Steps = append(t.Steps, llm.Step{From: s.From, Price: s.Tokens.price()})
		}
		models[name] = llm.Model{Tariff: t}
	}
	return models
}

// llmCases reads testdata/llmcases.
func llmCases(t *testing.T) []*llmCase {
	t.Helper()
	dirs, err := filepath.Glob(filepath.Join("testdata", "llmcases", "*", "expect.json"))
	if err != nil || len(dirs) != 110 {
		t.Fatalf("%d cases, %v", len(dirs), err)
	}
	var all []*llmCase
	for _, expect := range dirs {
		c := &llmCase{dir: filepath.Dir(expect)}
		decode(t, expect, c)
		c.readRequest(t)
		c.readResponse(t)
		all = append(all, c)
	}
	return all
}

func decode(t *testing.T, file string, v any) {
	t.Helper()
	b := gatetest.Must(os.ReadFile(file))(t)
	if err := json.Unmarshal(b, v); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

func (c *llmCase) readRequest(t *testing.T) {
	t.Helper()
	var q struct {
		Path    string
		Headers map[string]string
		Body    json.RawMessage
	}
	decode(t, filepath.Join(c.dir, "request.json"), &q)
	c.path, c.contentType, c.ask = q.Path, q.Headers["Content-Type"], string(q.Body)
	if !strings.HasPrefix(c.contentType, "multipart/") {
		return
	}
	var fields map[string]string
	gatetest.NoError(t, json.Unmarshal(q.Body, &fields))
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if fields[name] != "(multipart)" {
			_ = w.WriteField(name, fields[name])
			continue
		}
		part, _ := w.CreateFormFile(name, "file")
		_, _ = io.WriteString(part, "0123456789")
	}
	_ = w.Close()
	c.contentType, c.ask = w.FormDataContentType(), b.String()
}

func (c *llmCase) readResponse(t *testing.T) {
	t.Helper()
	files, _ := filepath.Glob(filepath.Join(c.dir, "response.*"))
	var err error
	if c.body, err = os.ReadFile(files[0]); err != nil {
		t.Fatal(err)
	}
	head := gatetest.Must(os.ReadFile(filepath.Join(c.dir, "headers.txt")))(t)
	lines := strings.Split(strings.TrimSpace(string(head)), "\n")
	c.status, _ = strconv.Atoi(strings.Fields(lines[0])[1])
	c.header = make(http.Header)
	for _, line := range lines[1:] {
		name, value, _ := strings.Cut(line, ":")
		c.header.Set(name, strings.TrimSpace(value))
	}
}

// shown returns the body that the client must see.
func (c *llmCase) shown() []byte {
	if len(c.Hide) == 0 {
		return c.body
	}
	events, n := strings.SplitAfter(string(c.body), "\n\n"), 0
	var kept strings.Builder
	for _, event := range events {
		data := strings.Contains(event, "data:")
		if !data || !slices.Contains(c.Hide, n) {
			kept.WriteString(event)
		}
		if data {
			n++
		}
	}
	return []byte(kept.String())
}

// answer sends the first bytes of the response in random pieces, and breaks off unless they are
// all.
func (c *llmCase) answer(bytes int, zip bool, random *rand.Rand) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		for name, values := range c.header {
			w.Header()[name] = values
		}
		var out io.Writer = w
		flush := func() { _ = http.NewResponseController(w).Flush() }
		if zip && strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			defer z.Close()
			out = z
			flush = func() {
				_ = z.Flush()
				_ = http.NewResponseController(w).Flush()
			}
		}
		w.WriteHeader(c.status)
		for rest := c.body[:bytes]; len(rest) > 0; {
			n := 1 + random.IntN(min(len(rest), 1+random.IntN(200)))
			_, _ = out.Write(rest[:n])
			flush()
			rest = rest[n:]
		}
		if bytes < len(c.body) {
			panic(http.ErrAbortHandler)
		}
	}
}

// Every case has the usage that the script expects, through a reverse proxy, in random pieces, with
// gzip and without. The client sees the body as it is, and the server what the client has sent, except
// for the usage that the Meter asks a chat for.
func TestCases(t *testing.T) {
	for _, c := range llmCases(t) {
		t.Run(filepath.Base(c.dir), func(t *testing.T) {
			c.try(t, "identity", false)
			c.try(t, "gzip", false)
			c.try(t, "identity", true)
		})
	}
}

func (c *llmCase) try(t *testing.T, encoding string, keepBody bool) {
	r := newRig(t, core.UnitTokens, 1_000_000_000, func(cfg *llm.Config) {
		cfg.Other, cfg.KeepBody = proxyTo(t, "http://127.0.0.1:1"), keepBody
	})
	seed := rand.Uint64()
	t.Logf("%s, KeepBody %v, seed %d", encoding, keepBody, seed)
	r.answer = c.answer(len(c.body), encoding == "gzip", rand.New(rand.NewPCG(seed, 0)))
	if c.Outcome == "other" {
		if _, ok := llm.FormatOf(r.request(c.path, c.ask)); ok {
			t.Error("it is metered")
		}
		return
	}
	response := r.post(c.path, c.ask, "Content-Type", c.contentType, "Accept-Encoding", encoding)
	body := []byte(read(t, response))
	if response.Header.Get("Content-Encoding") == "gzip" {
		body = unzipped(t, body)
	}
	want := c.shown()
	if keepBody {
		want = c.body
	}
	if response.StatusCode != c.status || !bytes.Equal(body, want) {
		t.Errorf("the client was sent %d\n%s", response.StatusCode, body)
	}
	asks := strings.Contains(r.asked[0], `"include_usage":true`)
	if same := r.asked[0] == c.ask; keepBody && !same || !keepBody && len(c.Hide) > 0 && !asks || !same && !asks ||
		!same && c.Format != "openai-chat" && c.Format != "openai-completions" {
		t.Errorf("the server was asked %s", r.asked[0])
	}
	c.check(t, <-r.reports)
}

func unzipped(t *testing.T, b []byte) []byte {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(b))
	gatetest.NoError(t, err)
	b, err = io.ReadAll(z)
	gatetest.Worked(t, err)
	return b
}

// check compares what was read with what is expected.
func (c *llmCase) check(t *testing.T, got llm.ResponseEvent) {
	t.Helper()
	want := c.usage()
	if c.Outcome == "cut" { // what was not told is estimated, or seen
		if want.Input == 0 {
			want.Input = got.Usage.Input
		}
		want.Output = max(c.Seen.Events, got.Usage.Output)
	}
	if c.Outcome == "unreported" {
		want = got.Estimate
	}
	if got.Outcome.String() != c.Outcome || got.Usage != want {
		t.Errorf("%v with %+v, want %s with %+v", got.Outcome, got.Usage, c.Outcome, want)
	}
	var others []llm.ModelUsage
	for _, o := range c.Also {
		others = append(others, llm.ModelUsage{Model: o.Model, Usage: o.usage()})
	}
	if c.Reports && len(got.Units)+len(got.Unread) == 0 {
		t.Error("nothing tells that something ran")
	}
	if !c.Reports && !maps.Equal(got.Units, c.Units) || !maps.Equal(got.Labels, c.Labels) ||
		!slices.Equal(got.Others, others) || got.Stated.MicroDollars() != c.Stated {
		t.Errorf("%v %v %+v %+v, want %v %v %+v %d", got.Units, got.Labels, got.Others, got.Stated,
			c.Units, c.Labels, others, c.Stated)
	}
	q := got.Request
	if q.Format.String() != c.Format || q.Model != c.Model ||
		c.Asked.MaxOutput != 0 && q.MaxOutput != c.Asked.MaxOutput ||
		c.Asked.Choices != 0 && q.Choices != c.Asked.Choices || c.Asked.Stream && !q.Stream {
		t.Errorf("the request is %+v", q)
	}
}

// A response that breaks off anywhere counts its input as told, or as estimated, and no less output
// than the client has seen.
func TestCutCases(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for _, c := range llmCases(t) {
		if c.status != http.StatusOK || c.Outcome == "other" || len(c.body) < 2 || c.Billed != nil {
			continue
		}
		for range 5 {
			cut := 1 + random.IntN(len(c.body)-1)
			r := newRig(t, core.UnitTokens, 1_000_000_000, nil)
			r.answer = c.answer(cut, false, random)
			response, err := plainClient.Do(r.request(c.path, c.ask, "Content-Type", c.contentType))
			if err == nil {
				_, _ = io.Copy(io.Discard, response.Body) // it breaks off
				response.Body.Close()
			}
			got := <-r.reports
			told := c.usage()
			prompt := got.Usage.Total() - got.Usage.Output - got.Usage.AudioOut - got.Usage.ImageOut
			most := max(got.Estimate.Input, told.Total()-told.Output-told.AudioOut-told.ImageOut)
			switch got.Outcome {
			case llm.OutcomeCut:
				if prompt > most || prompt == 0 && got.Estimate.Input > 0 {
					t.Errorf("%s, cut at %d: %+v of an estimate of %+v", c.Name, cut, got.Usage, got.Estimate)
				}
			case llm.OutcomeReported: // all but blank bytes had come
				gatetest.Equal(t, got.Usage, c.usage(), "%s, cut at %d: reported with", c.Name, cut)
			case llm.OutcomeFailed:
				gatetest.Equal(t, c.Outcome, "failed", "%s, cut at %d: failed with %+v", c.Name, cut, got.Usage)
			case llm.OutcomeUnreported:
				if c.Outcome == "unreported" {
					continue
				}
				t.Errorf("%s, cut at %d: %v with %+v", c.Name, cut, got.Outcome, got.Usage)
			}
			if text := int64(bytes.Count(c.body[:cut], []byte(`"content":"w `))); got.Usage.Output < text {
				t.Errorf("%s, cut at %d: output of %d for %d events", c.Name, cut, got.Usage.Output, text)
			}
		}
	}
}

// Each case costs what its bill says when it passes a Meter, and what the server states if that is
// trusted.
func TestCasesAreCharged(t *testing.T) {
	counted := 0
	for _, c := range llmCases(t) {
		charge := func(name string, want int64, change func(*llm.Config)) {
			t.Run(filepath.Base(c.dir)+" "+name, func(t *testing.T) {
				r := newRig(t, core.UnitMicroDollars, 1e12, change)
				r.answer = c.answer(len(c.body), false, rand.New(rand.NewPCG(1, 2)))
				read(t, r.post(c.path, c.ask, "Content-Type", c.contentType))
				report := <-r.reports
				others := slices.DeleteFunc(report.Unknown, func(s string) bool { // an invented case names any model
					return s == "model "+report.Model
				})
				if used := r.used(); used != want || report.Cost != want || len(others) > 0 {
					t.Errorf("%d micro-dollars are used, want %d: %+v", used, want, report)
				}
			})
		}
		if c.MicroDollars != nil {
			counted++
			charge("by tariff", *c.MicroDollars, func(cfg *llm.Config) { cfg.Models = c.models() })
		}
		if c.Stated > 0 {
			charge("as stated", c.Stated, func(cfg *llm.Config) {
				cfg.Models = map[string]llm.Model{c.Model: {Tariff: llm.Tariff{Price: each}}}
				cfg.StatedCost = llm.StatedCostTrust
			})
		}
	}
	gatetest.Equal(t, counted, 60, "cases have a cost")
}

// answered is a response of testdata/responses.json, and what a Meter must read of it: from public
// reports and recordings, in formats and framings that the cases do not have, with numbers that no
// table names, and with numbers that are none.
type answered struct {
	Name, Path, Type string
	Ask              json.RawMessage
	Headers          []string
	Body             json.RawMessage   // a document, or a string of another text
	Events           []json.RawMessage // of a stream
	Outcome          string            // reported if it is empty
	Usage, Estimate  caseTokens
	Units            map[string]int64
	Pico             int64    // of the stated cost
	Unread           []string // in the event, and in Unknown if a price is asked for
	Hidden           bool     // the client is not shown the usage
}

// text returns a JSON string as what it says, and all other JSON as it is.
func text(raw json.RawMessage) string {
	var said string
	if json.Unmarshal(raw, &said) != nil {
		return string(raw)
	}
	return said
}

func (c *answered) body() string {
	if c.Events == nil {
		return text(c.Body)
	}
	var all []string
	for _, event := range c.Events {
		all = append(all, text(event))
	}
	return sseOf(all...)
}

// sseOf returns an event stream with these data.
func sseOf(data ...string) string { return "data: " + strings.Join(data, "\n\ndata: ") + "\n\n" }

// sent is a handler that sends a response in one piece.
func sent(contentType, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if contentType != "" {
			w.Header().Set("Content-Type", contentType)
		}
		_, _ = io.WriteString(w, body)
	}
}

// The estimate of most requests is an input of 2 and an output of 50.
const askOf50 = `{"model":"m","max_tokens":50,"max_output_tokens":50,"messages":[{"content":"abcdefgh"}],"query":"abcdefgh"}`

func TestResponses(t *testing.T) {
	var all []answered
	decode(t, filepath.Join("testdata", "responses.json"), &all)
	for _, c := range all {
		t.Run(c.Name, func(t *testing.T) {
			money := policy("money", core.UnitMicroDollars, 1e12)
			r := newRig(t, core.UnitTokens, 1_000_000, func(cfg *llm.Config) {
				cfg.Budgets = append(cfg.Budgets, llm.Budget{Policy: money, Key: tenant})
				cfg.Models = map[string]llm.Model{"m": {Tariff: llm.Tariff{
					Price: each, Units: map[string]int64{"web_search": 1000, "mcp": llm.Free},
				}}}
			})
			r.answer = func(w http.ResponseWriter, q *http.Request) {
				for _, line := range c.Headers {
					name, value, _ := strings.Cut(line, ": ")
					w.Header().Set(name, value)
				}
				sent(c.Type, c.body())(w, q)
			}
			body := read(t, r.post(c.Path, cmp.Or(string(c.Ask), askOf50)))
			if whole := body == c.body(); whole == c.Hidden || c.Hidden && strings.Contains(body, "_tokens") {
				t.Errorf("the client was sent %s", body)
			}
			got := <-r.reports
			want := c.Usage.usage(c.Usage.of("reasoning"))
			if got.Outcome.String() != cmp.Or(c.Outcome, "reported") || got.Usage != want || r.used() != want.Total() {
				t.Errorf("%v with %+v, %d used, want %s with %+v", got.Outcome, got.Usage, r.used(), c.Outcome, want)
			}
			if !maps.Equal(got.Units, c.Units) || got.Stated.Pico != c.Pico || got.Request.Model != "m" {
				t.Errorf("%v, %+v of %s, want %v, %d", got.Units, got.Stated, got.Request.Model, c.Units, c.Pico)
			}
			if c.Estimate != nil && got.Estimate != c.Estimate.usage(0) {
				t.Errorf("an estimate of %+v, want %v", got.Estimate, c.Estimate)
			}
			if !slices.Equal(got.Unread, c.Unread) || c.Unread != nil && !slices.Equal(got.Unknown, c.Unread) {
				t.Errorf("unread %q, unknown %q, want %q", got.Unread, got.Unknown, c.Unread)
			}
		})
	}
}

// A server that invents keys fills no memory.
func TestUnreadIsBounded(t *testing.T) {
	r := newRig(t, core.UnitTokens, 1e9, nil)
	var b strings.Builder
	for c := 'a'; c <= 'z'; c++ {
		b.WriteString(`,"` + strings.Repeat(string(c), 200) + `":1`)
	}
	r.answer = sent("", `{"usage":{"prompt_tokens":2,"completion_tokens":3`+b.String()+`}}`)
	read(t, r.post(chatPath, `{"model":"m"}`))
	report := <-r.reports
	if len(report.Unread) != 16 || len(report.Unread[0]) > 64 || report.Outcome != llm.OutcomeReported {
		t.Errorf("%v %q", report.Outcome, report.Unread)
	}
}

// A server may state the usage so far and a finish_reason on every chunk. The stream is still
// charged, and ended, while it runs.
func TestUsageOnEveryChunkEndsNothing(t *testing.T) {
	for _, reason := range []string{"null", `"stop"`} {
		r := newRig(t, core.UnitOutputTokens, 300, func(cfg *llm.Config) {
			cfg.ChargeEvery, cfg.Overrun, cfg.MaxOutput = 50, llm.OverrunEnd, 100
		})
		r.handle(func(w http.ResponseWriter, q *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			for i := 1; q.Context().Err() == nil; i++ {
				fmt.Fprintf(w, `data: {"choices":[{"delta":{"content":"word "},"finish_reason":%s}],`+
					`"usage":{"prompt_tokens":5,"completion_tokens":%d,"total_tokens":%d}}`+"\n\n",
					reason, i*10, i*10+5)
				_ = http.NewResponseController(w).Flush()
			}
		})
		body := read(t, r.post(chatPath, `{"model":"m","stream":true}`))
		report := <-r.reports
		if !strings.Contains(body, `"error"`) || report.Outcome != llm.OutcomeCut || report.Usage.Output > 400 {
			t.Errorf("finish_reason %s: %d events, %+v", reason, strings.Count(body, "word"), report)
		}
	}
}

// A route of the configuration has the format of its choice, and may name the model.
func TestRoutes(t *testing.T) {
	r := newRig(t, core.UnitTokens, 1000, func(cfg *llm.Config) {
		cfg.Routes = []llm.Route{
			{Path: "/acme/*/generate", Format: llm.FormatOllama},
			{Path: "/acme/*/stream", Format: llm.FormatOpenAIChat, Stream: true},
			{Path: "/v1/messages", Format: llm.FormatOpenAIChat}, // before Anthropic's own
			{Path: "/v2/embed", Format: llm.FormatCohereRerank},
		}
	})
	for _, c := range []struct {
		path, ask, answer, model string
		format                   llm.Format
		stream                   bool
	}{
		{"/acme/large/generate", `{"stream":false,"prompt":"abcd"}`,
			`{"response":"ok","done":true,"prompt_eval_count":20,"eval_count":3}`, "large", llm.FormatOllama, false},
		{"/acme/large/stream", `{}`, sseOf(`{"choices":[{"delta":{"content":"ok"}}]}`,
			`{"choices":[],"usage":{"prompt_tokens":20,"completion_tokens":3}}`, "[DONE]"), "large", llm.FormatOpenAIChat, true},
		{"/v1/messages", `{"model":"m"}`, `{"usage":{"prompt_tokens":20,"completion_tokens":3}}`, "m", llm.FormatOpenAIChat, false},
		{"/v1/chat/completions", `{"model":"m"}`, `{"usage":{"prompt_tokens":20,"completion_tokens":3}}`, "m", llm.FormatOpenAIChat, false},
		{"/v2/embed", `{"model":"m","texts":["abcd"]}`, `{"embeddings":{},"meta":{"billed_units":{"input_tokens":20}}}`, "m",
			llm.FormatCohereRerank, false},
	} {
		r.handle(sent("", c.answer))
		read(t, r.post(c.path, c.ask))
		got := <-r.reports
		if got.Outcome != llm.OutcomeReported || got.Usage.Input != 20 || got.Request.Model != c.model ||
			got.Request.Format != c.format || got.Request.Stream != c.stream {
			t.Errorf("%s: %+v", c.path, got)
		}
	}
	if status, body := r.ask("/acme/large/generate", `{"stream":"x"}`); status != 400 || !strings.HasPrefix(body, `{"error":"`) {
		t.Errorf("%d %s", status, body)
	}
}

func TestUnreportedStreamKeepsItsEstimate(t *testing.T) {
	r := newRig(t, core.UnitTokens, 1000, nil)
	words, usage := 10, `{"prompt_tokens":3,"completion_tokens":40}`
	r.answer = func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for range words {
			fmt.Fprint(w,
				"data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"word\"}}]}\n\n")
		}
		fmt.Fprintf(w, "data: {\"choices\":[],\"usage\":%s}\n\ndata: [DONE]\n\n", usage)
	}
	read(t, r.post("/v1/chat/completions", streamed))
	<-r.reports
	words, usage = 30, "null" // 120 tokens by the ratio
	read(t, r.post("/v1/chat/completions", streamed))
	if report := <-r.reports; report.Usage.Output != 40 || report.Estimate.Output != 40 {
		t.Errorf("%+v", report)
	}
}
