package wire_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	"github.com/headgate/headgate/llm/internal/wire"
)

func TestRequestFields(t *testing.T) {
	deep := strings.Repeat("[", 600) + strings.Repeat("]", 600)
	for _, c := range []struct {
		name, body string
		format     *wire.Format
		want       wire.Request
		fault      string
	}{
		{name: "chat",
			body: `{"model":"gpt-4o","messages":[{"role":"user","content":"Hello"}],` +
				`"max_tokens":7,"n":2,"stream":true}`,
			want: wire.Request{Model: "gpt-4o", Stream: true, MaxOutput: 7, Choices: 2, PromptBytes: 9}},
		{name: "max_completion_tokens wins", body: `{"max_completion_tokens":9,"model":"m","max_tokens":7}`,
			want: wire.Request{Model: "m", MaxOutput: 9, Choices: 1}},
		{name: "responses", format: wire.OpenAIResponses,
			body: `{"model":"m","input":"Hello","instructions":"Be",` +
				`"max_output_tokens":5,"max_tokens":1,"n":3}`,
			want: wire.Request{Model: "m", MaxOutput: 5, Choices: 1, PromptBytes: 7}},
		{name: "messages", format: wire.AnthropicMessages,
			body: `{"model":"m","max_tokens":5,` +
				`"system":[{"type":"text","text":"abc"}],"messages":[]}`,
			want: wire.Request{Model: "m", MaxOutput: 5, Choices: 1, PromptBytes: 7}},
		{name: "null is absent", body: `{"model":"m","stream":null,"n":null,"max_tokens":null,"stream_options":null}`,
			want: wire.Request{Model: "m", Choices: 1}},
		{name: "escaped key and value", body: `{"mod\u0065l":"\u006d\ud83d\ude00"}`,
			want: wire.Request{Model: "m😀", Choices: 1}},
		{name: "asks for usage", body: `{"model":"m","stream":true,"stream_options":{"include_usage":true}}`,
			want: wire.Request{Model: "m", Stream: true, Choices: 1, AsksUsage: true}},
		{name: "model of 256 bytes", body: `{"model":"` + strings.Repeat("x", 256) + `"}`,
			want: wire.Request{Model: strings.Repeat("x", 256), Choices: 1}},
		{name: "n of 0", body: `{"model":"m","n":0}`, want: wire.Request{Model: "m", Choices: 1}},

		{name: "empty body", fault: "not one JSON document"},
		{name: "malformed", body: `{"model":"m",}`, fault: "not one JSON document"},
		{name: "cut off", body: `{"model":"m"`, fault: "not one JSON document"},
		{name: "trailing data", body: `{"model":"m"}{}`, fault: "not one JSON document"},
		{name: "too deep", body: `{"model":"m","x":` + deep + `}`, fault: "nests too deeply"},
		{name: "array", body: `[]`, fault: "no object"},
		{name: "number", body: `12`, fault: "no object"},
		{name: "no model", body: `{}`, fault: "model is missing"},
		{name: "model in another case only", body: `{"Model":"m"}`, fault: "another case"},
		{name: "empty model", body: `{"model":""}`, fault: "model is empty"},
		{name: "null model", body: `{"model":null}`, fault: "model is no string"},
		{name: "object as model", body: `{"model":{}}`, fault: "wrong type"},
		{name: "long model", body: `{"model":"` + strings.Repeat("x", 257) + `"}`,
			fault: "longer than 256"},
		{name: "half a surrogate pair in model", body: `{"model":"m\ud83d"}`, fault: "UTF-8"},
		{name: "model twice", body: `{"model":"m","model":"m"}`, fault: "model comes twice"},
		{name: "model twice, once escaped", body: `{"model":"m","\u006dodel":"m"}`,
			fault: "model comes twice"},
		{name: "stream twice", body: `{"stream":true,"stream":true,"model":"m"}`,
			fault: "stream comes twice"},
		{name: "stream under a long s", body: `{"model":"m","ſtream":true}`, fault: "another case"},
		{name: "max_tokens in another case", body: `{"model":"m","MAX_TOKENS":1}`,
			fault: "another case"},
		{name: "n twice", body: `{"model":"m","n":1,"n":2}`, fault: "n comes twice"},
		{name: "messages twice", body: `{"model":"m","messages":[],"messages":[]}`,
			fault: "messages comes twice"},
		{name: "stream_options twice",
			body: `{"model":"m","stream_options":{},"stream_options":{}}`, fault: "comes twice"},
		{name: "include_usage twice",
			body:  `{"model":"m","stream_options":{"include_usage":true,"include_usage":false}}`,
			fault: "comes twice"},
		{name: "text as stream", body: `{"model":"m","stream":"true"}`, fault: "no boolean"},
		{name: "text as stream_options", body: `{"model":"m","stream_options":"x"}`,
			fault: "no object"},
		{name: "number as include_usage",
			body: `{"model":"m","stream_options":{"include_usage":1}}`, fault: "no boolean"},
		{name: "max_tokens of -1 is none", body: `{"model":"m","max_tokens":-1}`, want: wire.Request{Model: "m", Choices: 1}},
		{name: "negative max_tokens", body: `{"model":"m","max_tokens":-3}`, fault: "no integer"},
		{name: "negative n", body: `{"model":"m","n":-1}`, fault: "no integer"},
		{name: "fractional max_tokens", body: `{"model":"m","max_tokens":1.5}`,
			fault: "no integer"},
		{name: "text as max_tokens", body: `{"model":"m","max_tokens":"5"}`, fault: "no number"},
		{name: "absurd max_tokens", body: `{"model":"m","max_tokens":1000000001}`,
			fault: "more than"},
		{name: "endless max_tokens", body: `{"model":"m","max_tokens":` +
			strings.Repeat("9", 1000) + `}`, fault: "more than"},
		{name: "n of 129", body: `{"model":"m","n":129}`, fault: "more than 128"},
	} {
		t.Run(c.name, func(t *testing.T) {
			format := cmp.Or(c.format, wire.OpenAIChat)
			got, err := parse(format, []byte(c.body))
			if c.fault != "" {
				if !errors.Is(err, wire.ErrRequest) || !strings.Contains(err.Error(), c.fault) {
					t.Fatalf("error %v, want one with %q", err, c.fault)
				}
				if !strings.HasPrefix(err.Error(), "llm: ") {
					t.Errorf("error %v does not name the package", err)
				}
				return
			}
			c.want.Format = format
			if err != nil || stated(got) != stated(c.want) {
				t.Errorf("%+v, %v, want %+v", got, err, c.want)
			}
		})
	}
}

