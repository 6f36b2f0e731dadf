package wire_test

import (
	"bytes"
	"compress/gzip"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/llm/internal/wire"
)

// transcript is a recorded response and what it says.
type transcript struct {
	file   string
	format *wire.Format
	want   wire.Response
	hidden string // the beginning of the event that hide leaves out, or empty
}

var transcripts = []transcript{
	{"chat-text.sse", wire.OpenAIChat,
		wire.Response{Usage: wire.Usage{Input: 86, CacheRead: 1920, Output: 300},
			Known: true, InputKnown: true,
			Events: 3, TextBytes: 5 + 32 + 4, Complete: true}, `"choices":[],"usage"`},
	{"chat-tools.sse", wire.OpenAIChat,
		wire.Response{Events: 3, TextBytes: 2 + 4 + 10, Complete: true}, ""},
	{"chat-reasoning.sse", wire.OpenAIChat,
		wire.Response{Usage: wire.Usage{Input: 20, Output: 130, Reasoning: 120}, Known: true, InputKnown: true,
			Events: 2, TextBytes: 13 + 2, Complete: true}, ""},
	{"chat-cumulative.sse", wire.OpenAIChat,
		wire.Response{Usage: wire.Usage{Input: 9, Output: 4}, Known: true, InputKnown: true,
			Events: 3, TextBytes: 3 + 4 + 1, Complete: true}, `"choices":[],"usage"`},
	{"chat-filter.sse", wire.OpenAIChat,
		wire.Response{Usage: wire.Usage{Input: 8, Output: 2}, Known: true, InputKnown: true,
			Events: 1, TextBytes: 2, Complete: true}, `"choices":[],"usage"`},
	{"chat-error.sse", wire.OpenAIChat,
		wire.Response{Events: 1, TextBytes: 5, Complete: true, Failed: true}, ""},
	{"chat-aborted.sse", wire.OpenAIChat, wire.Response{Events: 2, TextBytes: 5 + 4}, ""},
	{"chat-broken.sse", wire.OpenAIChat,
		wire.Response{Usage: wire.Usage{Input: 5, Output: 2}, Known: true, InputKnown: true,
			Events: 2, TextBytes: 5 + 1, Complete: true, Broken: true}, `"choices":[],"usage"`},
	{"chat.json", wire.OpenAIChat,
		wire.Response{Usage: wire.Usage{Input: 15, CacheRead: 4, Output: 10, Reasoning: 3},
			Known: true, InputKnown: true,
			Events: 1, TextBytes: 34, Complete: true}, ""},
	{"chat-tools.json", wire.OpenAIChat,
		wire.Response{Usage: wire.Usage{Input: 82, Output: 17}, Known: true, InputKnown: true,
			Events: 1, TextBytes: 28, Complete: true}, ""},
	{"chat-error.json", wire.OpenAIChat, wire.Response{Complete: true, Failed: true}, ""},
	{"chat-no-usage.json", wire.OpenAIChat, wire.Response{Events: 1, TextBytes: 5, Complete: true},
		""},

	{"responses-text.sse", wire.OpenAIResponses,
		wire.Response{Usage: wire.Usage{Input: 5, CacheRead: 32, Output: 11},
			Known: true, InputKnown: true,
			Events: 2, TextBytes: 2 + 7, Complete: true}, ""},
	{"responses-tools.sse", wire.OpenAIResponses,
		wire.Response{Usage: wire.Usage{Input: 291, Output: 123, Reasoning: 100}, Known: true, InputKnown: true,
			Events: 3, TextBytes: 24 + 12 + 8, Complete: true}, ""},
	{"responses-failed.sse", wire.OpenAIResponses,
		wire.Response{Events: 1, TextBytes: 2, Complete: true, Failed: true}, ""},
	{"responses-error.sse", wire.OpenAIResponses,
		wire.Response{Events: 1, TextBytes: 2, Failed: true}, ""},
	{"responses-audio.sse", wire.OpenAIResponses,
		wire.Response{Usage: wire.Usage{Input: 10, Output: 20}, Known: true, InputKnown: true,
			Events: 1, TextBytes: 2, Complete: true}, ""},
	{"responses.json", wire.OpenAIResponses,
		wire.Response{Usage: wire.Usage{Input: 24, CacheRead: 12, Output: 87, Reasoning: 40},
			Known: true, InputKnown: true,
			Events: 1, TextBytes: 5 + 9 + 20, Complete: true}, ""},
	{"responses-failed.json", wire.OpenAIResponses, wire.Response{Complete: true, Failed: true},
		""},

	{"messages-text.sse", wire.AnthropicMessages,
		wire.Response{Usage: wire.Usage{Input: 25, CacheRead: 1800, CacheWrite: 2051, Output: 15},
			Known: true, InputKnown: true,
			Events: 2, TextBytes: 5 + 1, Complete: true}, ""},
	{"messages-thinking.sse", wire.AnthropicMessages,
		wire.Response{Usage: wire.Usage{Input: 50, CacheRead: 6, Output: 189},
			Known: true, InputKnown: true,
			Events: 5, TextBytes: 31 + 30 + 17 + 12 + 21, Complete: true}, ""},
	{"messages-error.sse", wire.AnthropicMessages,
		wire.Response{Usage: wire.Usage{Input: 25}, InputKnown: true,
			Events: 1, TextBytes: 5, Failed: true}, ""},
	{"messages-aborted.sse", wire.AnthropicMessages,
		wire.Response{Usage: wire.Usage{Input: 25}, InputKnown: true,
			Events: 1, TextBytes: 5}, ""},
	{"messages.json", wire.AnthropicMessages,
		wire.Response{Usage: wire.Usage{Input: 2095, CacheRead: 100, CacheWrite: 7, Output: 503},
			Known: true, InputKnown: true,
			Events: 1, TextBytes: 3 + 6 + 5 + 1, Complete: true}, ""},
	{"messages-error.json", wire.AnthropicMessages, wire.Response{Complete: true, Failed: true},
		""},
}

