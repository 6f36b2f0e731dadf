package wire_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/llm/internal/wire"
)

// Each format has its own members, in a document and in a form. A request that names no model, or says
// something twice or in another case, is refused. The prompt is its text, without files.
func TestRequests(t *testing.T) {
	var all []struct {
		Name, Format, Path, Type string
		Body                     json.RawMessage // or a string of what is no JSON. IMAGE stands for a megabyte of base64.
		Want                     wire.Request
		Fault                    string
	}
	if err := json.Unmarshal(readFile(t, "testdata", "requests.json"), &all); err != nil || len(all) != 101 {
		t.Fatalf("%d requests, %v", len(all), err)
	}
	stated := func(q wire.Request) [7]any {
		return [...]any{q.Model, q.Stream, q.MaxOutput, q.Choices, q.PromptBytes, q.Files, q.AsksUsage}
	}
	for _, c := range all {
		t.Run(c.Name, func(t *testing.T) {
			body := string(c.Body)
			if strings.HasPrefix(body, `"`) {
				body = ""
				_ = json.Unmarshal(c.Body, &body)
			}
			body = strings.ReplaceAll(body, "IMAGE", strings.Repeat("iVBORw0KGgo", 100_000))
			at := slices.IndexFunc(wire.Formats, func(f *wire.Format) bool { return f.String() == c.Format })
			target := wire.Target{Format: wire.Formats[at]}
			if c.Path != "" {
				target, _ = wire.Find(httptest.NewRequest(http.MethodPost, c.Path, nil), wire.Routes)
			}
			got, err := wire.ParseRequest(target, http.Header{"Content-Type": {c.Type}}, []byte(body))
			if c.Fault != "" {
				if !errors.Is(err, wire.ErrRequest) || !strings.Contains(err.Error(), c.Fault) || !strings.HasPrefix(err.Error(), "llm: ") {
					t.Errorf("error %v, want one with %q", err, c.Fault)
				}
				return
			}
			if err != nil || got.Format != wire.Formats[at] || stated(got) != stated(c.Want) {
				t.Errorf("%+v, %v, want %+v", got, err, c.Want)
			}
		})
	}
}

// parse reads the body of a request whose path names no model.
func parse(f *wire.Format, body []byte) (wire.Request, error) {
	return wire.ParseRequest(wire.Target{Format: f}, nil, body)
}

// A change has one part of the body, and can be undone.
func TestUsageChange(t *testing.T) {
	for _, c := range []struct{ body, want string }{
		{` { "model":"m"} `, ` {"stream_options":{"include_usage":true}, "model":"m"} `},
		{`{"stream_options": null ,"model":"m"}`, `{"stream_options": {"include_usage":true} ,"model":"m"}`},
		{`{"model":"m","stream_options":{ }}`, `{"model":"m","stream_options":{"include_usage":true }}`},
		{`{"model":"m","stream_options":{"x":1}}`, `{"model":"m","stream_options":{"include_usage":true,"x":1}}`},
		{`{"model":"m","stream_options":{"x":1,"include_usage": false}}`,
			`{"model":"m","stream_options":{"x":1,"include_usage": true}}`},
		{`{"model":"m","stream_options":{"include_usage":null }}`, `{"model":"m","stream_options":{"include_usage":true }}`},
		{`{"model":"m","stream_options":{"include_usage":true}}`, `{"model":"m","stream_options":{"include_usage":true}}`},
		{`{"x":{"stream_options":{}},"y":"\"stream_options\"","model":"m"}`,
			`{"stream_options":{"include_usage":true},"x":{"stream_options":{}},"y":"\"stream_options\"","model":"m"}`},
	} {
		body := append(make([]byte, 0, len(c.body)+int(wire.UsageBytes)), c.body...)
		q, err := parse(wire.OpenAIChat, body)
		change := q.UsageChange(body)
		got := change.Apply(body)
		if string(got) != c.want || err != nil || &got[0] != &body[0] {
			t.Errorf("%s, %v, want %s in place", got, err, c.want)
		}
		if back := change.Undo(got); string(back) != c.body {
			t.Errorf("undone: %s, want %s", back, c.body)
		}
	}
}

