package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"github.com/headgate/headgate/internal/redistest"
)

// client is OpenAI's client with the gateway's URL and an API key, which is the user. It records
// the statuses of the responses.
type client struct {
	openai.Client
	statuses []int
	refused  func(*http.Response)
}

func newClient(r *replica, key string, retries int) *client {
	c := &client{}
	c.Client = openai.NewClient(option.WithBaseURL(r.url+"/v1"), option.WithAPIKey(key), option.WithMaxRetries(retries),
		option.WithUnsafeAllowHTTP(), // otherwise it sends no key without TLS
		option.WithMiddleware(func(request *http.Request, next option.MiddlewareNext) (*http.Response, error) {
			response, err := next(request)
			if err == nil {
				c.statuses = append(c.statuses, response.StatusCode)
				if response.StatusCode != http.StatusOK && c.refused != nil {
					c.refused(response)
				}
			}
			return response, err
		}))
	return c
}

// chat streams an answer and returns it with its finish reason and its number of tokens.
func (c *client) chat(tokens int64) (text, finish string, spent int64, err error) {
	stream := c.Chat.Completions.NewStreaming(context.Background(), openai.ChatCompletionNewParams{
		Model:               "canal-1",
		Messages:            []openai.ChatCompletionMessageParamUnion{openai.UserMessage("Tell me of the gate.")},
		MaxCompletionTokens: openai.Int(tokens),
		StreamOptions:       openai.ChatCompletionStreamOptionsParam{IncludeUsage: openai.Bool(true)},
	})
	defer stream.Close()
	all := openai.ChatCompletionAccumulator{}
	for stream.Next() {
		if !all.AddChunk(stream.Current()) {
			return "", "", 0, errors.New("the chunk does not follow the earlier ones")
		}
	}
	if err := stream.Err(); err != nil {
		return "", "", 0, err
	}
	return all.Choices[0].Message.Content, string(all.Choices[0].FinishReason), all.Usage.CompletionTokens, nil
}

func TestOpenAIClient(t *testing.T) {
	r := start(t, "TOKENS=6")
	c := newClient(r, "sk-ann", 0)
	text, finish, spent, err := c.chat(1000)
	if err != nil || text != "The headgate stands at the head " || finish != "stop" || spent != 6 {
		t.Errorf("stream: %q, %s, %d tokens, %v", text, finish, spent, err)
	}
	text, finish, spent, err = c.chat(2)
	if err != nil || text != "The headgate " || finish != "length" || spent != 2 {
		t.Errorf("short stream: %q, %s, %d tokens, %v", text, finish, spent, err)
	}
	whole, err := c.Chat.Completions.New(context.Background(), openai.ChatCompletionNewParams{
		Model: "canal-1", Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("Tell me of the gate.")},
	})
	if err != nil || whole.Choices[0].Message.Content != "The headgate stands at the head " || whole.Usage.TotalTokens != 6 {
		t.Errorf("without a stream: %v, %v", whole, err)
	}
}

// A user whose slots are taken at another replica gets Retry-After. The client retries after it and
// is admitted.
func TestOpenAIClientRetriesUntilASlotIsFree(t *testing.T) {
	server := redistest.Start(t)
	env := []string{endless, "LEASE=3s", "MAX_WAIT=0s", "REDIS_URL=redis://" + server.Addr}
	other := start(t, env...)
	var busy *http.Response
	for range streamsPerUser {
		if busy = stream(t, other, "sk-ann"); busy.StatusCode != http.StatusOK {
			t.Fatalf("status %d", busy.StatusCode)
		}
	}
	c := newClient(start(t, env...), "sk-ann", 1)
	c.refused = func(response *http.Response) {
		checkRefusal(t, response, `All 3 concurrent requests of policy "user-streams" are in use.`)
		_ = busy.Body.Close()
		eventually(t, "a slot is free", func() bool { holders, _ := look(t, server).inUse(); return len(holders) < streamsPerUser })
	}
	text, _, _, err := c.chat(3)
	if err != nil || text != "The headgate stands " || !slices.Equal(c.statuses, []int{429, 200}) {
		t.Errorf("%q, statuses %v, %v", text, c.statuses, err)
	}
}

// The client may retry once. The retry succeeds only if the client waits for Retry-After.
func TestOpenAIClientWaitsForRetryAfter(t *testing.T) {
	server := redistest.Start(t)
	r := start(t, "TOKENS=0", "REQUESTS_PER_MINUTE=15", "REDIS_URL=redis://"+server.Addr) // one every 4 s after the burst
	eventually(t, "a request is refused", func() bool {
		for stream(t, r, "sk-ann").StatusCode == http.StatusOK {
		}
		c := newClient(r, "sk-ann", 1)
		c.refused = func(response *http.Response) {
			checkRefusal(t, response, `Request quota for policy "requests" is exhausted.`)
		}
		if _, _, _, err := c.chat(1); err != nil {
			t.Fatalf("statuses %v, %v", c.statuses, err)
		}
		return slices.Equal(c.statuses, []int{429, 200}) // otherwise a request became free in between
	})
}

func checkRefusal(t *testing.T, response *http.Response, text string) {
	t.Helper()
	body, err := io.ReadAll(response.Body)
	response.Body = io.NopCloser(strings.NewReader(string(body)))
	want := `{"error":{"message":` + quoted(text) + `,"type":"requests","param":null,"code":"rate_limit_exceeded"}}` + "\n"
	if err != nil || response.StatusCode != http.StatusTooManyRequests || string(body) != want {
		t.Errorf("status %d, %s, %v", response.StatusCode, body, err)
	}
	if wait := response.Header.Get("Retry-After"); wait == "" {
		t.Errorf("no Retry-After: %v", response.Header)
	} else {
		t.Logf("refused, with Retry-After: %s", wait)
	}
}

