package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/redistest"
)

// What one recorded answer costs: 24 tokens of input and 89 of output of example-large.
const transcriptCost = 24*3 + 89*15

// Every format passes byte for byte, and is settled to the token.
func TestTranscripts(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	r := start(t, withPlan(t, generous), "REDIS_URL=redis://"+server.Addr)
	count := int64(0)
	for _, c := range []struct{ path, file, rest string }{
		{"chat/completions", "chat.sse", `"stream":true,"stream_options":{"include_usage":true}`},
		{"chat/completions", "chat.json", `"stream":false`},
		{"responses", "responses.sse", `"stream":true`},
		{"responses", "responses.json", `"stream":false`},
		{"messages", "messages.sse", `"stream":true,"max_tokens":100`},
		{"messages", "messages.json", `"max_tokens":100`},
	} {
		response := post(t, r.api+"/v1/"+c.path, `{"model":"example-large",`+c.rest+`}`, "X-Api-Key", ann)
		want, err := testdata.ReadFile("testdata/" + c.file)
		if body := readAll(t, response); err != nil || response.StatusCode != http.StatusOK || body != string(want) {
			t.Errorf("%s: status %d, %v, body %.200q", c.file, response.StatusCode, err, body)
		}
		count++
		eventually(t, c.file+" is settled", func() bool {
			return r.spent(t, "acme", "spend") == count*transcriptCost
		})
	}
	gatetest.Equal(t, r.spent(t, "globex", "spend"), 0, "another tenant has spent")
	tokens := r.spent(t, "acme", "tokens")
	models := exchange(t, http.MethodGet, r.api+"/v1/models", "", "Authorization", "Bearer "+ann)
	want, err := testdata.ReadFile("testdata/models.json")
	if body := readAll(t, models); err != nil || body != string(want) || r.spent(t, "acme", "tokens") != tokens {
		t.Errorf("the list of models, which costs nothing: status %d, %s, %v", models.StatusCode, body, err)
	}
}

func TestAuthentication(t *testing.T) {
	t.Parallel()
	r := start(t, withPlan(t, generous))
	const openAI = `{"error":{"code":"invalid_api_key","message":"The API key is missing or unknown.","param":null,"type":"invalid_request_error"}}`
	const anthropic = `{"error":{"message":"The API key is missing or unknown.","type":"authentication_error"},"type":"error"}`
	for _, c := range []struct {
		path    string
		headers []string
		refused string
	}{
		{"chat/completions", []string{"Authorization", "Bearer " + ann}, ""},
		{"chat/completions", []string{"Authorization", "bearer " + ann}, ""},
		{"chat/completions", []string{"X-Api-Key", ann}, ""},
		{"chat/completions", []string{"X-Api-Key", ann, "Authorization", "Bearer " + ann}, ""},
		{"chat/completions", []string{"X-Api-Key", ann, "Authorization", "Bearer " + bob}, openAI},
		{"chat/completions", []string{"Authorization", "Basic " + ann}, openAI},
		{"chat/completions", []string{"Authorization", "Bearer sk-unknown"}, openAI},
		{"chat/completions", []string{"X-Act-As", "acme/ann"}, openAI},
		{"responses", nil, openAI},
		{"messages", nil, anthropic},
		{"messages", []string{"X-Api-Key", ""}, anthropic},
	} {
		response := post(t, r.api+"/v1/"+c.path, ask, c.headers...)
		body := strings.TrimSpace(readAll(t, response))
		if refused := response.StatusCode == http.StatusUnauthorized; refused != (c.refused != "") || refused && body != c.refused {
			t.Errorf("%s with %q: status %d, %s", c.path, c.headers, response.StatusCode, body)
		}
	}
}

