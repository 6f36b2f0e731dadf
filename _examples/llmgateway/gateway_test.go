package main

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/internal/redistest"
)

// What one recorded answer costs: 24 tokens of input and 89 of output of example-large.
const transcriptCost = 24*3 + 89*15

// Every format passes byte for byte, and is settled to the token.
func TestTranscripts(t *testing.T) {
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
	if other := r.spent(t, "globex", "spend"); other != 0 {
		t.Errorf("another tenant has spent %d", other)
	}
}

func TestModelsCostNothing(t *testing.T) {
	r := start(t, withPlan(t, generous))
	response := exchange(t, http.MethodGet, r.api+"/v1/models", "", "Authorization", "Bearer "+ann)
	want, err := testdata.ReadFile("testdata/models.json")
	if body := readAll(t, response); err != nil || body != string(want) {
		t.Errorf("status %d, %s, %v", response.StatusCode, body, err)
	}
	if spent := r.spent(t, "acme", "tokens"); spent != 0 {
		t.Errorf("%d tokens", spent)
	}
}

func TestAuthentication(t *testing.T) {
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
	r := start(t)
	for _, path := range []string{"/", "/feed"} {
		if status := exchange(t, http.MethodGet, r.api+path, "", "Authorization", "Bearer "+ann).StatusCode; status != http.StatusNotFound {
			t.Errorf("%s: status %d", path, status)
		}
	}
	text, err := json.Marshal(r.snapshot(t))
	if err != nil || strings.Contains(string(text), "sk-") || strings.Contains(string(text), "d0ca99") {
		t.Errorf("the feed: %s, %v", text, err)
	}
	response := post(t, r.operator+"/v1/chat/completions", ask, "X-Act-As", "acme/ann", "Sec-Fetch-Site", "cross-site")
	if response.StatusCode != http.StatusForbidden {
		t.Errorf("from another site: %v", response)
	}
}

// Neither side sees the other's credentials and limits.
func TestHeaders(t *testing.T) {
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

func TestExhaustedBudget(t *testing.T) {
	limits := generous
	limits.MicroDollarsPerMonth = 2500 // enough for one estimate, and not for another after it
	r := start(t, withPlan(t, limits))
	readAll(t, r.send(t, ann))
	eventually(t, "the first is settled", func() bool { return r.spent(t, "acme", "spend") == transcriptCost })
	refused := r.send(t, bob)
	body := readAll(t, refused)
	if refused.StatusCode != http.StatusTooManyRequests || !strings.Contains(body, `"code":"insufficient_quota"`) ||
		refused.Header.Get("X-Should-Retry") != "false" { // Retry-After is absent until the month's last day
		t.Errorf("status %d, %s, %v", refused.StatusCode, body, refused.Header)
	}
	other := r.send(t, eve)
	if readAll(t, other); other.StatusCode != http.StatusOK {
		t.Errorf("another tenant: status %d", other.StatusCode)
	}
}

func TestQueue(t *testing.T) {
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
	if r.send(t, bob).StatusCode != http.StatusOK { // another user does not wait
		t.Error("another user is refused")
	}
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

func TestTenantCap(t *testing.T) {
	m, env := startModel(t)
	limits := generous
	limits.StreamsPerTenant, limits.Queue, limits.MaxWait = 3, 0, ""
	r := start(t, append(env, withPlan(t, limits))...)
	for i := range 3 {
		if response := r.send(t, []string{ann, bob}[i%2]); response.StatusCode != http.StatusOK {
			t.Fatalf("stream %d: status %d", i, response.StatusCode)
		}
		m.next(t)
	}
	checkFull(t, r.send(t, ann), `All 3 concurrent requests of policy "tenant-streams" are in use.`)
	if status := r.send(t, eve).StatusCode; status != http.StatusOK {
		t.Errorf("another tenant: status %d", status)
	}
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
	redis   *redistest.Server
}

func slotsOf(t *testing.T, server *redistest.Server) slots {
	t.Helper()
	gate := core.Must(core.NewRedis(server.Client(t), core.Config{Timeout: 30 * time.Second}))
	streams := core.Must(semaphore.New(gate, semaphore.Config{Name: "streams"}))
	return slots{t, streams, core.Must(core.NewKey("acme")), server}
}

// empty waits until nobody holds or awaits a slot.
func (s slots) empty() {
	s.t.Helper()
	client := s.redis.Client(s.t)
	eventually(s.t, "no key of the streams is left", func() bool {
		return len(redistest.Keys(s.t, client, "*:streams:*")) == 0
	})
}

// The slots of a replica that dies go to the requests that wait at another one.
func TestKilledReplicaFreesItsSlots(t *testing.T) {
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
	if err := killed.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	// No process renews these slots, so each ends within a lease.
	s := slotsOf(t, server)
	holders, _, err := s.streams.Holders(context.Background(), s.key)
	for _, h := range holders {
		if h.Left > lease {
			t.Errorf("a slot is taken for %v more", h.Left)
		}
	}
	if err != nil {
		t.Error(err)
	}
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

// Without Redis no money is spent: requests are refused with 503, and the page says why.
func TestRedisDown(t *testing.T) {
	server := redistest.Start(t)
	r := start(t, withPlan(t, generous), "REDIS_URL=redis://"+server.Addr)
	if response := r.send(t, ann); response.StatusCode != http.StatusOK {
		t.Fatalf("status %d", response.StatusCode)
	}
	server.Kill()
	eventually(t, "the feed says so", func() bool {
		return r.feed(t).Notice == "The limits cannot be read: Redis does not answer."
	})
	response := r.send(t, ann)
	if response.StatusCode != http.StatusServiceUnavailable || response.Header.Get("Retry-After") == "" {
		t.Errorf("status %d, %v", response.StatusCode, response.Header)
	}
	server.Restart()
	eventually(t, "requests pass again", func() bool { return r.send(t, ann).StatusCode == http.StatusOK })
}

// A replica that stops lets running streams go on, and refuses queued and new requests.
func TestShutdown(t *testing.T) {
	server := redistest.Start(t)
	m, env := startModel(t)
	limits := generous
	limits.StreamsPerUser = 1
	r := start(t, append(env, withPlan(t, limits), "REDIS_URL=redis://"+server.Addr)...)
	running := r.send(t, ann)
	c := m.next(t)
	waiter := r.queue(t, ann)
	eventually(t, "a request waits", func() bool { return r.tenant(t, "acme").Waiting == 1 })
	feed, err := http.Get(r.operator + "/feed")
	if err != nil {
		t.Fatal(err)
	}
	defer feed.Body.Close()
	if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
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
	if err := r.cmd.Wait(); err != nil {
		t.Errorf("the replica ends with %v", err)
	}
	slotsOf(t, server).empty()
}
