package provider_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/provider"
	"github.com/headgate/headgate/internal/redistest"
)

var start = time.Date(2026, 11, 25, 0, 0, 0, 0, time.UTC)

// clock is one that a test sets.
type clock struct{ now time.Time }

func send(p http.Handler, model string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest("POST", "/v1/chat/completions", strings.NewReader(`{"model":"`+model+`","max_tokens":5}`))
	for _, h := range header {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
	}
	w := httptest.NewRecorder()
	p.ServeHTTP(w, r)
	return w
}

// A refused request passes after the wait that the provider tells, and not a nanosecond earlier.
func TestWaitIsExact(t *testing.T) {
	random := redistest.Rand(t)
	for _, limits := range [][]provider.Limit{
		{{Unit: provider.Requests, N: 7, Per: time.Second}},
		{{Unit: provider.Requests, N: 7, Per: time.Second, Burst: 1}},
		{{Unit: provider.Requests, N: 10, Per: time.Minute, Window: true}},
		{{Unit: provider.Tokens, N: 30, Per: time.Second, Log: true}},
		{{Unit: provider.Requests, N: 3, Per: time.Second}, {Unit: provider.Tokens, N: 100, Per: time.Minute}},
	} {
		c := &clock{start}
		p := provider.New(provider.Config{Limits: limits, Now: func() time.Time { return c.now }, Form: provider.Message,
			Usage: func(provider.Request) (int64, int64) { return 3, 4 }})
		for range 300 {
			w := send(p, "m")
			if w.Code == http.StatusOK {
				c.now = c.now.Add(time.Duration(random.Int64N(int64(300 * time.Millisecond))))
				continue
			}
			_, text, _ := strings.Cut(w.Body.String(), "try again in ")
			wait, err := time.ParseDuration(strings.TrimSuffix(strings.TrimSpace(text), `."}}`))
			if err != nil || wait <= 0 {
				t.Fatalf("%v: %s", limits, w.Body)
			}
			c.now = c.now.Add(wait - 1)
			if send(p, "m").Code == http.StatusOK {
				t.Fatalf("%v: passed before the end of %v", limits, wait)
			}
			c.now = c.now.Add(1)
			if w := send(p, "m"); w.Code != http.StatusOK {
				t.Fatalf("%v: refused after %v: %s", limits, wait, w.Body)
			}
		}
	}
}

// Hosts, credentials and models have limits of their own, and a closed model delays no other.
func TestScopes(t *testing.T) {
	c := &clock{start}
	p := provider.New(provider.Config{Limits: []provider.Limit{{Unit: provider.Requests, N: 1, Per: time.Hour}}, Now: func() time.Time { return c.now }})
	for i, want := range []int{200, 429, 200, 429, 200, 200, 429} {
		model, key := "a", "x"
		switch i {
		case 2, 3:
			model = "b"
		case 4:
			key = "y"
		case 5, 6:
			model, key = "b", "y"
		}
		if got := send(p, model, "X-Api-Key: "+key).Code; got != want {
			t.Errorf("request %d: %d, want %d", i, got, want)
		}
	}
	c.now = c.now.Add(2 * time.Hour)
	p.Close("a", 5*time.Second)
	if a, b := send(p, "a", "X-Api-Key: x"), send(p, "b", "X-Api-Key: x"); a.Code != 429 || a.Header().Get("Retry-After") != "5" || b.Code != 200 {
		t.Errorf("%d after %s, %d", a.Code, a.Header().Get("Retry-After"), b.Code)
	}
	n := p.Counts()
	if all := p.Arrivals(); n.Accepted+n.Refused != int64(len(all)) || n.Accepted != 5 || all[8].Refused || all[7].Why != "closed" {
		t.Errorf("%+v, %v", n, all)
	}
}

func TestStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := provider.New(provider.Config{Streams: 2, Took: time.Minute})
		codes := make(chan int, 3)
		for range 3 {
			go func() { codes <- send(p, "m").Code }()
		}
		synctest.Wait()
		if n := p.Counts(); n.Open != 2 || n.MostOpen != 2 || <-codes != 429 {
			t.Errorf("%+v", n)
		}
		<-codes
		<-codes
		synctest.Wait()
		if n := p.Counts(); n.Open != 0 || send(p, "m").Code != 200 {
			t.Errorf("%+v", n)
		}
	})
}

// Answers state the usage that was counted, whole and as a stream.
func TestAnswers(t *testing.T) {
	p := provider.New(provider.Config{Usage: func(provider.Request) (int64, int64) { return 11, 22 }})
	for _, c := range []struct{ path, body, want string }{
		{"/v1/chat/completions", `{"model":"m"}`, `"usage":{"prompt_tokens":11,"completion_tokens":22,"total_tokens":33}}`},
		{"/v1/chat/completions", `{"model":"m","stream":true}`, "data: [DONE]\n\n"},
		{"/v1/messages", `{"model":"m"}`, `"usage":{"input_tokens":11,"output_tokens":22}}`},
		{"/v1/messages", `{"model":"m","stream":true}`, "event: message_stop\n"},
	} {
		w := httptest.NewRecorder()
		p.ServeHTTP(w, httptest.NewRequest("POST", c.path, strings.NewReader(c.body)))
		if body, _ := io.ReadAll(w.Body); !strings.Contains(string(body), c.want) {
			t.Errorf("%s: %s", c.path, body)
		}
	}
	if n := p.Counts(); n.Tokens != 4*33 {
		t.Errorf("%+v", n)
	}
}
