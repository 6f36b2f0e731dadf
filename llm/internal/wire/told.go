package wire

import "github.com/headgate/headgate/llm/internal/jsonscan"

// Roles in a response. None has the number of one in a request.
const (
	_                jsonscan.Role = readSourceData + iota
	tellDocument                   // an element of an array of documents
	tellText                       // strings are text that the model wrote; see texts
	tellThought                    // the same, of reasoning
	tellThoughtAgain               // reasoning under another name
	tellType                       // the type of the event
	tellModel                      // that served
	tellSequence                   // the number of the event
	tellError                      // anything other than null
	tellErrorCode                  // a number other than 0
	tellChoices                    // the array of choices
	tellChoice                     // one of them
	tellFinish                     // a string says that the choice has ended
	tellStop                       // the reason: refusal
	tellDone                       // true: the end
	tellObject                     // error: vLLM's old word for a failure
	tellUsage                      // the object of a usage at the top
	tellLabel                      // a string that decides the price
	tellUnit                       // a number of pieces
	tellMilli                      // a number whose thousandth parts are pieces
	tellMilliElse                  // the same, if neither that piece nor tokens are stated
	tellQuery                      // a search, the same one twice is one
	tellHas                        // an object that is one piece, however many there are
	tellCalls                      // a number of calls of all tools that the server runs
	tellCallIndex                  // the place of one of them, from 0 on
	tellDraws                      // the model of a tool that draws
	tellCost                       // dollars
	tellUpstream                   // dollars that come on top if tellOwnKey is true
	tellOwnKey
	tellTicks // 10^10 are a dollar

	tellDetail // an object with numbers of its own; its name says of what
	tellDetailKind
	tellDetailModel
	tellDetailCount
	tellAction    // of a tool, such as search
	tellContainer // that a tool ran in
	tellItems     // the array of all items
	tellNamed     // says nothing of the price that other numbers do not say
	tellUnnamed   // a number that no path of the table names
	tellUnread    // a string that may be billed, nobody knows how

	tellNumbers // the first of the numbers of a usage; see count
)

// told has the meanings of a response.
var told = map[string]jsonscan.Role{
	"text":             tellText,
	"thought":          tellThought,
	"thought_again":    tellThoughtAgain,
	"type":             tellType,
	"model":            tellModel,
	"sequence":         tellSequence,
	"error":            tellError,
	"error_code":       tellErrorCode,
	"choices":          tellChoices,
	"choice":           tellChoice,
	"finish":           tellFinish,
	"stop":             tellStop,
	"done":             tellDone,
	"object":           tellObject,
	"usage":            tellUsage,
	"label:":           tellLabel,
	"unit:":            tellUnit,
	"milli:":           tellMilli,
	"milli_else:":      tellMilliElse,
	"query":            tellQuery,
	"has:":             tellHas,
	"calls":            tellCalls,
	"call_index":       tellCallIndex,
	"draws":            tellDraws,
	"cost":             tellCost,
	"cost_upstream":    tellUpstream,
	"cost_own_key":     tellOwnKey,
	"cost_ticks":       tellTicks,
	"detail:":          tellDetail,
	"detail_kind":      tellDetailKind,
	"detail_model":     tellDetailModel,
	"detail_count":     tellDetailCount,
	"detail_action":    tellAction,
	"detail_container": tellContainer,
	"items":            tellItems,
	"named":            tellNamed,
	"unnamed":          tellUnnamed,
	"unread:":          tellUnread,

	"input":             numberRole(inputCount),
	"input_beside":      numberRole(besideInputCount),
	"output":            numberRole(outputCount),
	"input_else":        numberRole(elseInputCount),
	"cache_read_else":   numberRole(elseReadCount),
	"output_else":       numberRole(elseOutputCount),
	"total":             numberRole(totalCount),
	"cache_read":        numberRole(readCount),
	"cache_write":       numberRole(writeCount),
	"cache_create":      numberRole(createCount),
	"cache_write_short": numberRole(shortCount),
	"cache_write_long":  numberRole(longCount),
	"audio_in":          numberRole(audioInCount),
	"image_in":          numberRole(imageInCount),
	"audio_read":        numberRole(audioReadCount),
	"image_read":        numberRole(imageReadCount),
	"audio_out":         numberRole(audioOutCount),
	"image_out":         numberRole(imageOutCount),
	"text_out":          numberRole(textOutCount),
	"reasoning":         numberRole(reasoningCount),
	"reasoning_beside":  numberRole(besideReasoningCount),
	"reasoning_flat":    numberRole(flatReasoningCount),
}

func numberRole(c count) jsonscan.Role { return tellNumbers + jsonscan.Role(c) }

// usagePlaces are the objects in which servers state a usage, and nowhere deeper: what stands in
// other places repeats it.
const usagePlaces = "{,response.,message.,delta.,metadata.,meta.,choices[].,x_groq.}usage"

// The parts of the input and of the output.
const (
	inDetails  = "prompt_tokens_details,input_tokens_details,prompt_token_details,input_token_details"
	outDetails = "completion_tokens_details,output_tokens_details"
)