// stated returns what a request states, without what follows from it.
func stated(q wire.Request) [8]any {
	return [...]any{q.Format, q.Model, q.Stream, q.MaxOutput, q.Choices, q.PromptBytes, q.Files, q.AsksUsage}
}

// parse reads the body of a request whose path names no model.
func parse(f *wire.Format, body []byte) (wire.Request, error) {
	return wire.ParseRequest(f, httptest.NewRequest(http.MethodPost, "/", nil), body)
}

// Each format has its own members.
func TestRequestsOfFormats(t *testing.T) {
	for _, c := range []struct {
		format *wire.Format
		body   string
		want   wire.Request
	}{
		{wire.GeminiGenerate, `{"model":"m","contents":[{"role":"user","parts":[{"text":"Hello"},{"inline_data":{"data":"AA"}},` +
			`{"fileData":{"fileUri":"x"}}]}],"systemInstruction":{"parts":[{"text":"Be"}]},` +
			`"generationConfig":{"maxOutputTokens":9,"candidateCount":2,"thinkingConfig":{"thinkingLevel":"HIGH"}}}`,
			wire.Request{MaxOutput: 9, Choices: 2, PromptBytes: 7, Files: 2}},
		{wire.BedrockConverse, `{"messages":[{"content":[{"text":"Hello"},{"image":{"source":{"bytes":"AA"}}},` +
			`{"toolResult":{"content":[{"text":"Be"},{"document":{"source":{"bytes":"AA"}}}]}}]}],` +
			`"inferenceConfig":{"maxTokens":9}}`,
			wire.Request{MaxOutput: 9, Choices: 1, PromptBytes: 7, Files: 2}},
		{wire.Ollama, `{"model":"m","messages":[{"content":"Hello","images":["AA","BB"]}],"options":{"num_predict":-2}}`,
			wire.Request{Stream: true, Choices: 1, PromptBytes: 5, Files: 2}},
		{wire.Ollama, `{"model":"m","prompt":"Hello","stream":false,"options":{"num_predict":9}}`,
			wire.Request{MaxOutput: 9, Choices: 1, PromptBytes: 5}},
		{wire.CohereChat, `{"model":"m","messages":[{"content":"Hello"}],"documents":[{"data":{"text":"Be"}}],"max_tokens":9}`,
			wire.Request{MaxOutput: 9, Choices: 1, PromptBytes: 7}},
		{wire.OpenAICompletions, `{"model":"m","prompt":["Hello"],"suffix":"Be","n":2,"best_of":3,"max_tokens":null}`,
			wire.Request{Choices: 3, PromptBytes: 7}},
		{wire.OpenAIResponses, `{"model":"m","input":"Hello","reasoning":{"effort":"low"},"max_output_tokens":9}`,
			wire.Request{MaxOutput: 9, Choices: 1, PromptBytes: 5}},
	} {
		body := c.body
		if !strings.Contains(body, `"model"`) {
			body = `{"model":"m",` + body[1:]
		}
		path := map[*wire.Format]string{
			wire.BedrockConverse: "/model/m/converse", wire.GeminiGenerate: "/models/m:generateContent",
		}[c.format]
		got, err := wire.ParseRequest(c.format, httptest.NewRequest(http.MethodPost, cmp.Or(path, "/"), nil), []byte(body))
		c.want.Format, c.want.Model = c.format, "m"
		if err != nil || stated(got) != stated(c.want) {
			t.Errorf("%v: %+v, %v, want %+v", c.format, got, err, c.want)
		}
	}
	for format, bodies := range map[*wire.Format][]string{
		wire.GeminiGenerate: {`{"generationConfig":{"maxOutputTokens":1,"maxOutputTokens":2}}`,
			`{"generationConfig":{"MaxOutputTokens":1}}`, `{"generationConfig":{"maxOutputTokens":"1"}}`},
		wire.BedrockConverse: {`{"inferenceConfig":{"maxTokens":1.5}}`, `[]`, `{"inferenceConfig":{}`},
		wire.Ollama:          {`{"model":"m","options":{"num_predict":-3}}`, `{"model":"m","stream":"x"}`},
	} {
		path := map[*wire.Format]string{
			wire.BedrockConverse: "/model/m/converse", wire.GeminiGenerate: "/models/m:generateContent",
		}[format]
		for _, body := range bodies {
			r := httptest.NewRequest(http.MethodPost, cmp.Or(path, "/"), nil)
			if q, err := wire.ParseRequest(format, r, []byte(body)); !errors.Is(err, wire.ErrRequest) {
				t.Errorf("%v: %s: %+v, %v", format, body, q, err)
			}
		}
	}
}

