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
	"testing"
	"time"
)

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
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
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
	text, err := os.ReadFile("plans.json")
	if err != nil {
		t.Fatal(err)
	}
	var file map[string]any
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	file["plans"] = map[string]any{"team": p, "trial": p}
	if text, err = json.Marshal(file); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "plans.json")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
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
	response, err := try(t, method, url, body, headers...)
	if err != nil {
		t.Fatal(err)
	}
	return response
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
		if err != nil {
			t.Error(err)
		}
		answered <- response
	}()
	return answered
}

func readAll(t *testing.T, response *http.Response) string {
	t.Helper()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// snapshot reads the feed, which must be without a notice.
func (r *replica) snapshot(t *testing.T) snapshot {
	t.Helper()
	s := r.feed(t)
	if s.Notice != "" {
		t.Fatal(s.Notice)
	}
	return s
}

// feed reads the first event of the feed.
func (r *replica) feed(t *testing.T) (s snapshot) {
	t.Helper()
	response, err := http.Get(r.operator + "/feed")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	line, err := bufio.NewReader(response.Body).ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(bytes.TrimPrefix(line, []byte("data: ")), &s)
	}
	if err != nil {
		t.Fatalf("feed: %s, %v", line, err)
	}
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
