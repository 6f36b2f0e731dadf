package wire_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/llm/internal/wire"
)

const deltaEvent = `data: {"id":"chatcmpl-B9MHDbslfkBeAs8l4bebGdFOJ6PeG",` +
	`"object":"chat.completion.chunk","created":1741570283,` +
	`"model":"gpt-4o-2024-08-06","service_tier":"default","system_fingerprint":"fp_44709d6fcb","choices":[{"index":0,` +
	`"delta":{"content":" Hello"},"logprobs":null,"finish_reason":null}],"usage":null,"obfuscation":"aV9xQ"}` + "\n\n"

const usageEvent = `data: {"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":2}}` + "\n\n"

func stream(hide bool) *wire.Tap { return newTap(wire.OpenAIChat, "text/event-stream", "", hide) }

// TestWritePassesOnFirst also shows that an event is passed on before it is complete.
func TestWritePassesOnFirst(t *testing.T) {
	tap := stream(false)
	for _, piece := range []string{deltaEvent[:50], deltaEvent[50:], usageEvent} {
		before := tap.Response()
		called := false
		_, err := tap.Write([]byte(piece), false, func(p []byte) error {
			called = true
			gatetest.Equal(t, string(p), piece, "passed on %q", p)
			if got := tap.Response(); !reflect.DeepEqual(got, before) {
				t.Errorf("%+v was read before the bytes were passed on", got)
			}
			return nil
		})
		if err != nil || !called {
			t.Errorf("called %v, %v", called, err)
		}
	}
}

func TestHideHoldsBackOneEvent(t *testing.T) {
	var out bytes.Buffer
	take := func(p []byte) error { out.Write(p); return nil }
	tap := stream(true)
	for _, c := range []struct{ write, want string }{
		{deltaEvent[:40], ""},
		{deltaEvent[40:] + ": ping\n\n" + usageEvent[:9], deltaEvent + ": ping\n\n"},
		{usageEvent[9:], ""},
		{usageEvent + "data: [DONE]\n\n", "data: [DONE]\n\n"},
		{": ", ""},
	} {
		out.Reset()
		gatetest.Must(tap.Write([]byte(c.write), false, take))(t)
		gatetest.Equal(t, out.String(), c.want, "after %q", c.write)
		if !tap.Between() {
			t.Errorf("after %q: not between two events", c.write)
		}
	}
	out.Reset()
	if err := tap.Close(true, take); err != nil || out.String() != ": " {
		t.Errorf("closed with %q, %v", out.String(), err)
	}
	if err := tap.Close(true, take); err != nil || out.String() != ": " {
		t.Errorf("closed again with %q, %v", out.String(), err)
	}
}

func TestOnlyTheUsageChunkIsHidden(t *testing.T) {
	pad := func(n int) string {
		return `data: {"x":"` + strings.Repeat("x", n) + `","choices":[],"usage":{}}` + "\n\n"
	}
	longest := wire.MaxHeld - len(pad(0))
	for _, c := range []struct {
		name, event string
		hidden      bool
	}{
		{"usage chunk", usageEvent, true},
		{"without its blank line", strings.TrimSpace(usageEvent), true},
		{"in two data lines", "data: {\"choices\":[],\ndata: \"usage\":{}}\n\n", true},
		{"as long as it may be", pad(longest), true},
		{"longer", pad(longest + 1), false},
		{"usage with a choice", `data: {"choices":[{}],"usage":{}}` + "\n\n", false},
		{"usage with a strange choice", `data: {"choices":[1],"usage":{}}` + "\n\n", false},
		{"no choices", `data: {"usage":{}}` + "\n\n", false},
		{"no usage", `data: {"choices":[],"usage":null}` + "\n\n", false},
		{"usage with an error", `data: {"choices":[],"usage":{},"error":{}}` + "\n\n", false},
		{"malformed", `data: {"choices":[],"usage":{}` + "\n\n", false},
		{"no data", `event: {"choices":[],"usage":{}}` + "\n\n", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			want := c.event
			if c.hidden {
				want = ""
			}
			for _, before := range []string{"", deltaEvent} {
				whole := []byte(before + c.event)
				for i, pieces := range [][][]byte{{whole}, slices.Collect(slices.Chunk(whole, 1+len(whole)/4000))} {
					if got := string(send(t, stream(true), pieces)); got != before+want {
						t.Errorf("split %d: passed on %d bytes, want %d", i, len(got),
							len(before+want))
					}
				}
			}
		})
	}
	for _, f := range []*wire.Format{wire.OpenAIResponses, wire.AnthropicMessages} {
		if got := send(t, newTap(f, "text/event-stream", "", true), [][]byte{[]byte(usageEvent)}); len(got) == 0 {
			t.Errorf("%v: hidden", f)
		}
	}
	document := newTap(wire.OpenAIChat, "application/json", "", true)
	if got := send(t, document, [][]byte{[]byte(usageEvent[6:])}); len(got) == 0 {
		t.Error("document: hidden")
	}
}