// The page and the feed are not at the tenants' address, and tell no key.
func TestOperatorOnly(t *testing.T) {
	t.Parallel()
	r := start(t)
	for _, path := range []string{"/", "/feed"} {
		response := exchange(t, http.MethodGet, r.api+path, "", "Authorization", "Bearer "+ann)
		gatetest.Equal(t, response.StatusCode, http.StatusNotFound, "%s: status", path)
	}
	text, err := json.Marshal(r.snapshot(t))
	if err != nil || strings.Contains(string(text), "sk-") || strings.Contains(string(text), "d0ca99") {
		t.Errorf("the feed: %s, %v", text, err)
	}
	response := post(t, r.operator+"/v1/chat/completions", ask, "X-Act-As", "acme/ann", "Sec-Fetch-Site", "cross-site")
	gatetest.Equal(t, response.StatusCode, http.StatusForbidden, "from another site: %v", response)
}

// Neither side sees the other's credentials and limits.
func TestHeaders(t *testing.T) {
	t.Parallel()
	status := make(chan int, 2)
	seen := make(chan http.Header, 2)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen <- r.Header
		for _, name := range []string{"X-Ratelimit-Limit-Requests", "X-Ratelimit-Limit-Images", "Anthropic-Ratelimit-Tokens-Limit",
			"Openai-Organization", "Set-Cookie", "X-Kept"} {
			w.Header().Set(name, "upstream")
		}
		w.WriteHeader(<-status)
		_, _ = io.WriteString(w, "sk-upstream is wrong")
	}))
	t.Cleanup(server.Close)
	limits := generous
	limits.RequestsPerMinute = 1000
	r := start(t, withPlan(t, limits), "UPSTREAM="+server.URL+"/v1", "UPSTREAM_KEY=sk-upstream")
	status <- http.StatusBadRequest
	response := post(t, r.api+"/v1/chat/completions", ask, "Authorization", "Bearer "+ann, "Cookie", "a=b", "Openai-Organization", "org")
	h := <-seen
	if h.Get("Authorization") != "Bearer sk-upstream" || h.Get("Cookie")+h.Get("Openai-Organization")+h.Get("X-Api-Key") != "" {
		t.Errorf("the upstream sees %v", h)
	}
	h = response.Header
	if h.Get("X-Ratelimit-Limit-Requests") != "1000" || h.Get("X-Kept") != "upstream" || response.StatusCode != http.StatusBadRequest ||
		h.Get("X-Ratelimit-Limit-Images")+h.Get("Anthropic-Ratelimit-Tokens-Limit")+h.Get("Openai-Organization")+h.Get("Set-Cookie") != "" {
		t.Errorf("the client sees status %d, %v", response.StatusCode, h)
	}

	status <- http.StatusUnauthorized
	response = post(t, r.api+"/v1/messages", `{"model":"example-large","max_tokens":9}`, "X-Api-Key", ann)
	if h := <-seen; h.Get("X-Api-Key") != "sk-upstream" || h.Get("Authorization") != "" {
		t.Errorf("the upstream sees %v", h)
	}
	if body := readAll(t, response); response.StatusCode != http.StatusBadGateway || strings.Contains(body, "sk-upstream") {
		t.Errorf("status %d, %s", response.StatusCode, body)
	}
	eventually(t, "failures cost nothing", func() bool { return r.spent(t, "acme", "spend") == 0 })
}

