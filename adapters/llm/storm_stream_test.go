package llm_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/headgate/headgate/adapters/llm"
)

// stormFormats are the formats of the storm's streams.
var stormFormats = []llm.Format{
	llm.FormatOpenAIChat, llm.FormatOpenAIResponses, llm.FormatAnthropicMessages,
}

// fate is what becomes of a stream of the storm.
type fate uint8

const (
	complete   fate = iota
	cut             // the client leaves
	failed          // the server fails before its first byte
	unreported      // the server does not tell its usage
	killing         // the gateway is killed
)

func (f fate) String() string {
	return [...]string{"complete", "cut", "failed", "unreported", "killing"}[f]
}

// capped is the tenant with a limit that the storm reaches. It uses at most what is estimated.
const capped = "capped"

// stormWord is the text of an event. It counts as one token until the usage is known.
const stormWord = `"word"`

// stream is one stream of the storm. It depends only on the storm's seed and its id.
type stream struct {
	id       int
	fate     fate
	format   llm.Format
	tenant   string
	asks     bool // the client asks a chat for its usage
	estimate llm.Usage
	usage    llm.Usage // that the server tells
	words    int       // events with text
	leave    int       // words after which the client leaves or kills; 0 is before the response
	pause    int       // words after which the server waits for the client to leave, or -1
	status   int       // of the server's failure; 0 breaks the connection
	seed     uint64    // of the pieces in which the server writes

	arrived chan struct{} // closed when the request is at the server
}

// newStreams returns n streams: of every 100, 20 are cut, 10 fail and 5 tell no usage. Some
// others kill their gateway.
func newStreams(seed uint64, n, kills int) []*stream {
	rng := rand.New(rand.NewPCG(seed, 0))
	streams := make([]*stream, n)
	for i, at := range rng.Perm(n) {
		f := complete
		switch part := i % 100; {
		case part < 20:
			f = cut
		case part < 30:
			f = failed
		case part < 35:
			f = unreported
		}
		streams[at] = newStream(seed, at, f)
	}
	for k := range kills { // spread evenly
		at := n * (2*k + 1) / (2 * kills)
		for streams[at].fate != complete {
			at++
		}
		streams[at] = newStream(seed, at, killing)
	}
	return streams
}

func newStream(seed uint64, id int, f fate) *stream {
	rng := rand.New(rand.NewPCG(seed, uint64(id)+1))
	between := func(least, most int) int64 { return int64(least + rng.IntN(most-least+1)) }
	s := &stream{
		id: id, fate: f, format: stormFormats[rng.IntN(len(stormFormats))], asks: rng.IntN(2) == 0,
		tenant: fmt.Sprintf("tenant-%d", rng.IntN(3)), words: int(between(1, 60)), pause: -1,
		seed: rng.Uint64(), arrived: make(chan struct{}),
	}
	s.estimate.Input = between(10, 200)
	s.usage.Output = int64(s.words) * (1 + 2*rng.Int64N(2)) // some text is dense
	prompt := between(1, 400)
	s.estimate.Output = between(1, 120)
	if f != killing && rng.IntN(3) == 0 {
		s.tenant = capped
		prompt = between(1, int(s.estimate.Input))
		s.estimate.Output = s.usage.Output + between(0, 40)
	}
	s.usage.CacheRead = rng.Int64N(prompt + 1)
	s.usage.Input = prompt - s.usage.CacheRead
	if s.format == llm.FormatAnthropicMessages {
		s.usage.CacheWrite = rng.Int64N(s.usage.Input + 1)
		s.usage.Input -= s.usage.CacheWrite
	}
	switch f {
	case cut:
		s.leave = rng.IntN(s.words + 1)
		if s.leave == 0 {
			s.pause = 0
		} else if rng.IntN(4) > 0 {
			s.pause = int(between(s.leave, s.words))
		}
	case killing:
		s.leave = int(between(1, s.words))
		s.pause = s.leave
	case failed:
		s.status = []int{0, http.StatusTooManyRequests, http.StatusInternalServerError, 529}[rng.IntN(4)]
	}
	return s
}

func (s *stream) path() string {
	return [...]string{"/v1/chat/completions", "/v1/responses", "/v1/messages"}[slices.Index(stormFormats, s.format)]
}

// request returns the body of the request. stormEstimate estimates it as s.estimate.
func (s *stream) request() string {
	text := strings.Repeat("x", int(4*s.estimate.Input)-len("user"))
	messages := fmt.Sprintf(`[{"role":"user","content":"%s"}]`, text)
	switch s.format {
	case llm.FormatOpenAIResponses:
		return fmt.Sprintf(`{"model":"m","stream":true,"max_output_tokens":%d,"input":%s}`,
			s.estimate.Output, messages)
	case llm.FormatOpenAIChat:
		if s.asks {
			messages += `,"stream_options":{"include_usage":true}`
		}
	}
	return fmt.Sprintf(`{"model":"m","stream":true,"max_tokens":%d,"messages":%s}`,
		s.estimate.Output, messages)
}

