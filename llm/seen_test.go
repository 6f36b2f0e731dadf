package llm_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/headgate/headgate/core"
)

func TestUnreportedStreamKeepsItsEstimate(t *testing.T) {
	r := newRig(t, core.UnitTokens, 1000, nil)
	words, usage := 10, `{"prompt_tokens":3,"completion_tokens":40}`
	r.answer = func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for range words {
			fmt.Fprint(w,
				"data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"word\"}}]}\n\n")
		}
		fmt.Fprintf(w, "data: {\"choices\":[],\"usage\":%s}\n\ndata: [DONE]\n\n", usage)
	}
	read(t, r.post("/v1/chat/completions", streamed))
	<-r.reports
	words, usage = 30, "null" // 120 tokens by the ratio
	read(t, r.post("/v1/chat/completions", streamed))
	if report := <-r.reports; report.Usage.Output != 40 || report.Estimate.Output != 40 {
		t.Errorf("%+v", report)
	}
}
