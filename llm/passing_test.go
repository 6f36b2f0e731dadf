package llm_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/llm"
)

// recorded is a transcript of testdata: what a client that asked for the usage gets, and what that
// uses.
type recorded struct {
	file, path string
	outcome    llm.Outcome
	usage      llm.Usage
	hidden     bool // an event is hidden from a client that did not ask for it
}

// The estimate of every request is an input of 2 and an output of 50.
var recordings = []recorded{
	{"chat-text.sse", chatPath, llm.OutcomeReported,
		llm.Usage{Input: 86, CacheRead: 1920, Output: 300}, true},
	{"chat-tools.sse", chatPath, llm.OutcomeUnreported, llm.Usage{Input: 2, Output: 50}, false},
	{"chat-reasoning.sse", chatPath, llm.OutcomeReported, llm.Usage{Input: 20, Output: 130, Reasoning: 120}, false},
	{"chat-cumulative.sse", chatPath, llm.OutcomeReported, llm.Usage{Input: 9, Output: 4}, true},
	{"chat-filter.sse", chatPath, llm.OutcomeReported, llm.Usage{Input: 8, Output: 2}, true},
	{"chat-error.sse", chatPath, llm.OutcomeCut, llm.Usage{Input: 2, Output: 2}, false},
	{"chat-aborted.sse", chatPath, llm.OutcomeCut, llm.Usage{Input: 2, Output: 3}, false},
	{"chat-broken.sse", chatPath, llm.OutcomeReported, llm.Usage{Input: 5, Output: 2}, true},
	{"chat.json", chatPath, llm.OutcomeReported, llm.Usage{Input: 15, CacheRead: 4, Output: 10, Reasoning: 3},
		false},
	{"chat-tools.json", chatPath, llm.OutcomeReported, llm.Usage{Input: 82, Output: 17}, false},
	{"chat-error.json", chatPath, llm.OutcomeFailed, llm.Usage{}, false},
	{"chat-no-usage.json", chatPath, llm.OutcomeUnreported, llm.Usage{Input: 2, Output: 50}, false},
	{"responses-text.sse", responsesPath, llm.OutcomeReported,
		llm.Usage{Input: 5, CacheRead: 32, Output: 11}, false},
	{"responses-tools.sse", responsesPath, llm.OutcomeReported, llm.Usage{Input: 291, Output: 123, Reasoning: 100},
		false},
	{"responses-failed.sse", responsesPath, llm.OutcomeCut, llm.Usage{Input: 2, Output: 1}, false},
	{"responses-error.sse", responsesPath, llm.OutcomeCut, llm.Usage{Input: 2, Output: 1}, false},
	{"responses.json", responsesPath, llm.OutcomeReported,
		llm.Usage{Input: 24, CacheRead: 12, Output: 87, Reasoning: 40}, false},
	{"responses-failed.json", responsesPath, llm.OutcomeFailed, llm.Usage{}, false},
	{"messages-text.sse", messagesPath, llm.OutcomeReported,
		llm.Usage{Input: 25, CacheRead: 1800, CacheWrite: 2051, Output: 15}, false},
	{"messages-thinking.sse", messagesPath, llm.OutcomeReported,
		llm.Usage{Input: 50, CacheRead: 6, Output: 189}, false},
	{"messages-error.sse", messagesPath, llm.OutcomeCut, llm.Usage{Input: 25, Output: 2}, false},
	{"messages-aborted.sse", messagesPath, llm.OutcomeCut, llm.Usage{Input: 25, Output: 2}, false},
	{"messages.json", messagesPath, llm.OutcomeReported,
		llm.Usage{Input: 2095, CacheRead: 100, CacheWrite: 7, Output: 503}, false},
	{"messages-error.json", messagesPath, llm.OutcomeFailed, llm.Usage{}, false},
}

func (c *recorded) stream() bool { return strings.HasSuffix(c.file, ".sse") }

// ask returns a request in the recording's format.
func (c *recorded) ask(options string) string {
	name := "max_tokens"
	if c.path == responsesPath {
		name = "max_output_tokens"
	}
	return fmt.Sprintf(`{"model": "m", "stream":%v,%s "%s":50,"system":"abcdefgh"}`, c.stream(),
		options, name)
}

// replay answers with a transcript, in pieces of this length.
func (c *recorded) replay(t *testing.T, piece int) ([]byte, http.HandlerFunc) {
	t.Helper()
	body, err := os.ReadFile(filepath.Join("internal", "wire", "testdata", c.file))
	if err != nil {
		t.Fatal(err)
	}
	return body, func(w http.ResponseWriter, _ *http.Request) {
		if c.stream() {
			w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		} else {
			w.Header().Set("Content-Type", "application/json")
		}
		for rest := body; len(rest) > 0; {
			n := min(piece, len(rest))
			_, _ = w.Write(rest[:n])
			_ = http.NewResponseController(w).Flush()
			rest = rest[n:]
		}
	}
}

