package llm_test

import (
	"cmp"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/llm"
)

// answered is a response of testdata/responses.json, and what a Meter must read of it: from public
// reports and recordings, in formats and framings that the cases do not have, with numbers that no
// table names, and with numbers that are none.
type answered struct {
	Name, Path, Type string
	Ask              json.RawMessage
	Headers          []string
	Body             json.RawMessage   // a document, or a string of another text
	Events           []json.RawMessage // of a stream
	Outcome          string            // reported if it is empty
	Usage, Estimate  caseTokens
	Units            map[string]int64
	Pico             int64    // of the stated cost
	Unread           []string // in the event, and in Unknown if a price is asked for
	Hidden           bool     // the client is not shown the usage
}

// text returns a JSON string as what it says, and all other JSON as it is.
func text(raw json.RawMessage) string {
	var said string
	if json.Unmarshal(raw, &said) != nil {
		return string(raw)
	}
	return said
}

func (c *answered) body() string {
	if c.Events == nil {
		return text(c.Body)
	}
	var all []string
	for _, event := range c.Events {
		all = append(all, text(event))
	}
	return sseOf(all...)
}

// sseOf returns an event stream with these data.
func sseOf(data ...string) string { return "data: " + strings.Join(data, "\n\ndata: ") + "\n\n" }

// sent is a handler that sends a response in one piece.
func sent(contentType, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if contentType != "" {
			w.Header().Set("Content-Type", contentType)
		}
		_, _ = io.WriteString(w, body)
	}
}

// The estimate of most requests is an input of 2 and an output of 50.
const askOf50 = `{"model":"m","max_tokens":50,"max_output_tokens":50,"messages":[{"content":"abcdefgh"}],"query":"abcdefgh"}`

func TestResponses(t *testing.T) {
	var all []answered
	decode(t, filepath.Join("testdata", "responses.json"), &all)
	for _, c := range all {
		t.Run(c.Name, func(t *testing.T) {
			money := policy("money", core.UnitMicroDollars, 1e12)
			r := newRig(t, core.UnitTokens, 1_000_000, func(cfg *llm.Config) {
				cfg.Budgets = append(cfg.Budgets, llm.Budget{Policy: money, Key: tenant})
				cfg.Models = map[string]llm.Model{"m": {Tariff: llm.Tariff{
					Price: each, Units: map[string]int64{"web_search": 1000, "mcp": llm.Free},
				}}}
			})
			r.answer = func(w http.ResponseWriter, q *http.Request) {
				for _, line := range c.Headers {
					name, value, _ := strings.Cut(line, ": ")
					w.Header().Set(name, value)
				}
				sent(c.Type, c.body())(w, q)
			}
			body := read(t, r.post(c.Path, cmp.Or(string(c.Ask), askOf50)))
			if whole := body == c.body(); whole == c.Hidden || c.Hidden && strings.Contains(body, "_tokens") {
				t.Errorf("the client was sent %s", body)
			}
			got := <-r.reports
			want := c.Usage.usage(c.Usage.of("reasoning"))
			if got.Outcome.String() != cmp.Or(c.Outcome, "reported") || got.Usage != want || r.used() != want.Total() {
				t.Errorf("%v with %+v, %d used, want %s with %+v", got.Outcome, got.Usage, r.used(), c.Outcome, want)
			}
			if !maps.Equal(got.Units, c.Units) || got.Stated.Pico != c.Pico || got.Request.Model != "m" {
				t.Errorf("%v, %+v of %s, want %v, %d", got.Units, got.Stated, got.Request.Model, c.Units, c.Pico)
			}
			if c.Estimate != nil && got.Estimate != c.Estimate.usage(0) {
				t.Errorf("an estimate of %+v, want %v", got.Estimate, c.Estimate)
			}
			if !slices.Equal(got.Unread, c.Unread) || c.Unread != nil && !slices.Equal(got.Unknown, c.Unread) {
				t.Errorf("unread %q, unknown %q, want %q", got.Unread, got.Unknown, c.Unread)
			}
		})
	}
}