func TestQueue(t *testing.T) {
	t.Parallel()
	m, env := startModel(t)
	limits := generous
	limits.StreamsPerUser, limits.Queue = 1, 2
	r := start(t, append(env, withPlan(t, limits))...)
	r.send(t, ann)
	first := m.next(t)
	second := r.queue(t, ann)
	eventually(t, "a request waits", func() bool { return r.tenant(t, "acme").Waiting == 1 })
	third := r.queue(t, ann)
	eventually(t, "both have a place", func() bool {
		now := r.tenant(t, "acme")
		return now.Waiting == 2 && len(now.Running) == 1 && len(now.Queued) == 2 && now.Queued[0].Place == 0 && now.Queued[1].Place == 1
	})
	checkFull(t, r.send(t, ann), `All 1 concurrent requests of policy "user-streams" are in use, and the queue is full or the wait too long.`)
	gatetest.Equal(t, r.send(t, bob).StatusCode, http.StatusOK, "another user, who does not wait")
	m.next(t).finish(1, 1)
	first.finish(1, 1)
	m.next(t).finish(1, 1)
	m.next(t).finish(1, 1)
	for i, answered := range []<-chan *http.Response{second, third} {
		if response := <-answered; response == nil || response.StatusCode != http.StatusOK {
			t.Errorf("waiter %d: %v", i, response)
		}
	}
	eventually(t, "nothing is left", func() bool {
		now := r.tenant(t, "acme")
		return now.Waiting == 0 && len(now.Running) == 0 && len(now.Queued) == 0
	})
}

func checkFull(t *testing.T, response *http.Response, message string) {
	t.Helper()
	text, _ := json.Marshal(message)
	want := `{"error":{"message":` + string(text) + `,"type":"requests","param":null,"code":"rate_limit_exceeded"}}`
	if body := strings.TrimSpace(readAll(t, response)); response.StatusCode != http.StatusTooManyRequests || body != want {
		t.Errorf("status %d, %s", response.StatusCode, body)
	}
}

// slots are those of acme, read beside the gateway.
type slots struct {
	t       *testing.T
	streams *semaphore.Semaphore
	key     core.Key
}

func slotsOf(t *testing.T, server *redistest.Server) slots {
	t.Helper()
	gate := core.Must(core.NewRedis(server.Client(t), core.Config{Timeout: 30 * time.Second}))
	streams := core.Must(semaphore.New(gate, semaphore.Config{Name: "streams"}))
	return slots{t, streams, core.Must(core.NewKey("acme"))}
}

// empty waits until nobody holds or awaits a slot. What is kept of a lease that has ended may stay.
func (s slots) empty() {
	s.t.Helper()
	eventually(s.t, "nobody holds or awaits a slot", func() bool {
		held, waiting, err := s.streams.Holders(context.Background(), s.key)
		return err == nil && len(held) == 0 && waiting == 0
	})
}

// The slots of a replica that dies go to the requests that wait at another one.
func TestKilledReplicaFreesItsSlots(t *testing.T) {
	t.Parallel()
	const lease = 3 * time.Second
	server := redistest.Start(t)
	m, env := startModel(t)
	limits := generous
	limits.StreamsPerUser = 2
	env = append(env, withPlan(t, limits), "REDIS_URL=redis://"+server.Addr, "LEASE="+lease.String())
	killed, left := start(t, env...), start(t, env...)
	for range 2 {
		killed.send(t, ann)
		m.next(t)
	}
	waiters := []<-chan *http.Response{left.queue(t, ann), left.queue(t, ann)}
	eventually(t, "both replicas tell of the streams and waiters", func() bool {
		here, there := killed.tenant(t, "acme"), left.tenant(t, "acme")
		return len(there.Running) == 2 && there.Waiting == 2 && len(there.Queued) == 2 && here.Waiting == 2 && len(here.Queued) == 0
	})
	gatetest.NoError(t, killed.cmd.Process.Kill())
	// No process renews these slots, so each ends within a lease.
	s := slotsOf(t, server)
	holders, _, err := s.streams.Holders(context.Background(), s.key)
	for _, h := range holders {
		if h.Left > lease {
			t.Errorf("a slot is taken for %v more", h.Left)
		}
	}
	gatetest.Worked(t, err)
	for range waiters {
		m.next(t).finish(1, 1)
	}
	for _, answered := range waiters {
		if response := <-answered; response == nil || response.StatusCode != http.StatusOK {
			t.Errorf("a waiter gets %v", response)
		}
	}
	s.empty()
}