func decodeBody(t *testing.T, body []byte) map[string]any {
	t.Helper()
	var v map[string]any
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	return v
}

// The first guess depends on the kinds of bytes, however the JSON spells them.
func TestPromptTokens(t *testing.T) {
	binary := make([]byte, 300)
	for i := range binary {
		binary[i] = byte(i * 167)
	}
	for _, c := range []struct {
		name, text string
		want       int64
	}{
		{"prose", strings.Repeat("The brown fox jumps. ", 20), 105},
		{"Chinese", strings.Repeat("棕色的狐狸", 20), 100},
		{"digits", strings.Repeat("12 345 ", 30), 115},
		{"base64", base64.StdEncoding.EncodeToString(binary), 267},
		{"identifiers", strings.Repeat("3f2c1a9e-77b0-4c1d-9f3e-0a1b2c3d4e5f ", 10), 243},
		{"a long word is no base64", strings.Repeat("internationalization", 4), 20},
		{"nothing", "", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			plain, err := json.Marshal(c.text)
			gatetest.NoError(t, err)
			var escaped strings.Builder
			for _, r := range string(plain) {
				if r < 0x80 {
					escaped.WriteRune(r)
				} else {
					fmt.Fprintf(&escaped, `\u%04x`, r)
				}
			}
			for _, text := range []string{string(plain), escaped.String()} {
				q, err := parse(wire.OpenAIChat, []byte(`{"model":"m","prompt":`+text+`}`))
				if got := q.PromptTokens(); err != nil || got != c.want {
					t.Errorf("%d tokens, %v, want %d", got, err, c.want)
				}
			}
		})
	}
	q, err := parse(wire.AnthropicMessages, []byte(`{"model":"m","messages":[{"content":`+
		`[{"source":{"type":"base64","data":"AAAA"}},{"source":{"type":"text","data":"abcd"}}]}]}`))
	if got := q.PromptTokens(); err != nil || got != 4784+1 || q.Files != 1 || q.PromptBytes != 4 {
		t.Errorf("%d tokens, %+v, %v", got, q, err)
	}
}

func TestTotalSaturates(t *testing.T) {
	for _, c := range []struct {
		usage wire.Usage
		want  int64
	}{
		{wire.Usage{}, 0},
		{wire.Usage{Input: 1, CacheRead: 2, CacheWrite: 3, Output: 4}, 10},
		{wire.Usage{Input: -5, Output: 4}, 4},
		{wire.Usage{Input: math.MaxInt64, Output: 1}, math.MaxInt64},
		{wire.Usage{Input: 1, CacheRead: math.MaxInt64 - 1}, math.MaxInt64},
	} {
		gatetest.Equal(t, c.usage.Total(), c.want, "%+v", c.usage)
	}
}

func TestTokensOfNumbers(t *testing.T) {
	for _, c := range []struct {
		number string
		want   int64
		ok     bool
	}{
		{"0", 0, true}, {"17", 17, true}, {"12.0", 12, true}, {"1e3", 1000, true},
		{"1.5e1", 15, true},
		{"1000000000", wire.MaxTokens, true}, {"1000000001", 0, false}, {"1e30", 0, false},
		{"99999999999999999999999999", 0, false}, {"1e400", 0, false},
		{"-1", 0, false}, {"-0", 0, false}, {"1.5", 0, false}, {"-1e400", 0, false}, {"", 0, false},
	} {
		tap := newTap(wire.OpenAIChat, "application/json", "", false)
		send(t, tap, [][]byte{[]byte(`{"usage":{"completion_tokens":1,"prompt_tokens":` + c.number + `}}`)})
		if got := tap.Response(); got.Usage.Input != c.want || got.InputKnown != (c.want > 0) ||
			c.number != "" && got.Known != c.ok {
			t.Errorf("%q: %+v, want %d, %v", c.number, got, c.want, c.ok)
		}
	}
}

