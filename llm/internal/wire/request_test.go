package wire_test

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

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
			r := httptest.NewRequest(http.MethodPost, cmp.Or(c.Path, "/"), nil)
			r.Header.Set("Content-Type", c.Type)
			got, err := wire.ParseRequest(wire.Formats[at], r, []byte(body))
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
	return wire.ParseRequest(f, httptest.NewRequest(http.MethodPost, "/", nil), body)
}

func TestInjectUsageSplices(t *testing.T) {
	for _, c := range []struct{ name, body, want string }{
		{"absent", `{ "model":"m"}`, `{"stream_options":{"include_usage":true}, "model":"m"}`},
		{"empty body", ` { } `, ` {"stream_options":{"include_usage":true} } `},
		{"null", `{"stream_options": null ,"a":1}`,
			`{"stream_options": {"include_usage":true} ,"a":1}`},
		{"number", `{"stream_options":12}`, `{"stream_options":{"include_usage":true}}`},
		{"array", `{"stream_options":[1, 2],"a":1}`,
			`{"stream_options":{"include_usage":true},"a":1}`},
		{"empty options", `{"stream_options":{ }}`, `{"stream_options":{"include_usage":true }}`},
		{"other options", `{"stream_options":{"x":1}}`,
			`{"stream_options":{"include_usage":true,"x":1}}`},
		{"false", `{"stream_options":{"x":1,"include_usage": false}}`,
			`{"stream_options":{"x":1,"include_usage": true}}`},
		{"number as flag", `{"stream_options":{"include_usage":10 }}`,
			`{"stream_options":{"include_usage":true }}`},
		{"object as flag", `{"stream_options":{"include_usage":{"a":[]}}}`,
			`{"stream_options":{"include_usage":true}}`},
		{"true", `{"stream_options":{"include_usage":true}}`,
			`{"stream_options":{"include_usage":true}}`},
		{"nested namesake", `{"x":{"stream_options":{}},"y":"\"stream_options\""}`,
			`{"stream_options":{"include_usage":true},"x":{"stream_options":{}},"y":"\"stream_options\""}`},
		{"malformed", `{"a"`, `{"a"`},
		{"array as body", `[]`, `[]`},
	} {
		t.Run(c.name, func(t *testing.T) {
			body := append(make([]byte, 0, len(c.body)+int(wire.UsageBytes)), c.body...)
			got := wire.InjectUsage(body)
			if string(got) != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
			if &got[0] != &body[0] {
				t.Error("the body was copied")
			}
			if back := wire.UsageChange([]byte(c.body)).Undo(got); string(back) != c.body {
				t.Errorf("undone: %s, want %s", back, c.body)
			}
		})
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
			if err != nil {
				t.Fatal(err)
			}
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
		if got := c.usage.Total(); got != c.want {
			t.Errorf("%+v: %d, want %d", c.usage, got, c.want)
		}
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

func TestFormatOf(t *testing.T) {
	for _, c := range []struct {
		method, path string
		want         *wire.Format
	}{
		{"POST", "/v1/chat/completions", wire.OpenAIChat},
		{"POST", "/openai/deployments/x/chat/completions?api-version=1", wire.OpenAIChat},
		{"POST", "/v1/projects/p/locations/l/endpoints/openapi/chat/completions", wire.OpenAIChat},
		{"POST", "/v1/responses", wire.OpenAIResponses},
		{"POST", "/v1/messages", wire.AnthropicMessages},
		{"GET", "/v1/responses", nil},
		{"POST", "/v1/messages/count_tokens", nil},
		{"POST", "/v1/messages/batches", nil},
		{"POST", "/v1/completions", wire.OpenAICompletions},
		{"POST", "/v1/responses/", wire.OpenAIResponses},
		{"POST", "/v1/Chat/Completions//", wire.OpenAIChat},
		{"POST", "/v1/xmessages", nil},
		{"POST", "/v1/chat/completion%73", wire.OpenAIChat},
		{"POST", "/v1/chat/completions/.", wire.OpenAIChat},
		{"POST", "/v1/chat//completions", wire.OpenAIChat},
		{"POST", "/v1/chat/completions/x/..", wire.OpenAIChat},
		{"POST", "/v1/chat/completions/x/%2e%2E/", wire.OpenAIChat},
		{"POST", "/../../v1/messages", wire.AnthropicMessages},
		{"POST", "/v1/chat%2Fcompletions", wire.OpenAIChat},
		{"POST", "/v1%2fmessages%2F", wire.AnthropicMessages},
		{"POST", "/v1/messages%2Fcount_tokens", nil},
		{"POST", "/v1beta/models/g%3AgenerateContent", wire.GeminiGenerate},
		{"POST", "/v1beta/models/g%3A%67enerateContent", wire.GeminiGenerate},
		{"POST", "/v1/projects/p/locations/l/endpoints/7:streamGenerateContent", wire.GeminiGenerate},
		{"POST", "/v1/responses/compact", wire.OpenAIResponses},
		{"POST", "/v1/publishers/anthropic/models/claude:rawPredict", wire.AnthropicMessages},
		{"POST", "/v1/publishers/anthropic/models/count-tokens:rawPredict", nil},
		{"POST", "/v1/publishers/other/models/x:rawPredict", nil},
		{"POST", "/v1beta/models/gemini-2.5-pro:generateContent", wire.GeminiGenerate},
		{"POST", "/v1beta/models/gemini-2.5-pro:streamGenerateContent?alt=sse", wire.GeminiGenerate},
		{"POST", "/v1beta/models/:generateContent", nil},
		{"POST", "/v1beta/models/gemini-2.5-pro:countTokens", nil},
		{"POST", "/model/arn%3Aaws%3Abedrock%3Aus%3A1%3Aprofile%2Fx/converse-stream", wire.BedrockConverse},
		{"POST", "/model/a.b-v1:0/invoke", wire.BedrockInvoke},
		{"POST", "/model//invoke", nil},
		{"POST", "/api/chat", wire.Ollama},
		{"POST", "/v2/chat", wire.CohereChat},
		{"POST", "/v1/rerank", wire.CohereRerank},
		{"POST", "/v2/embed", nil},
		{"POST", "/embed", nil},
		{"POST", "/api/embed", wire.OllamaEmbed},
		{"POST", "/api/embeddings", wire.OllamaEmbed},
		{"POST", "/v1/embeddings", wire.OpenAIEmbeddings},
		{"POST", "/openai/deployments/x/embeddings", wire.OpenAIEmbeddings},
		{"POST", "/v1/audio/transcriptions", wire.OpenAITranscriptions},
		{"POST", "/v1/chat/completions;x=1", wire.OpenAIChat},
		{"POST", "/v1;a/chat;b=c/completions;x=1;y", wire.OpenAIChat},
		{"POST", "/v1/chat/completions%20", wire.OpenAIChat},
		{"POST", "/v1/messages%09/%20", wire.AnthropicMessages},
		{"POST", "/v1/fim/completions", wire.OpenAICompletions},
		{"POST", "/v1/threads/t_1/messages", nil},
		{"POST", "/v1/threads/messages", wire.AnthropicMessages},
		{"POST", "/v1/images/edits", wire.OpenAIImages},
	} {
		got := wire.FormatOf(httptest.NewRequest(c.method, c.path, http.NoBody), wire.Formats)
		if got != c.want {
			t.Errorf("%s %s: %v", c.method, c.path, got)
		}
	}
}