// A replica that stops lets running streams go on, and refuses queued and new requests.
func TestShutdown(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	m, env := startModel(t)
	limits := generous
	limits.StreamsPerUser = 1
	r := start(t, append(env, withPlan(t, limits), "REDIS_URL=redis://"+server.Addr)...)
	running := r.send(t, ann)
	c := m.next(t)
	waiter := r.queue(t, ann)
	eventually(t, "a request waits", func() bool { return r.tenant(t, "acme").Waiting == 1 })
	feed := gatetest.Must(http.Get(r.operator + "/feed"))(t)
	defer feed.Body.Close()
	gatetest.NoError(t, r.cmd.Process.Signal(syscall.SIGTERM))
	waited := <-waiter
	if waited == nil {
		t.FailNow()
	}
	for who, response := range map[string]*http.Response{"queued request": waited, "new request": r.send(t, bob)} {
		if response.StatusCode != http.StatusServiceUnavailable || response.Header.Get("Retry-After") == "" {
			t.Errorf("%s: status %d, headers %v", who, response.StatusCode, response.Header)
		}
	}
	c.say("still ", "here")
	c.finish(5, 2)
	if body := readAll(t, running); !strings.Contains(body, "here") || !strings.HasSuffix(body, "data: [DONE]\n\n") {
		t.Errorf("the running stream: %q", body)
	}
	gatetest.Worked(t, r.cmd.Wait())
	slotsOf(t, server).empty()
}

// Every fault is named with its field, and all of them at once.
func TestPlansFaults(t *testing.T) {
	sample := string(gatetest.Must(os.ReadFile("plans.json"))(t))
	const digest = "d0ca992830a797cb2ace4b3a93e392d012597b2750fb169705e6f190458625bb"
	for _, c := range []struct {
		name, before, after string // a change of the sample
		faults              []string
	}{
		{"none", "", "", nil},
		{"an empty file", sample, "{}", []string{
			"models is missing or empty", "plans is missing or empty", "tenants is missing or empty"}},
		{"something behind", "\n}\n", "\n} {}", []string{"cannot be read: something follows the JSON value"}},
		{"unknown field", `"queue": 4`, `"queue": 4, "quota": 1`, []string{`plans.team cannot be read: unknown field "quota"`}},
		{"negative", `"output_tokens_per_minute": 2000`, `"output_tokens_per_minute": -1`, []string{"plans.team.output_tokens_per_minute is -1: it must be between 0 and 1000000000000"}},
		{"no wait", `"max_wait": "30s"`, `"max_wait": ""`, []string{`plans.team has a queue of 4 and a max_wait of "": set both or neither`}},
		{"unknown plan", `"plan": "trial"`, `"plan": "gold"`, []string{`tenants.globex.plan is "gold", which is not in plans`}},
		{"plan with a fault", `"queue": 4`, `"queue": -1`, []string{
			"plans.team.queue is -1: it must be between 0 and 10000", `plans.team has a queue of -1 and a max_wait of "30s": set both or neither`}},
		{"the key itself", digest, "sk-example-acme-ann", []string{"tenants.acme.keys.ann is no SHA-256: it must be 64 hexadecimal digits"}},
		{"one key twice", "5f79feea6973999465b98dfd8b8f00ecfac00f612ba4ca4c6e84d153aaa1feec", digest, []string{"tenants.globex.keys.eve is also the key of tenants.acme.keys.ann"}},
		{"tenant twice", `"globex": {`, `"acme": {`, []string{"tenants.acme comes twice"}},
		{"several", `"requests_per_minute": 10,`, `"requests_per_minute": -10, "streams_per_user": 0, "max_wait": 3,`, []string{
			"plans.trial cannot be read: cannot unmarshal number into Go struct field plan.max_wait of type string"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			text := strings.Replace(sample, c.before, c.after, 1)
			_, err := parsePlans([]byte(text))
			got := ""
			if err != nil {
				got = err.Error()
			}
			gatetest.Equal(t, got, strings.Join(c.faults, "\n"), "faults")
		})
	}
}