func TestFind(t *testing.T) {
	for want, paths := range map[*wire.Format][]string{
		wire.OpenAIChat: {
			"/v1/chat/completions", "/openai/deployments/x/chat/completions?api-version=1",
			"/v1/projects/p/locations/l/endpoints/openapi/chat/completions", "/v1/Chat/Completions//",
			"/v1/chat/completion%73", "/v1/chat/completions/.", "/v1/chat//completions", "/v1/chat/completions/x/..",
			"/v1/chat/completions/x/%2e%2E/", "/v1/chat%2Fcompletions", "/v1/chat/completions;x=1",
			"/v1;a/chat;b=c/completions;x=1;y", "/v1/chat/completions%20",
		},
		wire.OpenAIResponses: {"/v1/responses", "/v1/responses/", "/v1/responses/compact"},
		wire.AnthropicMessages: {
			"/v1/messages", "/../../v1/messages", "/v1%2fmessages%2F", "/v1/publishers/anthropic/models/claude:rawPredict",
			"/v1/messages%09/%20", "/v1/threads/messages",
		},
		nil: {
			"GET /v1/responses", "/v1/messages/count_tokens", "/v1/messages/batches", "/v1/xmessages",
			"/v1/messages%2Fcount_tokens", "/v1/publishers/anthropic/models/count-tokens:rawPredict",
			"/v1/publishers/other/models/x:rawPredict", "/v1beta/models/:generateContent",
			"/v1beta/models/gemini-2.5-pro:countTokens", "/model//invoke", "/v2/embed", "/embed", "/v1/threads/t_1/messages",
		},
		wire.OpenAICompletions: {"/v1/completions", "/v1/fim/completions"},
		wire.GeminiGenerate: {
			"/v1beta/models/g%3AgenerateContent", "/v1beta/models/g%3A%67enerateContent",
			"/v1/projects/p/locations/l/endpoints/7:streamGenerateContent", "/v1beta/models/gemini-2.5-pro:generateContent",
			"/v1beta/models/gemini-2.5-pro:streamGenerateContent?alt=sse",
		},
		wire.BedrockConverse:      {"/model/arn%3Aaws%3Abedrock%3Aus%3A1%3Aprofile%2Fx/converse-stream"},
		wire.BedrockInvoke:        {"/model/a.b-v1:0/invoke"},
		wire.Ollama:               {"/api/chat"},
		wire.CohereChat:           {"/v2/chat"},
		wire.CohereRerank:         {"/v1/rerank"},
		wire.OllamaEmbed:          {"/api/embed", "/api/embeddings"},
		wire.OpenAIEmbeddings:     {"/v1/embeddings", "/openai/deployments/x/embeddings"},
		wire.OpenAITranscriptions: {"/v1/audio/transcriptions"},
		wire.OpenAIImages:         {"/v1/images/edits"},
	} {
		for _, path := range paths {
			method, target, found := strings.Cut(path, " ")
			if !found {
				method, target = http.MethodPost, path
			}
			got, ok := wire.Find(httptest.NewRequest(method, target, http.NoBody), wire.Routes)
			if got.Format != want || ok != (want != nil) {
				t.Errorf("%s: %v, want %v", path, got.Format, want)
			}
		}
	}
}

// sample is the response of one of the cases.
type sample struct {
	name   string
	format *wire.Format
	header http.Header
	body   []byte
}