func TestForms(t *testing.T) {
	field := func(name, value string) string {
		return "--b\r\nContent-Disposition: form-data; name=\"" + name + "\"\r\n\r\n" + value + "\r\n"
	}
	file := "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"f\"\r\n\r\nabc\r\n"
	for _, c := range []struct {
		name, body, fault string
		want              wire.Request
	}{
		{"whole", field("model", "m") + file + field("prompt", "Hello") + field("n", "2") + field("stream", "true") + file,
			"", wire.Request{Model: "m", Stream: true, Choices: 2, PromptBytes: 5, Files: 2}},
		{"model twice", field("model", "m") + field("model", "n"), "model comes twice", wire.Request{}},
		{"another case", field("Model", "m"), "another case", wire.Request{}},
		{"no model", file, "model is missing", wire.Request{}},
		{"empty model", field("model", ""), "model is empty", wire.Request{}},
		{"malformed n", field("model", "m") + field("n", "x"), "no integer", wire.Request{}},
		{"malformed stream", field("model", "m") + field("stream", "maybe"), "no boolean", wire.Request{}},
		{"model in a file", strings.Replace(file, `"file"`, `"model"`, 1) + field("model", "m"), "model is a file", wire.Request{}},
		{"behind a document", `{"model":"n"}` + "\r\n" + field("model", "m"), "no multipart form", wire.Request{}},
		{"behind a line", "\r\n" + field("model", "m"), "", wire.Request{Model: "m", Choices: 1}},
		{"cut off", "--b\r\nContent-Dis", "no multipart form", wire.Request{}},
	} {
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		r.Header.Set("Content-Type", "multipart/form-data; boundary=b")
		body := c.body
		if c.name != "cut off" {
			body += "--b--\r\n"
		}
		got, err := wire.ParseRequest(wire.OpenAIImages, r, []byte(body))
		switch {
		case c.fault != "":
			if !errors.Is(err, wire.ErrRequest) || !strings.Contains(err.Error(), c.fault) {
				t.Errorf("%s: %v, want %q", c.name, err, c.fault)
			}
		default:
			c.want.Format = wire.OpenAIImages
			if err != nil || stated(got) != stated(c.want) {
				t.Errorf("%s: %+v, %v, want %+v", c.name, got, err, c.want)
			}
		}
	}
}

