package wire_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/llm/internal/wire"
)

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
	dirs, err := filepath.Glob(filepath.Join("..", "..", "testdata", "llmcases", "*"))
	if err != nil || len(dirs) != 110 {
		t.Fatalf("%d cases, %v", len(dirs), err)
	}
	var all []sample
	for _, dir := range dirs {
		s := sample{name: filepath.Base(dir), header: make(http.Header)}
		var q struct{ Method, Path string }
		if err := json.Unmarshal(readFile(t, dir, "request.json"), &q); err != nil {
			t.Fatal(err)
		}
		s.format = wire.FormatOf(httptest.NewRequest(q.Method, q.Path, nil), wire.Formats)
		if s.format == nil {
			continue
		}
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
	b, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// A response that is cut at any byte counts no less than what it has stated and shown by then.
func TestEveryPrefix(t *testing.T) {
	for _, s := range samples(t) {
		t.Run(s.name, func(t *testing.T) {
			input := int64(0)
			for cut := range len(s.body) + 1 {
				for _, whole := range []bool{false, true} {
					tap := wire.NewTap(s.format, s.header, false)
					_ = tap.Write(s.body[:cut], nil)
					_ = tap.Close(whole, nil)
					o := tap.Response()
					u := o.Usage
					prompt := u.Input + u.CacheRead + u.CacheWrite + u.CacheWriteLong + u.AudioIn + u.ImageIn
					output := u.Output + u.AudioOut + u.ImageOut
					if !o.Known {
						output = max(output, o.TextTokens())
					}
					if prompt < input && !billedOtherwise(s.name) {
						t.Fatalf("cut at %d: input of %d after %d", cut, prompt, input)
					}
					input = prompt
					if shown := eventsWithText(s.body[:cut]); output < shown && !billedOtherwise(s.name) {
						t.Fatalf("cut at %d, whole %v: output of %d for %d events", cut, whole, output, shown)
					}
					if o.Known && !whole && !o.Complete {
						t.Fatalf("cut at %d: the usage is final", cut)
					}
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

// eventsWithText counts the whole events of a stream that have text, by another way than the
// reader.
func eventsWithText(stream []byte) (n int64) {
	for event := range bytes.SplitAfterSeq(stream, []byte("\n\n")) {
		if !bytes.HasSuffix(event, []byte("\n\n")) {
			continue
		}
		var data []byte
		for line := range bytes.Lines(event) {
			if value, ok := bytes.CutPrefix(line, []byte("data:")); ok {
				data = append(data, value...)
			}
		}
		var v any
		if json.Unmarshal(data, &v) == nil && hasText(v) {
			n++
		}
	}
	return n
}

// hasText reports whether a member that servers use for text has some.
func hasText(v any) bool {
	switch v := v.(type) {
	case []any:
		return slices.ContainsFunc(v, hasText)
	case map[string]any:
		if v["type"] == "response.completed" || v["type"] == "response.created" {
			return false // repeats the text
		}
		for key, value := range v {
			text, ok := value.(string)
			switch key {
			case "text", "content", "reasoning_content", "thinking", "delta":
				if ok && text != "" {
					return true
				}
			}
			if !ok && hasText(value) {
				return true
			}
		}
	}
	return false
}

// The memory of an open stream is bounded, whatever the format is.
func TestTapIsSmall(t *testing.T) {
	const most = 16 << 10
	for _, s := range samples(t) {
		if len(s.body) < 200 {
			continue
		}
		before := live()
		tap := wire.NewTap(s.format, s.header, true)
		for range 20 {
			_ = tap.Write(s.body[:len(s.body)/2], nil)
			_ = tap.Write(s.body[len(s.body)/2:], nil)
		}
		_ = tap.Response()
		if grown := live() - before; grown > most {
			t.Errorf("%s: %d bytes", s.name, grown)
		}
		runtime.KeepAlive(tap)
	}
}

// live returns the bytes of the heap that something still refers to.
func live() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
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
	f.Add([]byte("\ufeffdata\r\rdata: {\"choices\":[],\ndata:\"usage\":{}}\r\n\r\n:x\n\n"), uint8(0), uint16(3))
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
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		if form {
			r.Header.Set("Content-Type", "multipart/form-data; boundary=b")
		}
		q, err := wire.ParseRequest(format, r, body)
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