func TestLongEventIsNotBetween(t *testing.T) {
	tap := stream(true)
	gatetest.Must(tap.Write([]byte("data: "+strings.Repeat("x", wire.MaxHeld)), false, nil))(t)
	if tap.Between() {
		t.Error("between two events inside a long one")
	}
}

func TestWriteReadsOnAfterAnError(t *testing.T) {
	gone := errors.New("client is gone")
	for _, hide := range []bool{false, true} {
		tap := stream(hide)
		calls := 0
		body := []byte(deltaEvent + usageEvent + deltaEvent + "data: [DONE]\n\n")
		_, err := tap.Write(body, false, func([]byte) error { calls++; return gone })
		if !errors.Is(err, gone) || calls != 1 {
			t.Errorf("hide %v: %v after %d calls", hide, err, calls)
		}
		if got := tap.Response(); !got.Known || !got.Complete || got.Events != 2 {
			t.Errorf("hide %v: %+v", hide, got)
		}
		gatetest.Worked(t, tap.Close(true, nil))
	}
}

func TestSeenOutputCountsUnfinishedText(t *testing.T) {
	tap := stream(false)
	for _, c := range []struct {
		write string
		want  int64
	}{
		{"", 0}, {`data: {"choices":[{"delta":{"content":"`, 0}, {"a", 1}, {"bcdefghi", 3},
		{`"}}]}`, 3}, {"\n\n", 3},
		{deltaEvent, 4}, {deltaEvent, 6}, {usageEvent, 6},
		{`data: {"choices":[{"delta":{"reasoning_content":"12345678","reasoning":"1234`, 8}, // vLLM writes both
		{`5678"}}]}` + "\n\n", 8}, {`data: {"choices":[{"delta":{"reasoning":"1234"}}]}` + "\n\n", 9},
		{`data: {"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":40}}` + "\n\n", 40},
	} {
		gatetest.Must(tap.Write([]byte(c.write), false, nil))(t)
		o := tap.Response()
		gatetest.Equal(t, max(o.TextTokens(), o.Usage.Output), c.want, "after %q", c.write)
	}
}

func TestEncodedResponses(t *testing.T) {
	body := []byte(deltaEvent + usageEvent + "data: [DONE]\n\n")
	zipped := gzipped(t, body)
	damaged := bytes.Clone(zipped)
	damaged[len(damaged)-6] ^= 1 // in its checksum
	spoilt := gzipped(t, []byte(deltaEvent+strings.TrimSpace(usageEvent)))
	spoilt[len(spoilt)-6] ^= 1
	known := wire.Response{
		Usage: wire.Usage{Input: 5, Output: 2}, Known: true, InputKnown: true,
		Events: 1, TextBytes: 6, Complete: true,
	}
	for _, c := range []struct {
		name, encoding string
		body           []byte
		want           func(wire.Response) bool
	}{
		{"identity", "identity", body, func(o wire.Response) bool { return reflect.DeepEqual(counted(o), known) }},
		{"gzip", "GZIP", zipped, func(o wire.Response) bool { return reflect.DeepEqual(counted(o), known) }},
		{"two members", "x-gzip", append(gzipped(t, body[:100]), gzipped(t, body[100:])...),
			func(o wire.Response) bool { return reflect.DeepEqual(counted(o), known) }},
		{"wrong checksum", "gzip", damaged,
			func(o wire.Response) bool { return !o.Known && o.Broken }},
		{"wrong checksum behind an unfinished event", "gzip", spoilt,
			func(o wire.Response) bool { return !o.Known && o.Broken && o.Events == 1 }},
		{"no gzip", "gzip", body, func(o wire.Response) bool { return !o.Known && o.Broken }},
		{"gzip cut off", "gzip", zipped[:len(zipped)/2],
			func(o wire.Response) bool { return !o.Known && !o.Broken && !o.Complete }},
		{"empty gzip", "gzip", nil, func(o wire.Response) bool { return reflect.DeepEqual(o, wire.Response{}) }},
		{"unread", "br", body, func(o wire.Response) bool { return reflect.DeepEqual(o, wire.Response{}) }},
		{"two encodings", "gzip, gzip", zipped,
			func(o wire.Response) bool { return reflect.DeepEqual(o, wire.Response{}) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			defer goleak.VerifyNone(t)
			for _, pieces := range [][][]byte{{c.body}, bytewise(c.body)} {
				tap := newTap(wire.OpenAIChat, "text/event-stream", c.encoding, false)
				if got := send(t, tap, pieces); !bytes.Equal(got, c.body) {
					t.Errorf("passed on %q", got)
				}
				if got := tap.Response(); !c.want(got) {
					t.Errorf("%+v", got)
				}
				if c.encoding != "identity" && tap.Between() {
					t.Error("between two events of an encoded stream")
				}
			}
		})
	}
}