// samples reads the cases of the package above, except what is not metered.
func samples(t testing.TB) []sample {
	t.Helper()
	dirs := gatetest.Must(filepath.Glob(filepath.Join("..", "..", "testdata", "llmcases", "*")))(t)
	gatetest.Need(t, len(dirs), 113, "cases")
	var all []sample
	for _, dir := range dirs {
		s := sample{name: filepath.Base(dir), header: make(http.Header)}
		var q struct{ Method, Path string }
		gatetest.NoError(t, json.Unmarshal(readFile(t, dir, "request.json"), &q))
		target, ok := wire.Find(httptest.NewRequest(q.Method, q.Path, nil), wire.Routes)
		if !ok {
			continue
		}
		s.format = target.Format
		for line := range strings.Lines(string(readFile(t, dir, "headers.txt"))) {
			if name, value, ok := strings.Cut(line, ":"); ok {
				s.header.Set(name, strings.TrimSpace(value))
			}
		}
		s.body = readFile(t, dir, "response.*")
		all = append(all, s)
	}
	return all
}

func readFile(t testing.TB, dir, name string) []byte {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, name))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s has no %s, %v", dir, name, err)
	}
	return gatetest.Must(os.ReadFile(files[0]))(t)
}

// A response that is cut at any byte counts no less than what it has stated and shown before.
func TestEveryPrefix(t *testing.T) {
	for _, s := range samples(t) {
		t.Run(s.name, func(t *testing.T) {
			input, shown := int64(0), int64(0)
			for cut := 0; cut <= len(s.body); cut += 1 + len(s.body)/1000 { // a long one at every other byte, or so
				tap := wire.NewTap(&wire.Request{Target: wire.Target{Format: s.format}}, s.header, false)
				_, _ = tap.Write(s.body[:cut], false, nil)
				_ = tap.Close(cut%5 == 0, nil)
				o := tap.Response()
				u := o.Usage
				prompt := u.Input + u.CacheRead + u.CacheWrite + u.CacheWriteLong + u.AudioIn + u.ImageIn
				output := u.Output + u.AudioOut + u.ImageOut
				if !o.Known {
					output = max(output, o.TextTokens())
				}
				if (prompt < input || o.TextTokens() < shown || output < o.Events) && !billedOtherwise(s.name) {
					t.Fatalf("cut at %d: input of %d after %d, output of %d: %+v after %d", cut, prompt, input, output, o, shown)
				}
				if input, shown = prompt, o.TextTokens(); o.Known && cut%5 > 0 && !o.Complete {
					t.Fatalf("cut at %d: the usage is final", cut)
				}
			}
		})
	}
}

// billedOtherwise reports whether a case has text that costs no tokens of output, or tokens that
// its end makes free.
func billedOtherwise(name string) bool {
	return name == "transcription-seconds" || name == "messages-refusal-stream"
}

// FuzzDocument and FuzzStream read any response of any format: nothing panics, pieces change
// nothing, no number is negative, and only a usage may be hidden.
func FuzzDocument(f *testing.F) { fuzzResponses(f, "application/json") }

func FuzzStream(f *testing.F) { fuzzResponses(f, "text/event-stream") }