func (c *transcript) contentType() string {
	if strings.HasSuffix(c.file, ".sse") {
		return "text/event-stream; charset=utf-8"
	}
	return "application/json"
}

func (c *transcript) read(t testing.TB) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", c.file))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// counted returns what a response has counted, without what it names.
func counted(o wire.Response) wire.Response {
	o.Model, o.Labels, o.Told, o.OutputKnown = "", nil, false, false
	return o
}

// newTap returns a Tap of a response with a Content-Type and a Content-Encoding.
func newTap(f *wire.Format, contentType, encoding string, hide bool) *wire.Tap {
	h := make(http.Header)
	h.Set("Content-Type", contentType)
	h.Set("Content-Encoding", encoding)
	return wire.NewTap(f, h, hide)
}

// without removes the events that contain mark.
func without(stream []byte, mark, lineEnd string) []byte {
	if mark == "" {
		return stream
	}
	var kept []string
	for event := range strings.SplitAfterSeq(string(stream), lineEnd+lineEnd) {
		if !strings.Contains(event, mark) {
			kept = append(kept, event)
		}
	}
	return []byte(strings.Join(kept, ""))
}

// send writes the pieces and closes, and returns what came out.
func send(t testing.TB, tap *wire.Tap, pieces [][]byte) []byte {
	t.Helper()
	var b bytes.Buffer
	out := func(p []byte) error {
		b.Write(p)
		return nil
	}
	for _, p := range pieces {
		if err := tap.Write(p, out); err != nil {
			t.Fatal(err)
		}
	}
	if err := tap.Close(true, out); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func bytewise(b []byte) [][]byte {
	var pieces [][]byte
	for i := range b {
		pieces = append(pieces, b[i:i+1])
	}
	return pieces
}

func gzipped(t testing.TB, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestTranscripts(t *testing.T) {
	for _, c := range transcripts {
		t.Run(c.file, func(t *testing.T) {
			original := c.read(t)
			for _, lineEnd := range []string{"\n", "\r\n", "\r"} {
				if lineEnd != "\n" && c.contentType() == "application/json" {
					continue
				}
				body := bytes.ReplaceAll(original, []byte("\n"), []byte(lineEnd))
				for _, hide := range []bool{false, true} {
					want := body
					if hide {
						want = without(body, c.hidden, lineEnd)
						if c.hidden != "" && len(want) == len(body) {
							t.Fatal("nothing to hide")
						}
					}
					check := func(what string, pieces [][]byte) {
						t.Helper()
						tap := newTap(c.format, c.contentType(), "", hide)
						if got := send(t, tap, pieces); !bytes.Equal(got, want) {
							t.Errorf("%s, line end %q, hide %v: passed on\n%s", what, lineEnd, hide,
								got)
						}
						if got := tap.Response(); !reflect.DeepEqual(counted(got), c.want) {
							t.Errorf("%s, line end %q, hide %v:\n%+v, want\n%+v", what, lineEnd,
								hide, got, c.want)
						}
					}
					check("whole", [][]byte{body})
					check("bytewise", bytewise(body))
					step := 1 // every boundary where bytes may be held back, and some elsewhere
					if !hide || lineEnd != "\n" {
						step = 13
					}
					for i := 0; i < len(body); i += step {
						check("in two", [][]byte{body[:i], body[i:]})
						if t.Failed() {
							t.FailNow()
						}
					}
				}
			}
		})
	}
}

func TestRandomSplitsChangeNothing(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		c := rapid.SampledFrom(transcripts).Draw(r, "transcript")
		hide, zip := rapid.Bool().Draw(r, "hide"), rapid.Bool().Draw(r, "gzip")
		body, encoding := c.read(t), ""
		want := body
		switch {
		case zip:
			body, encoding = gzipped(t, body), "gzip"
			want = body
		case hide:
			want = without(body, c.hidden, "\n")
		}
		tap := newTap(c.format, c.contentType(), encoding, hide)
		if got := send(t, tap, draw(r, body)); !bytes.Equal(got, want) {
			r.Fatalf("passed on %s", got)
		}
		if got := tap.Response(); !reflect.DeepEqual(counted(got), c.want) {
			r.Fatalf("%+v, want %+v", got, c.want)
		}
	})
}