func TestPromptBytes(t *testing.T) {
	image := strings.Repeat("iVBORw0KGgo", 100_000)
	for _, c := range []struct {
		name, member string
		want, files  int64
	}{
		{"escapes count decoded", `"input":"a\n\u00e9\ud83d\ude00"`, 1 + 1 + 2 + 4, 0},
		{"half a pair counts as U+FFFD", `"input":"\ud83dx\ude00"`, 3 + 1 + 3, 0},
		{"every string of a message",
			`"messages":[{"role":"user","content":[{"type":"text","text":"Hello"}]}]`, 4 + 4 + 5, 0},
		{"deep text", `"system":` + strings.Repeat(`[{"k":`, 40) + `"abc"` +
			strings.Repeat(`}]`, 40), 3, 0},
		{"tools by their JSON", `"tools": [ {"name" : "f"} ]`, 18, 0},
		{"image of a chat", `"messages":[{"content":[{"image_url":{"url":"data:image/png;base64,` +
			image + `","detail":"low"}}]}]`, 3, 1},
		{"image of responses", `"input":[{"content":[{"image_url":"data:image/png;base64,` + image +
			`"}]}]`, 0, 1},
		{"audio", `"messages":[{"content":[{"input_audio":{"data":"` + image +
			`","format":"wav"}}]}]`, 3, 1},
		{"file of a chat", `"messages":[{"content":[{"file":{"file_data":"` + image + `"}}]}]`,
			0, 1},
		{"file of responses", `"input":[{"content":[{"file_data":"` + image + `"}]}]`, 0, 1},
		{"screenshot", `"input":[{"output":{"image_url":"` + image + `"}}]`, 0, 1},
		{"generated image", `"input":[{"result":"` + image + `"}]`, 0, 1},
		{"image of messages", `"messages":[{"content":[{"source":{"data":"` + image +
			`","type":"base64","media_type":"x"}}]}]`, 1, 1},
		{"image in a tool result",
			`"messages":[{"content":[{"content":[{"source":{"type":"base64","data":"` + image +
				`"}}]}]}]`, 0, 1},
		{"text as a document",
			`"messages":[{"content":[{"source":{"type":"text","data":"Hello"}}]}]`, 5, 0},
		{"document with a doubtful type",
			`"messages":[{"content":[{"source":{"type":"base64","type":"text","data":"Hello"}}]}]`,
			5, 0},
		{"document of blocks",
			`"messages":[{"content":[{"source":{"content":[{"text":"Hello"}]}}]}]`, 5, 0},
		{"arguments of a tool_use", `"messages":[{"content":[{"input":{"file_data": "x"}}]}]`, 18, 0},
		{"text that looks like an image", `"messages":[{"content":"data:image/png;base64,AAAA"}]`,
			26, 0},
		{"file_data where no file is", `"messages":[{"file_data":"Hello"}]`, 5, 0},
		{"metadata", `"metadata":{"text":"Hello"},"user":"x"`, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, err := parse(wire.OpenAIChat, []byte(`{"model":"m",`+c.member+`}`))
			if err != nil || r.PromptBytes != c.want || r.Files != c.files {
				t.Errorf("%d bytes, %d files, %v, want %d and %d", r.PromptBytes, r.Files, err, c.want, c.files)
			}
		})
	}
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

func FuzzParseRequest(f *testing.F) {
	for _, s := range []string{
		`{"model":"m","messages":[{"role":"user","content":"Hello"}],"stream":true,"n":1,"max_tokens":5}`,
		`{"model":"m","stream_options":{"include_usage":false,"x":-1.5e+3},"tools":[{"a":{}}]}`,
		`{"model":"m","input":[{"content":[{"source":{"type":"base64","data":"AA"}}]}],"x":"\ud83d\ude00\u0000"}`,
		`{"model":"m","stream_options":null}`, `{"model":"m","stream_options":{ }}`,
		`[0,-0,1.0,true,false,null]`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := parse(wire.OpenAIChat, body)
		if err != nil {
			if !errors.Is(err, wire.ErrRequest) {
				t.Fatalf("error %v is no wire.ErrRequest", err)
			}
			return
		}
		if !json.Valid(body) {
			t.Fatal("an invalid document was accepted")
		}
		if r.Model == "" || r.Choices < 1 || r.MaxOutput < 0 || r.PromptBytes < 0 {
			t.Fatalf("%+v", r)
		}
		want, got := decodeBody(t, body), decodeBody(t, wire.InjectUsage(body))
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

func BenchmarkParseRequest(b *testing.B) {
	body := []byte(`{"model":"m","messages":[{"role":"user","content":"` +
		strings.Repeat("Hello, world. ", 1000) + `"}]}`)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := parse(wire.OpenAIChat, body); err != nil {
			b.Fatal(err)
		}
	}
}