func fuzzResponses(f *testing.F, contentType string) {
	for _, s := range samples(f) {
		f.Add(s.body, uint8(slices.Index(wire.Formats, s.format)), uint16(7))
	}
	for i, c := range transcripts(f) {
		f.Add(c.read(f), uint8(slices.Index(wire.Formats, c.format)), uint16(i*7))
	}
	f.Add([]byte("data:[{}0"), uint8(27), uint16(7))
	f.Add([]byte(`[A00{"message":{"content":"00"000`), uint8(slices.Index(wire.Formats, wire.Ollama)), uint16(5))
	f.Add([]byte(`{"a":0 A00{"message":{"content":"00"000`), uint8(slices.Index(wire.Formats, wire.Ollama)), uint16(5))
	f.Add([]byte(`{"usage":{}} {`), uint8(0), uint16(1))
	f.Add([]byte("\ufeffdata\n\r\ndata: {\"choices\":[],\ndata:\"usage\":{}}\r\n\r\n:x\n\n"), uint8(0), uint16(3))
	f.Fuzz(func(t *testing.T, body []byte, which uint8, step uint16) {
		format := wire.Formats[int(which)%len(wire.Formats)]
		var first wire.Response
		for h, hide := range []bool{false, true} {
			shown := body // in one piece
			for i, size := range []int{max(1, len(body)), int(step)%97 + 1, 1} {
				tap := newTap(format, contentType, "", hide)
				passed := send(t, tap, slices.Collect(slices.Chunk(body, size)))
				if hide && i == 0 {
					shown = passed
				}
				o := tap.Response()
				u := o.Usage
				for _, n := range [...]int64{
					u.Input, u.CacheRead, u.CacheWrite, u.CacheWriteLong, u.AudioIn, u.ImageIn, u.Output,
					u.AudioOut, u.ImageOut, u.Reasoning, o.Stated.Pico, o.TextTokens(),
				} {
					if n < 0 {
						t.Fatalf("%+v", o)
					}
				}
				if u.Reasoning > u.Output || !bytes.Equal(passed, shown) {
					t.Fatalf("%+v, passed on %q, want %q", o, passed, shown)
				}
				if h+i == 0 {
					first = o
				} else if !reflect.DeepEqual(o, first) {
					t.Fatalf("in pieces of %d, hide %v: %+v, want %+v", size, hide, o, first)
				}
			}
		}
	})
}

// FuzzRequest reads any request of any format, as JSON and as a form, and asks for its usage.
func FuzzRequest(f *testing.F) {
	for i := range wire.Formats {
		for _, body := range []string{
			`{"model":"m","stream":true,"n":2,"max_tokens":-1,"messages":[{"content":[{"text":"x"}]}]}`,
			`{"model":"m","generationConfig":{"maxOutputTokens":5},"contents":[{"parts":[{"text":"x"}]}]}`,
			"--b\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nm\r\n--b--\r\n",
		} {
			f.Add([]byte(body), uint8(i), strings.HasPrefix(body, "--"))
		}
	}
	for _, body := range []string{
		`{"model":"m","messages":[{"role":"user","content":"Hello"}],"stream":true,"n":1,"max_tokens":5}`,
		`{"model":"m","stream_options":{"include_usage":false,"x":-1.5e+3},"tools":[{"a":{}}]}`,
		`{"model":"m","input":[{"content":[{"source":{"type":"base64","data":"AA"}}]}],"x":"\ud83d\ude00\u0000"}`,
		`{"model":"m","stream_options":null}`, `{"model":"m","stream_options":{ }}`,
		`[0,-0,1.0,true,false,null]`,
	} {
		f.Add([]byte(body), uint8(slices.Index(wire.Formats, wire.OpenAIChat)), false)
	}
	f.Fuzz(func(t *testing.T, body []byte, which uint8, form bool) {
		format := wire.Formats[int(which)%len(wire.Formats)]
		h := make(http.Header)
		if form {
			h.Set("Content-Type", "multipart/form-data; boundary=b")
		}
		q, err := wire.ParseRequest(wire.Target{Format: format}, h, body)
		switch {
		case err != nil:
			if !errors.Is(err, wire.ErrRequest) {
				t.Fatalf("error %v is no wire.ErrRequest", err)
			}
			return
		case q.Model == "" || q.Choices < 1 || q.MaxOutput < 0 || q.PromptTokens() < 0 || q.PromptBytes < 0:
			t.Fatalf("%+v", q)
		case !form && !json.Valid(body):
			t.Fatal("an invalid document was accepted")
		}
		if form || format != wire.OpenAIChat {
			return
		}
		want, got := decodeBody(t, body), decodeBody(t, q.UsageChange(body).Apply(slices.Clone(body)))
		options, ok := want["stream_options"].(map[string]any)
		if !ok {
			options = map[string]any{}
			want["stream_options"] = options
		}
		options["include_usage"] = true
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
	})
}
