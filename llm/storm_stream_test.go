package llm_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"

	"github.com/headgate/headgate/llm"
)

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
		id: id, fate: f, format: stormOrder[rng.IntN(len(stormOrder))], asks: rng.IntN(2) == 0,
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
	switch s.format {
	case llm.FormatOllama, llm.FormatCohereChat: // which state no cache
		s.usage.Input, s.usage.CacheRead = prompt, 0
	case llm.FormatAnthropicMessages, llm.FormatBedrockConverse:
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
		if stormFormats[s.format].tellsInput {
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
		w.Header().Set("Content-Type", cmp.Or(stormFormats[s.format].contentType, "text/event-stream"))
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
