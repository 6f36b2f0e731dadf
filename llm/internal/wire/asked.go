package wire

import "github.com/headgate/headgate/llm/internal/jsonscan"

// Roles in a request.
const (
	_       jsonscan.Role = iota
	askBody               // the whole body
	askModel
	askModels // that may serve instead: strings, and objects that name one
	askStream
	askOptions // stream_options
	askUsage   // stream_options.include_usage
	askMaxOutput
	askOtherMaxOutput // of one of the other models
	askChoices
	askLabel      // a string that decides the price
	askImageModel // of a tool that draws images
	readText      // strings count
	readTokens    // strings count, and a number is a token
	readRaw       // the JSON counts as it is spelt
	readFile      // a string counts as a file
	readSource    // an object that holds a file, in base64 or as plain text
	readSourceType
	readSourceData

	lastAsk = askLabel // roles up to here may stand once
)

// asked has the meanings of a request. Of several paths to max_output, the first that is stated
// counts.
var asked = map[string]jsonscan.Role{
	"model":      askModel,
	"models":     askModels,
	"stream":     askStream,
	"options":    askOptions,
	"asks_usage": askUsage,
	"max_output": askMaxOutput,

	"other_max_output": askOtherMaxOutput,

	"choices":     askChoices,
	"label:":      askLabel,
	"image_model": askImageModel,
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

	"file": blocks + "{image_url,image_url.url,input_audio.data,file.file_data,file.file_id," +
		"file_data,file_url,file_id,source.url,source.file_id} " +
		"{messages,input,instructions}[].{output.image_url,output.image_url.url,output.file_id,result}",
	"source":      blocks + "source",
	"source_type": blocks + "source.type",
	"source_data": blocks + "source.data",
}
