package llm_test

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws/protocol/eventstream"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/keyfunc"
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
	if s.format != llm.FormatOpenAIChat {
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

// stormOrder are the formats of the storm's streams: one whose usage is hidden, one that tells its
// input first, and one of binary frames. The recorded cases have the others.
var stormOrder = []llm.Format{llm.FormatOpenAIChat, llm.FormatAnthropicMessages, llm.FormatBedrockConverse}

// stormFormats says how each of them is spelt.
var stormFormats = map[llm.Format]struct {
	path, contentType string
	tellsInput        bool   // at the beginning
	ask               string // with the cap on the output and the text of the prompt
	answer            func(*answer)
}{
	llm.FormatOpenAIChat: {
		path: "/v1/chat/completions", answer: chatAnswer,
		ask: `{"model":"m","stream":true,"max_tokens":%d,"messages":[{"role":"user","content":"%s"}]}`,
	},
	llm.FormatAnthropicMessages: {
		path: "/v1/messages", answer: messagesAnswer, tellsInput: true,
		ask: `{"model":"m","stream":true,"max_tokens":%d,"messages":[{"role":"user","content":"%s"}]}`,
	},
	llm.FormatBedrockConverse: {
		path: "/model/m/converse-stream", answer: converseAnswer,
		contentType: "application/vnd.amazon.eventstream",
		ask:         `{"inferenceConfig":{"maxTokens":%d},"messages":[{"content":[{"text":"%s"}]}]}`,
	},
}

func (s *stream) path() string { return stormFormats[s.format].path }

// request returns the body of the request. stormEstimate estimates it as s.estimate.
func (s *stream) request() string {
	ask := stormFormats[s.format].ask
	bytes := int(4 * s.estimate.Input)
	if strings.Contains(ask, `"role":"user"`) {
		bytes -= len("user")
	}
	body := fmt.Sprintf(ask, s.estimate.Output, strings.Repeat("x", bytes))
	if s.format == llm.FormatOpenAIChat && s.asks {
		body = strings.Replace(body, `{`, `{"stream_options":{"include_usage":true},`, 1)
	}
	return body
}

// body returns the events that the server sends, and where each event with text ends. A chat that
// asks for it has a chunk with the usage.
func (s *stream) body(asks bool) ([]byte, []int) {
	a := answer{stream: s, asks: asks, tells: s.fate != unreported}
	stormFormats[s.format].answer(&a)
	return a.Bytes(), a.ends
}

// answer is a response of the storm.
type answer struct {
	*stream
	bytes.Buffer
	asks, tells bool
	ends        []int
}

func (a *answer) data(format string, args ...any) { fmt.Fprintf(a, "data: "+format+"\n\n", args...) }

func (a *answer) event(name, format string, args ...any) {
	fmt.Fprintf(a, "event: %s\n", name)
	a.data(`{"type":"%s",`+format+`}`, append([]any{name}, args...)...)
}

func (a *answer) frame(name, format string, args ...any) {
	var m eventstream.Message
	m.Headers.Set(":event-type", eventstream.StringValue(name))
	m.Payload = fmt.Appendf(nil, format, args...)
	if err := eventstream.NewEncoder().Encode(a, m); err != nil {
		panic(err)
	}
}

// say writes the events with text.
func (a *answer) say(event func()) {
	for range a.words {
		event()
		a.ends = append(a.ends, a.Len())
	}
}

// orNull returns an object of a usage, or null if the server tells none.
func (a *answer) orNull(format string, args ...any) string {
	if !a.tells {
		return "null"
	}
	return fmt.Sprintf(format, args...)
}

func chatAnswer(a *answer) {
	u := a.usage
	a.say(func() {
		a.data(`{"id":"c-%d","choices":[{"index":0,"delta":{"content":%s}}],"usage":null}`, a.id, stormWord)
	})
	a.data(`{"id":"c-%d","choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":null}`, a.id)
	if a.asks && a.tells {
		a.data(`{"id":"c-%d","choices":[],"usage":{"prompt_tokens":%d,"completion_tokens":%d,`+
			`"prompt_tokens_details":{"cached_tokens":%d}}}`,
			a.id, u.Input+u.CacheRead, u.Output, u.CacheRead)
	}
	a.data("[DONE]")
}

func messagesAnswer(a *answer) {
	u := a.usage
	a.event("message_start", `"message":{"id":"m-%d","usage":%s}`, a.id,
		a.orNull(`{"input_tokens":%d,"cache_read_input_tokens":%d,"cache_creation_input_tokens":%d,`+
			`"output_tokens":1}`, u.Input, u.CacheRead, u.CacheWrite))
	a.event("content_block_start", `"index":0,"content_block":{"type":"text","text":""}`)
	a.say(func() {
		a.event("content_block_delta", `"index":0,"delta":{"type":"text_delta","text":%s}`, stormWord)
	})
	a.event("content_block_stop", `"index":0`)
	a.event("message_delta", `"delta":{"stop_reason":"end_turn"},"usage":%s`,
		a.orNull(`{"output_tokens":%d}`, u.Output))
	a.event("message_stop", `"x":0`)
}

func converseAnswer(a *answer) {
	u := a.usage
	a.frame("messageStart", `{"role":"assistant","x":%d}`, a.id)
	a.say(func() { a.frame("contentBlockDelta", `{"delta":{"text":%s}}`, stormWord) })
	a.frame("messageStop", `{"stopReason":"end_turn"}`)
	a.frame("metadata", `{"usage":%s}`, a.orNull(`{"inputTokens":%d,"cacheReadInputTokens":%d,`+
		`"cacheWriteInputTokens":%d,"outputTokens":%d,"totalTokens":%d}`,
		u.Input, u.CacheRead, u.CacheWrite, u.Output, u.Total()))
}

const (
	stormHold = 2 * time.Second
	stormEnv  = "LLM_TEST_STORM" // environment variable with the stormConfig of a gateway
	// stormPrice makes a token cost 2 micro-dollars.
	stormPrice = 2_000_000
)

// stormConfig is what the gateways of a storm need to know.
type stormConfig struct {
	redis, prefix, upstream string
	limit                   int64 // of the capped tenant
}

func (c stormConfig) String() string {
	return fmt.Sprintf("%s %s %s %d", c.redis, c.prefix, c.upstream, c.limit)
}

// gate returns a Gate that waits long enough for a busy machine.
func (c stormConfig) gate(t *testing.T, client *redis.Client, observe func(core.Event)) *core.Gate {
	return core.Must(core.NewRedis(client, core.Config{
		Prefix: c.prefix, Timeout: 30 * time.Second,
		Observe: func(_ context.Context, e core.Event) { observe(e) },
	}))
}

// The budgets of a stream in the storm, in order. The last one is of the capped tenant.
const (
	budgetOfStream = iota
	budgetOfTenant
	budgetOfMoney
	budgetOfCapped
)

func (c stormConfig) meter(
	gate *core.Gate, observe func(context.Context, core.Event),
) (*llm.Meter, error) {
	const plenty = 1_000_000_000_000
	policy := func(name string, unit core.Unit, a core.Algorithm) *core.Policy {
		return core.Must(core.NewPolicy(core.PolicyConfig{
			Name: name, Unit: unit, Algorithm: a, Hold: stormHold, OnFailure: core.FailClosed,
		}))
	}
	slots, err := semaphore.New(gate, semaphore.Config{
		Name: "streams", OnFailure: core.FailClosed,
	})
	if err != nil {
		return nil, err
	}
	return llm.New(llm.Config{
		Guard: nethttp.Config{
			Gate: gate,
			Slot: &nethttp.Slot{
				Semaphore: slots, Caps: []nethttp.Cap{{Name: "streams", Key: tenant, Limit: 1000}},
			},
		},
		Budgets: []llm.Budget{
			budgetOfStream: {
				Policy: policy("stream", core.UnitTokens, core.TokenBucket{Burst: plenty}),
				Key:    keyfunc.Must(keyfunc.Header("X-Stream")),
			},
			budgetOfTenant: {
				Policy: policy("tenant", core.UnitTokens, core.TokenBucket{Burst: plenty}), Key: tenant,
			},
			budgetOfMoney: {
				Policy: policy("money", core.UnitMicroDollars,
					core.Calendar{Limit: plenty, Every: core.PeriodYear, In: time.UTC}),
				Key: tenant,
			},
			budgetOfCapped: {
				Policy: policy("capped", core.UnitTokens, core.TokenBucket{Burst: c.limit}), Key: tenant,
				Skip: func(r *http.Request) bool { return r.Header.Get("X-Tenant") != capped },
			},
		},
		Models: map[string]llm.Model{
			"m": {Tariff: llm.Tariff{Price: llm.Price{
				Input: stormPrice, CacheRead: stormPrice, CacheWrite: stormPrice, Output: stormPrice,
			}}},
		},
		Estimate: stormEstimate,
		Observe:  observe,
	})
}

// stormEstimate is not corrected by what is learnt, so that the test knows it.
func stormEstimate(_ *http.Request, q llm.Request, _ []byte) (llm.Usage, error) {
	return llm.Usage{Input: q.PromptBytes / 4, Output: q.MaxOutput}, nil
}

// TestStormGateway is the body of each gateway of TestStorm. It serves until its input ends, and
// tells what it settles.
func TestStormGateway(t *testing.T) {
	var c stormConfig
	env := os.Getenv(stormEnv)
	if env == "" {
		t.Skip("runs only as a process of TestStorm")
	}
	if _, err := fmt.Sscan(env, &c.redis, &c.prefix, &c.upstream, &c.limit); err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(&redis.Options{
		Addr: c.redis, ContextTimeoutEnabled: true, ReadTimeout: time.Minute,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	t.Cleanup(func() { _ = client.Close() })
	gate := c.gate(t, client, func(e core.Event) {
		var fault error
		switch e := e.(type) {
		case *core.DecisionEvent:
			fault = e.Err
		case *core.ReservationEvent:
			if fault = e.Err; e.Op == core.OpHoldExpired {
				fmt.Println("expired")
				return
			}
		case *semaphore.AcquireEvent:
			fault = e.Err
		case *semaphore.LeaseEvent:
			fault = e.Err
		case *core.ServerEvent:
			fault = e.Err
		}
		if fault != nil && !errors.Is(fault, context.Canceled) {
			fmt.Println("fault", e.EventName(), fault)
		}
	})
	meter, err := c.meter(gate, func(_ context.Context, e core.Event) {
		if e, ok := e.(*llm.ResponseEvent); ok {
			fmt.Println("settled", e.HTTP.Header.Get("X-Stream"), e.Outcome, e.Usage.Total())
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	upstream, err := url.Parse(c.upstream)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(upstream)
	proxy.ErrorLog = log.New(io.Discard, "", 0)
	proxy.Transport = &http.Transport{MaxIdleConnsPerHost: 100, DisableCompression: true}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: meter.Handler(proxy)}
	served := make(chan error)
	go func() { served <- server.Serve(listener) }()
	fmt.Println("listens", listener.Addr())
	_, _ = io.Copy(io.Discard, os.Stdin)
	if err := server.Shutdown(context.Background()); err != nil {
		t.Error(err)
	}
	<-served
	if err := gate.Close(context.Background()); err != nil {
		t.Error(err)
	}
}

// gateway is a process of the storm.
type gateway struct {
	storm  *storm
	cmd    *exec.Cmd
	in     io.Closer
	addr   string
	listen chan struct{} // closed when addr is known, or never will be
	done   chan struct{} // closed when all of the output has been read
	killed bool          // guarded by storm.mu
}

func (s *storm) spawn() (*gateway, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	g := &gateway{
		storm: s, cmd: exec.Command(self, "-test.run=^TestStormGateway$"),
		listen: make(chan struct{}), done: make(chan struct{}),
	}
	// With the race detector a process waits for a second before it exits.
	g.cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0", stormEnv+"="+s.config.String())
	g.cmd.Stderr = s.Output()
	if g.in, err = g.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := g.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := g.cmd.Start(); err != nil {
		return nil, err
	}
	go g.read(out)
	<-g.listen
	if g.addr == "" {
		return nil, fmt.Errorf("the gateway does not listen: %w", g.wait())
	}
	return g, nil
}

// read records what the gateway tells. A kill may cut the last line short.
func (g *gateway) read(out io.Reader) {
	defer close(g.done)
	listens := false
	for lines := bufio.NewReader(out); ; {
		line, err := lines.ReadString('\n')
		if err != nil {
			break
		}
		words := strings.Fields(line)
		switch {
		case len(words) == 2 && words[0] == "listens":
			g.addr, listens = words[1], true
			close(g.listen)
		case len(words) == 4 && words[0] == "settled":
			id, _ := strconv.Atoi(words[1])
			tokens, _ := strconv.ParseInt(words[3], 10, 64)
			g.storm.settle(id, settlement{words[2], tokens})
		case len(words) == 1 && words[0] == "expired":
			g.storm.expired.Add(1)
		case strings.HasPrefix(line, "fault "), strings.HasPrefix(line, "--- "),
			strings.HasPrefix(line, "    "):
			g.storm.Error(strings.TrimSpace(line))
		}
	}
	if !listens {
		close(g.listen)
	}
}

// wait waits for the process to end.
func (g *gateway) wait() error {
	<-g.done
	return g.cmd.Wait()
}