// A flushed part of a gzip stream is read before the rest has come.
func TestFlushedGzipIsReadAtOnce(t *testing.T) {
	defer goleak.VerifyNone(t)
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	tap := newTap(wire.OpenAIChat, "text/event-stream", "gzip", true)
	for range 2 {
		gatetest.Must(w.Write([]byte(deltaEvent)))(t)
		gatetest.NoError(t, w.Flush())
	}
	gatetest.Must(tap.Write(b.Bytes(), false, nil))(t)
	for tap.Response().Events < 2 { // the goroutine has the bytes, and nothing else holds it up
		runtime.Gosched()
	}
	gatetest.NoError(t, tap.Close(true, nil))
	gatetest.Must(tap.Write(b.Bytes(), false, nil))(t)
}

func TestTapMemoryIsBounded(t *testing.T) {
	total := 4 << 20
	if gatetest.Long() {
		total = 20 << 20
	}
	piece := bytes.Repeat([]byte("abcdefgh"), 512)
	for _, c := range []struct {
		name, contentType, encoding, begin, end string
		hide                                    bool
		piece                                   []byte
	}{
		{"one event", "text/event-stream", "", `data: {"choices":[{"delta":{"content":"`, `"}}]}` +
			"\n\n", false, piece},
		{"one hidden event", "text/event-stream", "", `data: {"choices":[],"usage":{},"x":"`, `"}` +
			"\n\n", true, piece},
		{"one line", "text/event-stream", "", ``, "\n\n", false, piece},
		{"many events", "text/event-stream", "", "", "", true, []byte(deltaEvent)},
		{"one document", "application/json", "", `{"choices":[{"message":{"content":"`, `"}}]}`,
			false, piece},
		{"one key", "application/json", "", `{"`, `":1}`, false, piece},
		{"one number", "application/json", "", `{"usage":{"prompt_tokens":`, `}}`, false,
			bytes.Repeat([]byte("1"), 4096)},
		{"many usages", "application/json", "", `[`, `0]`, false,
			[]byte(`{"usage":{"prompt_tokens":1}},`)},
		{"deep", "application/json", "", ``, ``, false, bytes.Repeat([]byte("["), 4096)},
		{"inflated", "text/event-stream", "gzip", "", "", false,
			gzipped(t, append([]byte("data: {\"x\":\""), bytes.Repeat([]byte("x"), total)...))},
	} {
		t.Run(c.name, func(t *testing.T) {
			tap := newTap(wire.OpenAIChat, c.contentType, c.encoding, c.hide)
			size := 0
			out := func(p []byte) error { size += len(p); return nil }
			write := func(p []byte) {
				gatetest.Must(tap.Write(p, false, out))(t)
			}
			write([]byte(c.begin))
			before := allocated()
			written := 0
			for ; written < total; written += len(c.piece) {
				if write(c.piece); c.encoding != "" { // which is of that length inflated
					written += len(c.piece)
					break
				}
			}
			grown := allocated() - before
			write([]byte(c.end))
			gatetest.NoError(t, tap.Close(true, out))
			// Append may grow what is held back in steps, and the sum of the steps is allocated.
			most := uint64(64 << 10)
			if c.hide {
				most = 8 * wire.MaxHeld
			}
			if c.encoding != "" { // which another goroutine inflates until Close
				grown, most = allocated()-before, 128<<10
			}
			if grown > most {
				t.Errorf("%d bytes allocated for %d", grown, written)
			}
			gatetest.Equal(t, size, (written + len(c.begin) + len(c.end)), "bytes passed on")
		})
	}
}

// allocated returns how many bytes the process has ever allocated: a bound on what it keeps.
func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}

// The race detector judges this test.
func TestResultWhileWriting(t *testing.T) {
	for _, encoding := range []string{"", "gzip"} {
		for _, hide := range []bool{false, true} {
			tap := newTap(wire.OpenAIChat, "text/event-stream", encoding, hide)
			body := []byte(strings.Repeat(deltaEvent, 50) + usageEvent)
			if encoding != "" {
				body = gzipped(t, body)
			}
			stop, done := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(done)
				for last := int64(0); ; {
					o := tap.Response()
					seen := o.TextTokens()
					if seen < last {
						t.Errorf("%d tokens after %d", seen, last)
					}
					last = seen
					_ = tap.ErrorEvent("x", "y")
					select {
					case <-stop:
						return
					default:
					}
				}
			}()
			send(t, tap, bytewise(body))
			close(stop)
			<-done
			if got := tap.Response(); !got.Known || got.Events != 50 {
				t.Errorf("encoding %q, hide %v: %+v", encoding, hide, got)
			}
		}
	}
}

func TestOrdinaryEventAllocatesNothing(t *testing.T) {
	for _, c := range transcripts(t) {
		if c.contentType() == "application/json" {
			continue
		}
		for _, hide := range []bool{false, true} {
			tap := newTap(c.format, c.contentType(), "", hide)
			out := func([]byte) error { return nil }
			body := c.read(t)
			half := len(body) / 2
			write := func() {
				_, _ = tap.Write(body[:half], false, out)
				_, _ = tap.Write(body[half:], false, out)
			}
			write()
			gatetest.Equal(t, testing.AllocsPerRun(100, write), 0, "%s, hide %v: allocations", c.File, hide)
		}
	}
}