// body returns the events that the server sends, and where each event with text ends. A chat that
// asks for it has a chunk with the usage.
func (s *stream) body(asks bool) ([]byte, []int) {
	var b bytes.Buffer
	var ends []int
	data := func(format string, args ...any) { fmt.Fprintf(&b, "data: "+format+"\n\n", args...) }
	event := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "event: %s\n", name)
		data(`{"type":"%s",`+format+`}`, append([]any{name}, args...)...)
	}
	u, tells := s.usage, s.fate != unreported
	switch s.format {
	case llm.FormatOpenAIChat:
		for range s.words {
			data(`{"id":"c-%d","choices":[{"index":0,"delta":{"content":%s}}],"usage":null}`, s.id,
				stormWord)
			ends = append(ends, b.Len())
		}
		data(`{"id":"c-%d","choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":null}`,
			s.id)
		if asks && tells {
			data(`{"id":"c-%d","choices":[],"usage":{"prompt_tokens":%d,"completion_tokens":%d,`+
				`"prompt_tokens_details":{"cached_tokens":%d}}}`,
				s.id, u.Input+u.CacheRead, u.Output, u.CacheRead)
		}
		data("[DONE]")
	case llm.FormatOpenAIResponses:
		event("response.created", `"response":{"id":"r-%d","usage":null}`, s.id)
		for range s.words {
			event("response.output_text.delta", `"delta":%s`, stormWord)
			ends = append(ends, b.Len())
		}
		usage := "null"
		if tells {
			usage = fmt.Sprintf(`{"input_tokens":%d,"output_tokens":%d,`+
				`"input_tokens_details":{"cached_tokens":%d}}`, u.Input+u.CacheRead, u.Output, u.CacheRead)
		}
		event("response.completed", `"response":{"id":"r-%d","usage":%s}`, s.id, usage)
	case llm.FormatAnthropicMessages:
		first, last := "null", "null"
		if tells {
			first = fmt.Sprintf(`{"input_tokens":%d,"cache_read_input_tokens":%d,`+
				`"cache_creation_input_tokens":%d,"output_tokens":1}`, u.Input, u.CacheRead, u.CacheWrite)
			last = fmt.Sprintf(`{"output_tokens":%d}`, u.Output)
		}
		event("message_start", `"message":{"id":"m-%d","usage":%s}`, s.id, first)
		event("content_block_start", `"index":0,"content_block":{"type":"text","text":""}`)
		for range s.words {
			event("content_block_delta", `"index":0,"delta":{"type":"text_delta","text":%s}`,
				stormWord)
			ends = append(ends, b.Len())
		}
		event("content_block_stop", `"index":0`)
		event("message_delta", `"delta":{"stop_reason":"end_turn"},"usage":%s`, last)
		event("message_stop", `"x":0`)
	}
	return b.Bytes(), ends
}

// paid returns between which numbers of tokens the stream pays, if the client has received that
// many words and the gateway lives.
func (s *stream) paid(received int) (least, most int64) {
	total := s.usage.Total()
	switch s.fate {
	case complete:
		return total, total
	case unreported:
		total = s.estimate.Input + max(s.estimate.Output, int64(s.words))
		return total, total
	case cut:
		input := s.estimate.Input
		if s.leave == 0 {
			return input, input
		}
		if s.format == llm.FormatAnthropicMessages { // it tells the input at the beginning
			input = total - s.usage.Output
		}
		least = input + int64(received)
		most = input + max(s.usage.Output, s.estimate.Output)
		if s.pause < 0 { // the server may have told all
			least, most = min(least, total), max(most, total)
		}
		return least, most
	}
	return 0, 0
}

// serve sends the stream.
func (s *stream) serve(w http.ResponseWriter, r *http.Request, asks bool) {
	if s.fate == failed {
		if s.status == 0 {
			panic(http.ErrAbortHandler)
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(s.status)
		fmt.Fprint(w, `{"error":{"type":"overloaded_error"}}`)
		return
	}
	body, ends := s.body(asks)
	rest := body
	if s.pause >= 0 {
		rest = nil
		if s.pause > 0 {
			rest = body[:ends[s.pause-1]]
		}
	}
	if s.pause != 0 {
		w.Header().Set("Content-Type", "text/event-stream")
	}
	rng := rand.New(rand.NewPCG(s.seed, 0))
	for len(rest) > 0 {
		n := 1 + rng.IntN(min(len(rest), []int{30, 300, 3000}[rng.IntN(3)]))
		if _, err := w.Write(rest[:n]); err != nil {
			return // the client has left
		}
		_ = http.NewResponseController(w).Flush() // the next Write tells
		rest = rest[n:]
	}
	if s.pause >= 0 {
		<-r.Context().Done()
		panic(http.ErrAbortHandler)
	}
}

// header returns the header of the request.
func (s *stream) header() http.Header {
	return http.Header{
		"Content-Type": {"application/json"}, "X-Tenant": {s.tenant}, "X-Stream": {strconv.Itoa(s.id)},
	}
}
