package wire_test

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws/protocol/eventstream"
	"pgregory.net/rapid"

	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/llm/internal/wire"
)

// transcript is a recorded response and what it says.
type transcript struct {
	File   string
	Want   wire.Response
	Hidden string // the beginning of the event that hide leaves out, or empty
	format *wire.Format
}

// formats are those of the transcripts, by the beginnings of their names.
var formats = map[string]*wire.Format{
	"chat": wire.OpenAIChat, "responses": wire.OpenAIResponses, "messages": wire.AnthropicMessages,
}

// transcripts reads testdata/expect.json.
func transcripts(t testing.TB) (all []transcript) {
	t.Helper()
	if err := json.Unmarshal(readFile(t, "testdata", "expect.json"), &all); err != nil || len(all) != 25 {
		t.Fatalf("%d transcripts, %v", len(all), err)
	}
	for i := range all {
		name, _, _ := strings.Cut(strings.TrimSuffix(strings.TrimSuffix(all[i].File, ".sse"), ".json"), "-")
		all[i].format = formats[name]
	}
	return all
}

func (c *transcript) contentType() string {
	if strings.HasSuffix(c.File, ".sse") {
		return "text/event-stream; charset=utf-8"
	}
	return "application/json"
}

func (c *transcript) read(t testing.TB) []byte { return readFile(t, "testdata", c.File) }

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
	return wire.NewTap(&wire.Request{Target: wire.Target{Format: f}}, h, hide)
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
func send(t rapid.TB, tap *wire.Tap, pieces [][]byte) []byte {
	t.Helper()
	var b bytes.Buffer
	out := func(p []byte) error {
		b.Write(p)
		return nil
	}
	for _, p := range pieces {
		gatetest.Must(tap.Write(p, false, out))(t)
	}
	gatetest.NoError(t, tap.Close(true, out))
	return b.Bytes()
}

func bytewise(b []byte) [][]byte {
	var pieces [][]byte
	for i := range b {
		pieces = append(pieces, b[i:i+1])
	}
	return pieces
}

func gzipped(t rapid.TB, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	gatetest.Must(w.Write(b))(t)
	gatetest.NoError(t, w.Close())
	return out.Bytes()
}

// Transcripts say the same in any pieces, with any line ends, and compressed.
func TestTranscripts(t *testing.T) {
	for _, c := range transcripts(t) {
		t.Run(c.File, func(t *testing.T) {
			lineEnds := []string{"\n", "\r\n"}
			if c.contentType() == "application/json" {
				lineEnds = lineEnds[:1]
			}
			original := c.read(t)
			try := func(t rapid.TB, lineEnd string, hide, zip bool, pieces func([]byte) [][]byte) {
				body, encoding := bytes.ReplaceAll(original, []byte("\n"), []byte(lineEnd)), ""
				want := body
				if hide && !zip {
					want = without(body, c.Hidden, lineEnd)
				}
				if zip {
					encoding, body = "gzip", gzipped(t, body)
					want = body
				}
				c.check(t, fmt.Sprintf("line end %q, hide %v, gzip %v", lineEnd, hide, zip), encoding, hide, pieces(body), want)
			}
			for _, lineEnd := range lineEnds {
				try(t, lineEnd, false, false, bytewise)
				try(t, lineEnd, true, false, bytewise)
			}
			rapid.Check(t, func(r *rapid.T) {
				lineEnd := rapid.SampledFrom(lineEnds).Draw(r, "line end")
				hide, zip := rapid.Bool().Draw(r, "hide"), rapid.IntRange(0, 3).Draw(r, "gzip") == 3
				try(r, lineEnd, hide, zip, func(body []byte) [][]byte { return draw(r, body) })
			})
			if c.Hidden != "" && len(without(original, c.Hidden, "\n")) == len(original) {
				t.Error("nothing to hide")
			}
		})
	}
}