// patience is the longest wait of a test. It is long so that tests pass on a loaded machine.
const patience = 90 * time.Second

var program string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "llmgateway")
		if err != nil {
			panic(err)
		}
		defer os.RemoveAll(dir)
		program = filepath.Join(dir, "llmgateway")
		if out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput(); err != nil {
			panic(string(out))
		}
		return m.Run()
	}())
}

// eventually waits until a condition holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for until := time.Now().Add(patience); !holds(); <-tick.C {
		if time.Now().After(until) {
			t.Fatalf("not in time: %s", what)
		}
	}
}

// replica is a process of the gateway.
type replica struct {
	api, operator string // URLs
	cmd           *exec.Cmd
}

func start(t *testing.T, env ...string) *replica {
	t.Helper()
	cmd := exec.Command(program)
	cmd.Env = append(append(os.Environ(), "ADDR=127.0.0.1:0", "OPERATOR_ADDR=127.0.0.1:0", "PLANS=plans.json", "EVENT_DELAY=0s",
		"REDIS_URL=", "UPSTREAM=", "UPSTREAM_KEY=",
		"REDIS_TIMEOUT=30s"), env...) // a loaded machine is slow, which must not count as an outage
	cmd.Stderr = t.Output()
	out := gatetest.Must(cmd.StdoutPipe())(t)
	gatetest.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	urls := regexp.MustCompile(`http://[0-9.:]+[0-9]`).FindAllString(line, -1)
	if err != nil || len(urls) != 2 {
		t.Fatalf("no URLs in %q: %v", line, err)
	}
	return &replica{urls[0], urls[1], cmd}
}

// generous limits nothing that a test does not lower.
var generous = plan{RequestsPerMinute: 1e6, TokensPerMinute: 1e9, MicroDollarsPerMonth: 1e9,
	StreamsPerTenant: 20, StreamsPerUser: 20, Queue: 5, MaxWait: "1h"}

// withPlan returns the environment of a plans file with the tenants and models of plans.json, all
// under this plan.
func withPlan(t *testing.T, p plan) string {
	t.Helper()
	text := gatetest.Must(os.ReadFile("plans.json"))(t)
	var file map[string]any
	gatetest.NoError(t, json.Unmarshal(text, &file))
	file["plans"] = map[string]any{"team": p, "trial": p}
	text = gatetest.Must(json.Marshal(file))(t)
	path := filepath.Join(t.TempDir(), "plans.json")
	gatetest.NoError(t, os.WriteFile(path, text, 0o600))
	return "PLANS=" + path
}

// The API keys in plans.json.
const (
	ann = "sk-example-acme-ann"
	bob = "sk-example-acme-bob"
	eve = "sk-example-globex-eve"
)

// ask is a streamed chat of at most 130 tokens.
const ask = `{"model":"example-large","stream":true,"max_tokens":130,"messages":[{"role":"user","content":"Tell me of the gate."}]}`

// try sends a request. The test closes the body of the response at its end.
func try(t *testing.T, method, url, body string, headers ...string) (*http.Response, error) {
	request, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	response, err := http.DefaultClient.Do(request)
	if err == nil {
		t.Cleanup(func() { _ = response.Body.Close() })
	}
	return response, err
}

// exchange is try for the goroutine of the test.
func exchange(t *testing.T, method, url, body string, headers ...string) *http.Response {
	t.Helper()
	return gatetest.Must(try(t, method, url, body, headers...))(t)
}

func post(t *testing.T, url, body string, headers ...string) *http.Response {
	t.Helper()
	return exchange(t, http.MethodPost, url, body, headers...)
}

// send sends a chat with an API key.
func (r *replica) send(t *testing.T, key string) *http.Response {
	t.Helper()
	return post(t, r.api+"/v1/chat/completions", ask, "Authorization", "Bearer "+key)
}

