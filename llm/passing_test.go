package llm_test

import (
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/llm"
)

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
