package wire_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

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
func send(t rapid.TB, tap *wire.Tap, pieces [][]byte) []byte {
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

// Transcripts say the same in any pieces, with any line ends, and compressed.
func TestTranscripts(t *testing.T) {
	for _, c := range transcripts(t) {
		t.Run(c.File, func(t *testing.T) {
			original := c.read(t)
			for _, lineEnd := range []string{"\n", "\r\n", "\r"} {
				if lineEnd != "\n" && c.contentType() == "application/json" {
					continue
				}
				body := bytes.ReplaceAll(original, []byte("\n"), []byte(lineEnd))
				for _, hide := range []bool{false, true} {
					want := body
					if hide {
						want = without(body, c.Hidden, lineEnd)
						if c.Hidden != "" && len(want) == len(body) {
							t.Fatal("nothing to hide")
						}
					}
					what := fmt.Sprintf("line end %q, hide %v", lineEnd, hide)
					c.check(t, what+", bytewise", "", hide, bytewise(body), want)
					rapid.Check(t, func(r *rapid.T) { c.check(r, what, "", hide, draw(r, body), want) })
				}
				zipped := gzipped(t, body)
				rapid.Check(t, func(r *rapid.T) { c.check(r, "gzip", "gzip", true, draw(r, zipped), zipped) })
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

func FuzzTap(f *testing.F) {
	for i, c := range transcripts(f) {
		f.Add(c.read(f), uint8(slices.Index(wire.Formats, c.format)), uint16(i*7), c.contentType() != "application/json")
	}
	f.Add([]byte(`{"usage":{}} {`), uint8(0), uint16(1), false)
	f.Add([]byte("\ufeffdata\r\rdata: {\"choices\":[],\ndata:\"usage\":{}}\r\n\r\n:x\n\n"),
		uint8(0), uint16(3), true)
	f.Fuzz(func(t *testing.T, body []byte, format uint8, step uint16, stream bool) {
		c := transcript{File: "x.json"}
		if stream {
			c.File = "x.sse"
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