// queue sends a chat that is not expected to be answered soon.
func (r *replica) queue(t *testing.T, key string) <-chan *http.Response {
	answered := make(chan *http.Response, 1)
	go func() {
		response, err := try(t, http.MethodPost, r.api+"/v1/chat/completions", ask, "Authorization", "Bearer "+key)
		gatetest.Worked(t, err)
		answered <- response
	}()
	return answered
}

func readAll(t *testing.T, response *http.Response) string {
	t.Helper()
	text := gatetest.Must(io.ReadAll(response.Body))(t)
	return string(text)
}

// snapshot reads the feed, which must be without a notice.
func (r *replica) snapshot(t *testing.T) snapshot {
	t.Helper()
	s := r.feed(t)
	gatetest.Need(t, s.Notice, "", "got")
	return s
}

// feed reads the first event of the feed.
func (r *replica) feed(t *testing.T) (s snapshot) {
	t.Helper()
	response := gatetest.Must(http.Get(r.operator + "/feed"))(t)
	defer response.Body.Close()
	line := gatetest.Must(bufio.NewReader(response.Body).ReadBytes('\n'))(t)
	gatetest.NoError(t, json.Unmarshal(bytes.TrimPrefix(line, []byte("data: ")), &s))
	return s
}

func (r *replica) tenant(t *testing.T, name string) tenantStatus {
	t.Helper()
	for _, now := range r.snapshot(t).Tenants {
		if now.Name == name {
			return now
		}
	}
	t.Fatalf("no tenant %s", name)
	return tenantStatus{}
}

// spent returns what a tenant has spent of a budget.
func (r *replica) spent(t *testing.T, tenant, budget string) int64 {
	t.Helper()
	for _, b := range r.tenant(t, tenant).Budgets {
		if b.Name == budget {
			return b.Limit - b.Left
		}
	}
	t.Fatalf("no budget %s", budget)
	return 0
}

// model is an upstream whose answers the test writes.
type model struct {
	calls chan *call
}

// call is a request that the model answers.
type call struct {
	t       *testing.T
	request *http.Request
	events  chan string
	left    chan struct{} // closed when the client has left
}

func startModel(t *testing.T) (m *model, env []string) {
	m = &model{calls: make(chan *call, 100)}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return
		}
		c := &call{t, r.Clone(context.Background()), make(chan string), make(chan struct{})}
		defer close(c.left)
		w.Header().Set("Content-Type", "text/event-stream")
		control := http.NewResponseController(w)
		_ = control.Flush()
		m.calls <- c
		for {
			select {
			case event, more := <-c.events:
				if !more {
					return
				}
				_, _ = fmt.Fprintf(w, "data: %s\n\n", event)
				_ = control.Flush()
			case <-r.Context().Done():
				return
			}
		}
	}))
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return m, []string{"UPSTREAM=" + server.URL, "UPSTREAM_KEY=sk-upstream"}
}

// next returns the next call.
func (m *model) next(t *testing.T) *call {
	t.Helper()
	select {
	case c := <-m.calls:
		return c
	case <-time.After(patience):
		t.Fatal("the model is not called")
		return nil
	}
}

// say sends words, each of which is a token. It reports false if the client has left.
func (c *call) say(words ...string) bool {
	for _, w := range words {
		text, _ := json.Marshal(w)
		if !c.send(`{"choices":[{"index":0,"delta":{"content":` + string(text) + `},"finish_reason":null}]}`) {
			return false
		}
	}
	return true
}

// finish ends the answer and tells its usage.
func (c *call) finish(input, output int) {
	c.send(`{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`)
	c.send(fmt.Sprintf(`{"choices":[],"usage":{"prompt_tokens":%d,"completion_tokens":%d}}`, input, output))
	c.send("[DONE]")
	close(c.events)
}

func (c *call) send(event string) bool {
	select {
	case c.events <- event:
		return true
	case <-c.left:
		return false
	}
}