// numbersAt has the names of the numbers that servers of OpenAI's and Anthropic's formats state in
// a usage at some paths.
func numbersAt(at string) map[string]string {
	in, out := at+".{"+inDetails+"}", at+".{"+outDetails+"}"
	written := "{" + in + "," + at + "}.{cache_creation,cache_creation_token_details}"
	return map[string]string{
		"input":        at + ".{prompt_tokens,input_tokens}",
		"input_beside": at + ".connector_tokens", // Mistral's, of what its tools have read
		"cache_read": in + ".{cached_tokens,cache_read_input_tokens} " + // DeepSeek's hits are the same tokens
			at + ".{cached_tokens,num_cached_tokens,prompt_cache_hit_tokens,cache_read_input_tokens}",
		"cache_write": in + ".cache_write_tokens",
		"cache_create": in + ".{cache_creation_input_tokens,cache_creation_tokens," +
			"cached_creation_tokens} " + // the last one is new-api's, as claude_* are
			at + ".cache_creation_input_tokens",
		"cache_write_short": in + ".cache_write_tokens_details.ttl_30m_tokens " +
			written + ".ephemeral_5m_input_tokens " + at + ".claude_cache_creation_5_m_tokens",
		"cache_write_long": in + ".cache_write_tokens_details.ttl_12h_tokens " +
			written + ".ephemeral_1h_input_tokens " + at + ".claude_cache_creation_1_h_tokens",
		"audio_in":       in + ".audio_tokens",
		"audio_read":     in + ".cached_tokens_details.audio_tokens",
		"image_read":     in + ".cached_tokens_details.image_tokens",
		"image_in":       in + ".image_tokens",
		"output":         at + ".{completion_tokens,output_tokens}",
		"audio_out":      out + ".audio_tokens",
		"image_out":      out + ".image_tokens",
		"text_out":       out + ".text_tokens",
		"reasoning":      out + ".{reasoning_tokens,thinking_tokens}",
		"reasoning_flat": at + ".reasoning_tokens",
		"total":          at + ".total_tokens",
	}
}

// usageAt has the numbers of a usage at some paths, and what else those servers state of the price.
func usageAt(at string) map[string]string {
	calls := at + ".server_side_tool_usage_details" // xAI's
	return with(numbersAt(at), map[string]string{
		"model": "{,response.,message.}model",

		"unit:web_search": at + ".{server_tool_use,server_tool_use_details," +
			"prompt_tokens_details}.web_search_requests " + // the last one is LiteLLM's
			at + ".{num_search_queries,connectors.web_search,tool_usage.web_search," + // the last is Ark's
			"plugins.search.count,x_tools.web_search.count} " + // Qwen's in chats and in responses
			calls + ".web_search_calls",
		"unit:maps_query":      at + ".prompt_tokens_details.google_maps_grounding_requests", // LiteLLM's
		"unit:web_fetch":       at + ".server_tool_use.web_fetch_requests",
		"unit:x_search":        calls + ".x_search_calls",
		"unit:x_post":          calls + ".x_posts_fetched", // billed in place of searches since September 2026
		"unit:x_user":          calls + ".x_users_fetched",
		"unit:source":          at + ".num_sources_used", // of xAI's old search
		"milli:audio_ms":       at + ".prompt_audio_seconds",
		"unit:file_search":     calls + ".file_search_calls",
		"unit:document_search": calls + ".document_search_calls",
		"unit:code_interpreter": calls + ".code_interpreter_calls " + at +
			".{connectors.code_interpreter,x_tools.code_interpreter.count}",
		"unit:image_generation": calls + ".image_generation_calls",
		"unit:citation_tokens":  at + ".citation_tokens",
		"unit:mcp":              calls + ".mcp_calls " + at + ".tool_usage.mcp",
		"calls": at + ".{server_tool_use_details.tool_calls_executed," +
			"num_server_side_tools_used}", // OpenRouter's and xAI's

		"label:service_tier": "{,response.}service_tier " + at + ".service_tier",
		"label:speed":        at + ".speed",
		"label:geo":          at + ".inference_geo",

		"cost":          at + ".{cost,cost.total_cost,estimated_cost}", // the last one is DeepInfra's
		"cost_upstream": at + ".cost_details.upstream_inference_cost",
		"cost_own_key":  at + ".is_byok",
		"cost_ticks":    at + ".cost_in_usd_ticks",

		"unnamed": at + ".**",
		// Parts of other numbers, times, bills, and what repeats a usage.
		"named": at + ".{" + inDetails + "}.{text_tokens,video_tokens,cached_tokens_details.text_tokens} " +
			at + ".{" + outDetails + "}.{accepted_prediction_tokens,rejected_prediction_tokens} " +
			at + ".{queue_time,prompt_time,completion_time,total_time,prompt_cache_miss_tokens," +
			"time_to_first_token,start_time,end_time,total_latency,total_tokens_per_sec,acceptance_rate," +
			"completion_tokens_per_sec,completion_tokens_after_first_per_sec," +
			"completion_tokens_after_first_per_sec_first_ten,completion_tokens_after_first_per_sec_graph," +
			"server_tool_use_details.tool_calls_requested,request_count} " +
			at + ".{cost,cost_details,x_details,context_details,fallback_credit,latency_checkpoint," +
			"tool_usage_details}.**",
	})
}
