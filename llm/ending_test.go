package llm_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/llm"
)

// A stream that has told its usage goes on to its end, although a running charge was denied before.
func TestAnsweredStreamIsWhole(t *testing.T) {
	const usage = `data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":20}}` + "\n\n"
	for cut := range usage {
		r := newRig(t, core.UnitTokens, 15, func(cfg *llm.Config) {
			cfg.ChargeEvery, cfg.Overrun = 4, llm.OverrunEnd
		})
		all := strings.Repeat(word, 20) + usage + "data: [DONE]\n\n"
		at := 20*len(word) + cut
		r.handle(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprint(w, all[:at])
			fmt.Fprint(w, all[at:])
		})
		body := read(t, r.post(chatPath, small))
		whole := strings.HasSuffix(body, "data: [DONE]\n\n")
		if ended := strings.Contains(body, `"error"`); !whole ||
			strings.Count(body, "word") != 20 && !ended {
			t.Fatalf("cut at %d: the client was sent %s", cut, body[max(0, len(body)-200):])
		}
	}
}

// A long stream has few running charges, so that it takes little memory and ends soon.
func TestLongStreamHasFewCharges(t *testing.T) {
	charges := 0
	r := newRig(t, core.UnitTokens, 1_000_000, func(cfg *llm.Config) {
		cfg.ChargeEvery = 32
		budget := cfg.Budgets[0].Key
		cfg.Budgets[0].Key = func(r *http.Request) (string, error) {
			charges++ // the key is derived for each charge
			return budget(r)
		}
	})
	r.handle(events(20_000, func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":20000}}`+
			"\n\ndata: [DONE]\n\n")
	}))
	read(t, r.post(chatPath, small))
	r.want(llm.OutcomeReported, llm.Usage{Input: 3, Output: 20_000}, 20_003)
	if charges > 25 {
		t.Errorf("%d charges", charges)
	}
}

// Of an encoding that the Meter cannot read, a client can ask for none.
func TestClientChoosesNoUnreadEncoding(t *testing.T) {
	for accepts, want := range map[string]string{
		"br": "identity", "zstd, br": "identity", "gzip;q=0, br": "identity", "br, gzip;q=0.5": "gzip", "": "identity",
	} {
		r := newRig(t, core.UnitTokens, 1000, nil)
		var asked string
		r.handle(func(w http.ResponseWriter, q *http.Request) {
			asked = q.Header.Get("Accept-Encoding")
			chat(1, 1)(w, q)
		})
		read(t, r.post(messagesPath, `{"model":"m","max_tokens":5}`, "Accept-Encoding", accepts))
		if asked != want {
			t.Errorf("%q: the server was asked for %q, want %q", accepts, asked, want)
		}
	}
}