func quoted(text string) string {
	b, _ := json.Marshal(text)
	return string(b)
}

// The stream on the wire, except its id and time.
func TestStreamOnTheWire(t *testing.T) {
	s := stream(t, start(t, "TOKENS=1"), "ann")
	if s.StatusCode != http.StatusOK || s.Header.Get("Content-Type") != "text/event-stream" || s.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("status %d, headers %v", s.StatusCode, s.Header)
	}
	if p := s.Header.Get("RateLimit-Policy"); !strings.Contains(p, `"user-streams";q=3;qu="concurrent-requests"`) || !strings.Contains(p, `"requests";q=1000000;w=60`) {
		t.Errorf("RateLimit-Policy: %s", p)
	}
	var events []string
	for lines := bufio.NewScanner(s.Body); lines.Scan(); {
		var c completion
		switch data, ok := strings.CutPrefix(lines.Text(), "data: "); {
		case !ok:
		case json.Unmarshal([]byte(data), &c) == nil:
			choice, err := json.Marshal(c.Choices[0])
			if err != nil {
				t.Fatal(err)
			}
			events = append(events, c.Object+" "+string(choice))
		default:
			events = append(events, data)
		}
	}
	want := []string{
		`chat.completion.chunk {"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}`,
		`chat.completion.chunk {"index":0,"delta":{"content":"The "},"finish_reason":null}`,
		`chat.completion.chunk {"index":0,"delta":{"content":""},"finish_reason":"stop"}`,
		`[DONE]`,
	}
	if !slices.Equal(events, want) {
		t.Errorf("events %q", events)
	}
}

func TestTenantCap(t *testing.T) {
	r := start(t, endless, "MAX_WAIT=0s")
	for i := range streamsPerTenant {
		if s := stream(t, r, fmt.Sprint("user", i/streamsPerUser)); s.StatusCode != http.StatusOK {
			t.Fatalf("stream %d: status %d", i, s.StatusCode)
		}
	}
	checkRefusal(t, stream(t, r, "another"), `All 20 concurrent requests of policy "tenant-streams" are in use.`)
}

func TestRequestWithoutUserIsRefused(t *testing.T) {
	if s := stream(t, start(t), ""); s.StatusCode != http.StatusBadRequest {
		t.Errorf("status %d", s.StatusCode)
	}
}

// A stream whose slot is evicted ends with an error that OpenAI's client understands.
func TestLostSlotEndsItsStream(t *testing.T) {
	server := redistest.Start(t)
	r := start(t, endless, "REDIS_URL=redis://"+server.Addr)
	failed := make(chan error, 1)
	go func() {
		_, _, _, err := newClient(r, "sk-ann", 0).chat(1 << 40)
		failed <- err
	}()
	s := look(t, server)
	eventually(t, "the stream runs", func() bool { holders, _ := s.inUse(); return len(holders) == 1 })
	holders, _ := s.inUse()
	if n, err := s.gateway.streams.Evict(context.Background(), s.key, holders[0].ID); n != 1 || err != nil {
		t.Errorf("%d evicted, %v", n, err)
	}
	if err := <-failed; err == nil || !strings.Contains(err.Error(), "slot") {
		t.Errorf("the stream ends with %v", err)
	}
	s.empty()
}

// A replica that stops lets running streams go on, and refuses queued and new requests.
func TestShutdown(t *testing.T) {
	server := redistest.Start(t)
	r := start(t, endless, "REDIS_URL=redis://"+server.Addr)
	var runs []*http.Response
	var events atomic.Int64
	for range streamsPerUser {
		runs = append(runs, stream(t, r, "sk-ann"))
	}
	go func() {
		for lines := bufio.NewScanner(runs[0].Body); lines.Scan(); {
			events.Add(1)
		}
	}()
	feed, err := http.NewRequest(http.MethodGet, r.url+"/feed", nil)
	if err != nil {
		t.Fatal(err)
	}
	feed.Header.Set("X-User", "ann")
	followed, err := http.DefaultClient.Do(feed)
	if err != nil || followed.StatusCode != http.StatusOK {
		t.Fatalf("the feed: %v, %v", followed, err)
	}
	defer followed.Body.Close()
	s := look(t, server)
	waiter := make(chan *http.Response, 1)
	go func() {
		response, err := open(t, r, "sk-ann")
		if err != nil {
			t.Error(err)
		}
		waiter <- response
	}()
	eventually(t, "a request waits", func() bool { _, waiting := s.inUse(); return waiting == 1 })
	if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	waited := <-waiter
	if waited == nil {
		t.FailNow()
	}
	for who, response := range map[string]*http.Response{"queued request": waited, "new request": stream(t, r, "sk-bob")} {
		if response.StatusCode != http.StatusServiceUnavailable || response.Header.Get("Retry-After") == "" {
			t.Errorf("%s: status %d, headers %v", who, response.StatusCode, response.Header)
		}
	}
	before := events.Load()
	eventually(t, "a running stream goes on", func() bool { return events.Load() > before+10 })
	for _, run := range runs {
		_ = run.Body.Close()
	}
	if err := r.cmd.Wait(); err != nil {
		t.Errorf("the replica ends with %v", err)
	}
	s.empty()
}