// check sends pieces through a Tap, and compares what is passed on and what is read.
func (c *transcript) check(t rapid.TB, what, encoding string, hide bool, pieces [][]byte, want []byte) {
	t.Helper()
	tap := newTap(c.format, c.contentType(), encoding, hide)
	if got := send(t, tap, pieces); !bytes.Equal(got, want) {
		t.Fatalf("%s: passed on\n%s", what, got)
	}
	if got := tap.Response(); !reflect.DeepEqual(counted(got), c.Want) {
		t.Fatalf("%s:\n%+v, want\n%+v", what, got, c.Want)
	}
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

// frame returns a binary frame of an event.
func frame(t testing.TB, event, payload string) []byte {
	t.Helper()
	var m eventstream.Message
	m.Headers.Set(":event-type", eventstream.StringValue(event))
	m.Headers.Set(":message-type", eventstream.StringValue("event"))
	m.Payload = []byte(payload)
	var b bytes.Buffer
	gatetest.NoError(t, eventstream.NewEncoder().Encode(&b, m))
	return b.Bytes()
}

func TestFrames(t *testing.T) {
	delta := frame(t, "contentBlockDelta", `{"delta":{"text":"Hello"}}`)
	metadata := frame(t, "metadata", `{"usage":{"inputTokens":7,"outputTokens":3,"totalTokens":10}}`)
	long := frame(t, "contentBlockDelta", `{"x":"`+string(bytes.Repeat([]byte("x"), 2<<20))+`"}`)
	damaged := bytes.Clone(delta)
	damaged[len(damaged)-9] ^= 1
	chunk := func(body string) []byte {
		return frame(t, "chunk", fmt.Sprintf(`{"bytes":%q,"p":"abcdef"}`,
			base64.StdEncoding.EncodeToString([]byte(body))))
	}
	usage := wire.Usage{Input: 7, Output: 3}
	for _, c := range []struct {
		name   string
		format *wire.Format
		body   []byte
		want   wire.Response
	}{
		{"whole", wire.BedrockConverse, slices.Concat(delta, metadata),
			wire.Response{Usage: usage, Known: true, InputKnown: true, Complete: true, Events: 1, TextBytes: 5}},
		{"cut", wire.BedrockConverse, slices.Concat(delta, metadata[:len(metadata)-1]),
			wire.Response{Events: 1, TextBytes: 5}},
		{"damaged", wire.BedrockConverse, slices.Concat(damaged, metadata),
			wire.Response{Usage: usage, Known: true, InputKnown: true, Complete: true, Broken: true}},
		{"too long to hold", wire.BedrockConverse, slices.Concat(delta, long, metadata),
			wire.Response{Broken: true, Events: 1, TextBytes: 5}},
		{"of a model's own format", wire.BedrockInvoke, slices.Concat(
			chunk(`{"type":"message_start","message":{"usage":{"input_tokens":7,"output_tokens":1}}}`),
			chunk(`{"type":"content_block_delta","delta":{"type":"text_delta","text":"Hello"}}`),
			chunk(`{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":3}}`),
			chunk(`{"type":"message_stop","amazon-bedrock-invocationMetrics":{"inputTokenCount":7,`+
				`"outputTokenCount":3,"cacheReadInputTokenCount":5}}`)),
			wire.Response{
				Usage: wire.Usage{Input: 7, CacheRead: 5, Output: 3}, Known: true, InputKnown: true,
				Complete: true, Events: 1, TextBytes: 5,
			}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, size := range []int{len(c.body), 1000, 7} {
				tap := newTap(c.format, "application/vnd.amazon.eventstream", "", false)
				pieces := slices.Collect(slices.Chunk(c.body, size))
				if got := send(t, tap, pieces); !bytes.Equal(got, c.body) {
					t.Errorf("in pieces of %d: passed on %d bytes", size, len(got))
				}
				got := counted(tap.Response())
				if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", c.want) {
					t.Errorf("in pieces of %d:\n%+v, want\n%+v", size, got, c.want)
				}
			}
		})
	}
}

// A stream of any framing can be ended between two of its parts, and what ends it is read back as
// an error.
func TestErrorEventOfEveryFormat(t *testing.T) {
	const body = `{"type":"x"}`
	for _, format := range wire.Formats {
		part := []byte("data: " + body + "\n\n")
		switch format.Errors() {
		case wire.ErrorsAmazon:
			part = frame(t, "x", body)
		case wire.ErrorsOllama:
			if format == wire.OllamaEmbed {
				continue // which streams nothing
			}
			part = []byte(body + "\n")
		}
		for i, cut := range []int{0, 1, 5, len(part) - 1} {
			tap := newTap(format, "", "", false)
			whole := append(bytes.Clone(part), part...)
			gatetest.Must(tap.Write(whole[:len(part)+cut], false, nil))(t)
			gatetest.Equal(t, tap.Between(), cut == 0, "%v, cut at %d: between is", format, cut)
			rest := whole[len(part)+cut:]
			if n, err := tap.Write(append(bytes.Clone(rest), part...), true, nil); n != len(rest) || err != nil {
				t.Errorf("%v, cut at %d: the rest is %d bytes, %v, want %d", format, cut, n, err, len(rest))
			}
			message := []string{"No more.", "\r\n\n", "\xff\u2028</script>", strings.Repeat("x", 100_000)}[i]
			gatetest.Must(tap.Write(tap.ErrorEvent("rate_limit_exceeded", message), false, nil))(t)
			if o := tap.Response(); !o.Failed || o.Broken {
				t.Errorf("%v: read back as %+v", format, o)
			}
		}
	}
}
