package llm_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
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
	dirs := gatetest.Must(filepath.Glob(filepath.Join("testdata", "llmcases", "*", "expect.json")))(t)
	gatetest.Need(t, len(dirs), 113, "cases")
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
	gatetest.Equal(t, counted, 63, "cases have a cost")
}