// draw cuts b into pieces of random lengths.
func draw(r *rapid.T, b []byte) [][]byte {
	var pieces [][]byte
	for len(b) > 0 {
		n := rapid.IntRange(1,
			min(len(b), rapid.SampledFrom([]int{3, 60, 5000}).Draw(r, "most"))).Draw(r, "length")
		pieces = append(pieces, b[:n])
		b = b[n:]
	}
	return pieces
}

func FuzzTap(f *testing.F) {
	for i, c := range transcripts {
		f.Add(c.read(f), uint8(slices.Index(wire.Formats, c.format)), uint16(i*7), c.contentType() != "application/json")
	}
	f.Add([]byte(`{"usage":{}} {`), uint8(0), uint16(1), false)
	f.Add([]byte("\ufeffdata\r\rdata: {\"choices\":[],\ndata:\"usage\":{}}\r\n\r\n:x\n\n"),
		uint8(0), uint16(3), true)
	f.Fuzz(func(t *testing.T, body []byte, format uint8, step uint16, stream bool) {
		c := transcript{file: "x.json"}
		if stream {
			c.file = "x.sse"
		}
		var pieces [][]byte
		for rest, n := body, int(step)%97+1; len(rest) > 0; n = n*31%97 + 1 {
			n = min(n, len(rest))
			pieces = append(pieces, rest[:n])
			rest = rest[n:]
		}
		var results []wire.Response
		var outputs [][]byte
		for _, hide := range []bool{false, true} {
			for _, cut := range [][][]byte{{body}, pieces, bytewise(body)} {
				tap := newTap(wire.Formats[int(format)%len(wire.Formats)], c.contentType(), "", hide)
				outputs = append(outputs, send(t, tap, cut))
				results = append(results, tap.Response())
			}
		}
		for i, r := range results {
			if !reflect.DeepEqual(r, results[0]) {
				t.Errorf("split %d: %+v, want %+v", i, r, results[0])
			}
			if want := outputs[i/3*3]; !bytes.Equal(outputs[i], want) {
				t.Errorf("split %d: passed on %q, want %q", i, outputs[i], want)
			}
		}
		if !bytes.Equal(outputs[0], body) {
			t.Errorf("passed on %q, want %q", outputs[0], body)
		}
	})
}
