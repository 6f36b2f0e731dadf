package wire

// Response is what a response has said about its use, as far as it was read.
type Response struct {
	// Usage is the numbers that the response stated. Without Known they are preliminary, or zero.
	Usage Usage
	// Model is the model that the response names, or empty. Usage is its use.
	Model string
	// Others is what further models used for parts of the response.
	Others []ModelUsage
	// Units is the number of pieces that are billed by the piece, by name, such as web_search.
	Units map[string]int64
	// Labels is what the response states of its price, in lower case: service_tier, speed, geo.
	Labels map[string]string
	// Stated is the bill that the server states.
	Stated Money
	// Unnamed is what the response states of its use that the format does not read: the keys of
	// numbers in a usage, and the types of items.
	Unnamed []string
	// Known says that the response stated its usage, and has ended.
	Known bool
	// Told says that the last event had nothing but the usage, after every answer had ended.
	Told bool
	// InputKnown says that it stated the tokens of its input, as Anthropic does at the beginning.
	InputKnown bool
	// OutputKnown says that it stated the tokens of its output, and has ended.
	OutputKnown bool
	// Events is the number of events with text. It is 1 for a document with text.
	Events int64
	// TextBytes is the number of bytes of text that the model wrote: answers, reasoning and
	// arguments of tools.
	TextBytes int64
	// Complete says that the response came to its end: the last event of its format, or the end of
	// the document.
	Complete bool
	// Failed says that the response reported an error.
	Failed bool
	// Broken says that a part of the response was no valid JSON, or no valid gzip.
	Broken bool
}

// Money is an amount that a server states.
type Money struct {
	Known bool
	Pico  int64 // the millionth part of a micro-dollar
}

// Answered reports whether the response has come to its end, or needs nothing but the marker of it.
// What follows holds no output.
func (r *Response) Answered() bool { return r.Complete || r.Told }

// Refused reports whether the server failed before it stated or sent anything of an answer.
func (r *Response) Refused() bool {
	return r.Failed && !r.Known && !r.InputKnown && r.Events == 0 &&
		len(r.Units) == 0 && len(r.Others) == 0
}

// TextTokens returns a first guess of the output from the text: a token for four bytes, and at
// least one for each event with text.
func (r *Response) TextTokens() int64 { return max(r.Events, (r.TextBytes+3)/4) }