// Every transcript is settled to the token. The bodies of the request and of the response are those
// of the client and of the server, except for the usage that the Meter asks a chat for.
func TestRecordings(t *testing.T) {
	for _, c := range recordings {
		t.Run(c.file, func(t *testing.T) {
			for name, way := range map[string]struct {
				options string
				change  func(*llm.Config)
				touched bool
			}{
				"plain":    {touched: c.path == chatPath && c.stream()},
				"asked":    {options: `"stream_options":{ "include_usage":true},`},
				"KeepBody": {change: func(cfg *llm.Config) { cfg.KeepBody = true }},
			} {
				for _, piece := range []int{97, 1 << 20} {
					r := newRig(t, core.UnitTokens, 100_000, way.change)
					body, replay := c.replay(t, piece)
					r.answer = replay
					ask := c.ask(way.options)
					got := read(t, r.post(c.path, ask))
					if same := got == string(body); same != !(way.touched && c.hidden) {
						t.Errorf("%s: the client was sent\n%s", name, got)
					}
					if way.touched && strings.Contains(got, `"choices":[],"usage":{`) {
						t.Errorf("%s: the usage is not hidden:\n%s", name, got)
					}
					if same := r.asked[0] == ask; same == way.touched {
						t.Errorf("%s: the upstream was asked %s", name, r.asked[0])
					}
					r.want(c.outcome, c.usage, c.usage.Total())
				}
			}
		})
	}
}

// Usage is asked for in an unencoded response, because it could not be hidden in an encoded one.
func TestUsageIsInjected(t *testing.T) {
	for _, c := range []struct{ body, want, encoding string }{
		{`{"model":"m","stream":true}`,
			`{"stream_options":{"include_usage":true},"model":"m","stream":true}`, "identity"},
		{`{"model":"m","stream":true,"stream_options":{"include_usage":false}}`,
			`{"model":"m","stream":true,"stream_options":{"include_usage":true}}`, "identity"},
		{`{"model":"m","stream":false}`, `{"model":"m","stream":false}`, "gzip"},
	} {
		r := newRig(t, core.UnitTokens, 100_000, nil)
		var encoding string
		r.answer = func(w http.ResponseWriter, q *http.Request) {
			encoding = q.Header.Get("Accept-Encoding")
			chat(1, 1)(w, q)
		}
		read(t, r.post(chatPath, c.body, "Accept-Encoding", "gzip, br"))
		if r.asked[0] != c.want || encoding != c.encoding {
			t.Errorf("the upstream was asked %s with encoding %q", r.asked[0], encoding)
		}
	}
}

func TestEncodedResponses(t *testing.T) {
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	fmt.Fprint(z, `{"choices":[{"message":{"content":"Hello"}}],"usage":{"prompt_tokens":7,"completion_tokens":11}}`)
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, encoding string
		outcome        llm.Outcome
		usage          llm.Usage
	}{
		{"a copy of gzip is read", "gzip", llm.OutcomeReported, llm.Usage{Input: 7, Output: 11}},
		{"others keep the estimate", "br", llm.OutcomeUnreported, llm.Usage{Output: 50}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, core.UnitTokens, 1000, nil)
			r.answer = func(w http.ResponseWriter, q *http.Request) {
				if accepts := q.Header.Get("Accept-Encoding"); accepts != "gzip" {
					t.Errorf("accepts %q", accepts)
				}
				w.Header().Set("Content-Type", "application/json")
				w.Header().Set("Content-Encoding", c.encoding)
				w.Header().Set("Etag", `"1"`)
				_, _ = w.Write(zipped.Bytes())
			}
			response := r.post(chatPath, `{"model":"m","max_tokens":50}`, "Accept-Encoding", "gzip")
			if body := read(t, response); body != zipped.String() || response.StatusCode != 200 {
				t.Errorf("%d %q", response.StatusCode, body)
			}
			h := response.Header
			if h.Get("Content-Encoding") != c.encoding || h.Get("Etag") == "" {
				t.Errorf("headers %v", h)
			}
			r.want(c.outcome, c.usage, c.usage.Total())
		})
	}
}

// The first event arrives while the upstream waits, also where events may be hidden.
func TestFirstEventIsNotDelayed(t *testing.T) {
	r := newRig(t, core.UnitTokens, 1000, nil)
	seen := make(chan struct{})
	r.answer = func(w http.ResponseWriter, q *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, word)
		_ = http.NewResponseController(w).Flush()
		<-seen
		chat(7, 10)(w, q)
	}
	response := r.post(chatPath, streamed)
	first := make([]byte, len(word))
	if _, err := io.ReadFull(response.Body, first); err != nil || string(first) != word {
		t.Errorf("%q, %v", first, err)
	}
	close(seen)
	read(t, response)
	r.want(llm.OutcomeReported, llm.Usage{Input: 7, Output: 10}, 17)
}

const word = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"word\"}}],\"usage\":null}\n\n"
