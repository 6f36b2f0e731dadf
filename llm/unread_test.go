package llm_test

import (
	"strings"
	"testing"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/llm"
)

// A server that invents keys fills no memory.
func TestUnreadIsBounded(t *testing.T) {
	r := newRig(t, core.UnitTokens, 1e9, nil)
	var b strings.Builder
	for c := 'a'; c <= 'z'; c++ {
		b.WriteString(`,"` + strings.Repeat(string(c), 200) + `":1`)
	}
	r.answer = sent("", `{"usage":{"prompt_tokens":2,"completion_tokens":3`+b.String()+`}}`)
	read(t, r.post(chatPath, `{"model":"m"}`))
	report := <-r.reports
	if len(report.Unread) != 16 || len(report.Unread[0]) > 64 || report.Outcome != llm.OutcomeReported {
		t.Errorf("%v %q", report.Outcome, report.Unread)
	}
}
