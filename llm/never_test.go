package llm_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/llm"
)

// A budget that a running stream holds is not spent: clients wait for a moment and retry. One that is
// spent is final.
func TestRunningStreamMakesNoNever(t *testing.T) {
	const asked = `{"model":"m","stream":true,"max_tokens":1500,"messages":[]}`
	for _, c := range []struct{ path, held, spent string }{
		{chatPath, "tokens rate_limit_exceeded", "insufficient_quota insufficient_quota"},
		{"/v1/messages", "rate_limit_error ", "rate_limit_error "},
	} {
		t.Run(c.path, func(t *testing.T) {
			eachGate(t, func(t *testing.T, gate *core.Gate) {
				r := newRig(t, core.UnitMicroDollars, 2000, func(cfg *llm.Config) {
					cfg.Guard.Gate = gate
					cfg.Models = map[string]llm.Model{"m": {Tariff: llm.Tariff{Price: llm.Price{Input: 1_000_000, Output: 1_000_000}}}}
				})
				goOn := make(chan struct{})
				r.answer = events(1, func(w http.ResponseWriter, q *http.Request) {
					<-goOn
					if c.path == chatPath {
						chat(1, 1)(w, q)
						return
					}
					_, _ = io.WriteString(w, `data: {"type":"message_start","message":{"usage":{"input_tokens":1,"output_tokens":1}}}`+"\n\n"+
						`data: {"type":"message_delta","usage":{"output_tokens":1}}`+"\n\n"+`data: {"type":"message_stop"}`+"\n\n")
				})
				running := r.post(c.path, asked)
				refused := func(retry, errors string) {
					t.Helper()
					response := r.post(c.path, asked)
					if got := retryHeaders(response.Header); response.StatusCode != 429 || got != retry {
						t.Errorf("%d, %s, want %s", response.StatusCode, got, retry)
					}
					if e := readAPIError(t, response); e.Error.Type+" "+e.Error.Code != errors {
						t.Errorf("%+v", e)
					}
				}
				refused("3, , ", c.held)
				close(goOn)
				read(t, running)
				<-r.reports
				if response := r.post(c.path, asked); response.StatusCode != 200 {
					t.Fatalf("status %d after the stream has ended: %s", response.StatusCode, read(t, response))
				} else {
					read(t, response)
				}
				<-r.reports
				r.spend(1990)
				response := r.post(c.path, asked)
				if e := readAPIError(t, response); response.Header.Get("X-Should-Retry") != "false" || e.Error.Type+" "+e.Error.Code != c.spent {
					t.Errorf("%s, %+v", retryHeaders(response.Header), e)
				}
			})
		})
	}
}

// A stream that outgrows its budget waits in vain for what it holds itself, but not for what others
// hold.
func TestStreamEndsByWhatOthersHold(t *testing.T) {
	for name, c := range map[string]struct {
		spent int64
		code  string
	}{
		"another stream holds the rest": {0, "rate_limit_exceeded"},
		"the rest is spent":             {50, "insufficient_quota"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, core.UnitOutputTokens, 60, func(cfg *llm.Config) {
				cfg.ChargeEvery, cfg.Overrun = 2, llm.OverrunEnd
			})
			goOn := make(chan struct{})
			r.answer = events(1, func(w http.ResponseWriter, q *http.Request) { <-goOn })
			var other *http.Response
			if c.spent == 0 {
				other = r.post(chatPath, streamed) // 50
			} else {
				r.spend(c.spent)
			}
			r.answer = events(30, nil)
			if body := read(t, r.post(chatPath, small)); !strings.Contains(body, `"code":"`+c.code+`"`) {
				t.Errorf("the stream ended with %s", body)
			}
			close(goOn)
			if other != nil {
				read(t, other)
			}
		})
	}
}

// A refusal says whether running requests hold what is missing.
func TestRefusalTellsOfHeldUnits(t *testing.T) {
	r := newRig(t, core.UnitTokens, 100, func(cfg *llm.Config) { cfg.Guard.Dialect = nethttp.Draft11{} })
	goOn := make(chan struct{})
	r.answer = events(1, func(http.ResponseWriter, *http.Request) { <-goOn })
	running := r.post(chatPath, streamed)
	response := r.post(chatPath, streamed)
	if text := read(t, response); !strings.Contains(text, `Running requests hold what the request needs of policy \"budget\".`) ||
		response.Header.Get("Retry-After") != "3" {
		t.Errorf("%s %s", response.Header, text)
	}
	close(goOn)
	read(t, running)
}
