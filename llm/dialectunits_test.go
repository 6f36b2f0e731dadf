package llm_test

import (
	"fmt"
	"maps"
	"net/http"
	"testing"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/llm"
)

// Every format in which servers of OpenAI's dialects state pieces reads all of their names.
func TestEveryFormatReadsThePiecesOfEveryDialect(t *testing.T) {
	pieces := map[string]map[string]int64{
		`"server_tool_use":{"web_search_requests":2}`:                         {"web_search": 2},
		`"server_tool_use_details":{"web_search_requests":2}`:                 {"web_search": 2},
		`"server_tool_use":{"web_fetch_requests":2}`:                          {"web_fetch": 2},
		`"num_search_queries":2`:                                              {"web_search": 2},
		`"num_sources_used":2`:                                                {"source": 2},
		`"citation_tokens":2`:                                                 {"citation_tokens": 2},
		`"prompt_audio_seconds":2`:                                            {"audio_ms": 2000},
		`"server_side_tool_usage_details":{"web_search_calls":2}`:             {"web_search": 2},
		`"server_side_tool_usage_details":{"x_search_calls":2}`:               {"x_search": 2},
		`"server_side_tool_usage_details":{"file_search_calls":2}`:            {"file_search": 2},
		`"server_side_tool_usage_details":{"document_search_calls":2}`:        {"document_search": 2},
		`"server_side_tool_usage_details":{"code_interpreter_calls":2}`:       {"code_interpreter": 2},
		`"server_side_tool_usage_details":{"image_generation_calls":2}`:       {"image_generation": 2},
		`"server_tool_use":{"web_search_requests":2},"num_sources_used":3`:    {"web_search": 2, "source": 3},
		`"server_side_tool_usage_details":{"web_search_calls":2},"x":"other"`: {"web_search": 2},
	}
	for path, answer := range map[string]string{
		chatPath:       `{"choices":[{"message":{"content":"w"}}],"usage":{"prompt_tokens":9,"completion_tokens":1,%s}}`,
		"/v1/messages": `{"content":[{"text":"w"}],"usage":{"input_tokens":9,"output_tokens":1,%s}}`,
		"/responses": `{"output":[{"type":"message","content":[{"text":"w"}]}],
			"usage":{"input_tokens":9,"output_tokens":1,%s}}`,
	} {
		for stated, want := range pieces {
			r := newRig(t, core.UnitTokens, 1000, nil)
			r.answer = func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintf(w, answer, stated) }
			read(t, r.post(path, `{"model":"m"}`))
			if report := r.want(llm.OutcomeReported, llm.Usage{Input: 9, Output: 1}, 10); !maps.Equal(report.Units, want) {
				t.Errorf("%s, %s: %v, want %v", path, stated, report.Units, want)
			}
		}
	}
}
