package wire

import (
	"strings"

	"github.com/headgate/headgate/llm/internal/jsonscan"
)

// Roles in a request.
const (
	_       jsonscan.Role = iota
	askBody               // the whole body
	askModel
	askOptions // stream_options
	askUsage   // stream_options.include_usage
	askPrompt  // the name of a stored prompt, which has a model
	askModels  // that may serve instead: strings, and objects that name one
	askStream
	askMaxOutput
	askOtherMaxOutput // of one of the other models
	askChoices
	askLabel      // a string that decides the price
	askImageModel // of a tool that draws images
	askTool       // the type of a tool that the server runs
	askUnit       // an object that asks for a piece
	readText      // strings count
	readTokens    // strings count, and a number is a token
	readRaw       // the JSON counts as it is spelt
	readFile      // a string counts as a file
	readSource    // an object that holds a file, in base64 or as plain text
	readSourceType
	readSourceData

	lastPlace = askUsage // values of roles up to here may be changed
	lastAsk   = askLabel // roles up to here may stand once
)

// asked has the meanings of a request. Of several paths to max_output, the first that is stated
// counts.
var asked = map[string]jsonscan.Role{
	"model":      askModel,
	"models":     askModels,
	"prompt":     askPrompt,
	"stream":     askStream,
	"options":    askOptions,
	"asks_usage": askUsage,
	"max_output": askMaxOutput,

	"other_max_output": askOtherMaxOutput,

	"choices":     askChoices,
	"label:":      askLabel,
	"image_model": askImageModel,
	"tool":        askTool,
	"unit:":       askUnit,
	"text":        readText,
	"tokens":      readTokens,
	"json":        readRaw,
	"file":        readFile,
	"source":      readSource,
	"source_type": readSourceType,
	"source_data": readSourceData,
}

// blocks are the places of the parts of a message: of its content, of a tool's result and of the
// output of a function.
const blocks = "{messages,input,instructions}[].{content[],content[].content[],output[]}."

// conversation is the request of a conversation in OpenAI's and Anthropic's formats. A string
// counts as a file only where a format has files. Elsewhere the model reads it as text, whatever
// its key is.
var conversation = map[string]string{
	"model":   "model",
	"stream":  "stream",
	"text":    "messages.** input.** instructions.** system.** prompt.**",
	"json":    "tools functions response_format text output_format output_config " + blocks + "input",
	"choices": "n",

	"label:service_tier": "service_tier",
	"label:speed":        "speed",
	"label:geo":          "inference_geo",

	"tool": "tools[].type plugins[].id", // the last is OpenRouter's

	"file": blocks + "{image_url,image_url.url,input_audio.data,file.file_data,file.file_id," +
		"file_data,file_url,file_id,source.url,source.file_id} " +
		"{messages,input,instructions}[].{output.image_url,output.image_url.url,output.file_id,result}",
	"source":      blocks + "source",
	"source_type": blocks + "source.type",
	"source_data": blocks + "source.data",
}

// toolUnits are the pieces that tools of servers are billed by, by the beginning of their types.
var toolUnits = map[string]string{
	"web_search": webSearch, "x_search": "x_search", "file_search": "file_search", "shell": "container",
	"code_interpreter": "container", "image_generation": "image_generation",
}

// use notes pieces that a response may be billed for.
func (q *Request) use(unit string, n int64) {
	if q.Units == nil {
		q.Units = make(map[string]int64)
	}
	q.Units[unit] = n
}

// useTool notes the pieces of a tool that the server runs.
func (q *Request) useTool(kind string) {
	for prefix, unit := range toolUnits {
		if strings.HasPrefix(kind, prefix) || kind == "web" && unit == webSearch { // a plugin
			q.use(unit, 1)
		}
	}
}

// A file of sound counts as 32,000 bits a second, and at least as 10 seconds, which is the least that
// servers bill.
const audioUnit, leastAudio, audioBytes = "audio_ms", 10_000, 4

// usePieces notes the pieces by which a format is billed, given the length of the body.
func (q *Request) usePieces(unit string, length int64) {
	switch unit {
	case "":
	case audioUnit:
		q.use(unit, max(leastAudio, length/audioBytes))
	default:
		q.use(unit, q.Choices)
	}
}
