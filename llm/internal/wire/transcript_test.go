package wire_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
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
