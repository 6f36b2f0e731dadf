package nethttp_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfunc"
)

// priced is a guard of 100 units that never come back.
func priced(t *testing.T, rule nethttp.Rule, change ...func(*nethttp.Config)) *nethttp.Guard {
	t.Helper()
	rule.Policy = policy(t, core.PolicyConfig{Name: "p", Algorithm: core.TokenBucket{Burst: 100}})
	rule.Key = keyfunc.RemoteIP()
	cfg := nethttp.Config{Gate: memory(t, newClock()), Rules: []nethttp.Rule{rule}}
	for _, f := range change {
		f(&cfg)
	}
	return guard(t, cfg)
}

// post sends a body. A length of -1 is that of a chunked one.
func post(h http.Handler, body io.Reader, length int64) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "/", nil)
	r.Body, r.ContentLength = io.NopCloser(body), length
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// echoBody answers with the body that it reads.
func echoBody(w http.ResponseWriter, r *http.Request) {
	b, err := io.ReadAll(r.Body)
	if err != nil {
		w.WriteHeader(http.StatusTeapot)
	}
	_, _ = w.Write(b)
}

func TestCostReadsTheBody(t *testing.T) {
	const text = `{"max_tokens": 7, "prompt": "a prompt"}`
	for _, c := range []struct {
		name   string
		length int64
		buffer int64 // Config.BufferBody
		most   int64 // Rule.CostBody
		want   string
	}{
		{"shorter than CostBody", int64(len(text)), 0, 1000, text},
		{"as long as CostBody", int64(len(text)), 0, int64(len(text)), text},
		{"longer than CostBody", int64(len(text)), 0, 10, text[:10]},
		{"chunked", -1, 0, 1000, text},
		{"chunked and longer", -1, 0, 10, text[:10]},
		{"buffered too", -1, 1000, 10, text[:10]},
	} {
		t.Run(c.name, func(t *testing.T) {
			read := ""
			h := priced(t, nethttp.Rule{CostBody: c.most, Cost: func(r *http.Request) int64 {
				b, err := io.ReadAll(r.Body)
				if err != nil {
					t.Error(err)
				}
				read = string(b)
				return 7
			}}, func(cfg *nethttp.Config) {
				cfg.BufferBody, cfg.MaxDelay = c.buffer, 1
			}).Handler(http.HandlerFunc(echoBody))
			w := post(h, strings.NewReader(text), c.length)
			if read != c.want {
				t.Errorf("Cost read %q, want %q", read, c.want)
			}
			if w.Code != 200 || w.Body.String() != text {
				t.Errorf("the handler read %q, status %d", w.Body, w.Code)
			}
			if got := w.Header().Get("RateLimit"); got != `"p";r=93` {
				t.Errorf("RateLimit %s", got)
			}
		})
	}
}

// Two rules read the same body, and neither sees more than it asked for.
func TestCostsOfTwoRulesReadTheBody(t *testing.T) {
	var read []string
	cost := func(r *http.Request) int64 {
		b, _ := io.ReadAll(r.Body)
		read = append(read, string(b))
		return 1
	}
	g := priced(t, nethttp.Rule{CostBody: 2, Cost: cost}, func(cfg *nethttp.Config) {
		second := cfg.Rules[0]
		second.Policy = policy(t, core.PolicyConfig{Name: "second", Algorithm: core.PerMinute(9)})
		second.CostBody = 4
		cfg.Rules = append(cfg.Rules, second)
	})
	w := post(g.Handler(http.HandlerFunc(echoBody)), strings.NewReader("abcdef"), 6)
	if got := strings.Join(read, " "); got != "ab abcd" || w.Body.String() != "abcdef" {
		t.Errorf("the rules read %q, the handler %q", got, w.Body)
	}
}

// A form that Cost parses from the first bytes must not be the one that the handler gets.
func TestCostDoesNotParseTheHandlersForm(t *testing.T) {
	g := priced(t, nethttp.Rule{CostBody: 4, Cost: func(r *http.Request) int64 {
		return int64(len(r.PostFormValue("a")))
	}})
	h := g.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.PostFormValue("a"))
	}))
	r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader("a=12345"))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if w.Body.String() != "12345" || w.Header().Get("RateLimit") != `"p";r=98` {
		t.Errorf("the handler's form has %q, RateLimit %s", w.Body, w.Header().Get("RateLimit"))
	}
}

func TestCostOfABodyThatCannotBeRead(t *testing.T) {
	g := priced(t, nethttp.Rule{CostBody: 10, Cost: func(*http.Request) int64 {
		t.Error("Cost is called")
		return 1
	}})
	for _, c := range []struct {
		name   string
		body   io.Reader
		status int
	}{
		{"breaks off", io.MultiReader(strings.NewReader("ab"), errorReader{io.ErrUnexpectedEOF}), 400},
		{"too large", errorReader{&http.MaxBytesError{Limit: 1}}, 413},
	} {
		if w := post(g.Handler(http.HandlerFunc(ok)), c.body, -1); w.Code != c.status {
			t.Errorf("%s: status %d, want %d", c.name, w.Code, c.status)
		}
	}
}

func TestNegativeCostSaysWhatToDo(t *testing.T) {
	for _, c := range []struct {
		name string
		cost func(*http.Request) int64
		want string
	}{
		{"chunked", func(r *http.Request) int64 { return r.ContentLength }, "use nethttp.ContentLength"},
		{"other", func(*http.Request) int64 { return -2 }, "Rule.Cost of p returned -2: it must not be negative"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var err error
			g := priced(t, nethttp.Rule{Cost: c.cost}, func(cfg *nethttp.Config) {
				cfg.Observe = observed(func(a *nethttp.Admission) { err = a.Err() })
			})
			w := post(g.Handler(http.HandlerFunc(ok)), strings.NewReader("abc"), -1)
			if w.Code != 500 || !errors.Is(err, core.ErrCharge) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("status %d, %v", w.Code, err)
			}
		})
	}
}

func TestContentLength(t *testing.T) {
	cost := nethttp.ContentLength(40)
	for length, want := range map[int64]int64{3: 3, 0: 0, -1: 40} {
		if got := cost(&http.Request{ContentLength: length}); got != want {
			t.Errorf("a length of %d costs %d, want %d", length, got, want)
		}
	}
}

// The refusal names what stands in the way: the limit, what is left of it, or that nothing is left.
func TestRefusalNamesTheReason(t *testing.T) {
	for _, c := range []struct {
		name      string
		algorithm core.Algorithm
		before    int64 // cost of an earlier request
		cost      int64
		status    int
		want      string
	}{
		{"above the burst of an empty bucket", core.PerMinute(10), 10, 11, 413, `The cost of the request exceeds the limit of policy "p".`},
		{"above the gift", core.TokenBucket{Burst: 10}, 9, 11, 413, `The cost of the request exceeds the limit of policy "p".`},
		{"more than is left", core.PerMinute(10), 9, 2, 429, `The request costs more than is left of policy "p".`},
		{"more than is left for ever", core.TokenBucket{Burst: 10}, 9, 2, 429, `The request costs more than is left of policy "p".`},
		{"nothing left", core.PerMinute(10), 10, 2, 429, `The quota of policy "p" is exhausted.`},
		{"nothing left for ever", core.TokenBucket{Burst: 10}, 10, 2, 429, `The quota of policy "p" is exhausted.`},
	} {
		t.Run(c.name, func(t *testing.T) {
			cost := c.before
			all := rules(t, core.PolicyConfig{Name: "p", Algorithm: c.algorithm})
			all[0].Cost = func(*http.Request) int64 { return cost }
			h := served(t, nethttp.Config{Rules: all})
			get(h)
			cost = c.cost
			r := get(h)
			answers(t, r, c.status)
			var problem struct{ Detail string }
			if err := json.NewDecoder(r.Body).Decode(&problem); err != nil || problem.Detail != c.want {
				t.Errorf("detail %q, want %q; %v", problem.Detail, c.want, err)
			}
		})
	}
}

// A request whose cost is 0 spends nothing, and passes however often it comes.
func TestCostOfZeroSpendsNothing(t *testing.T) {
	g := priced(t, nethttp.Rule{Cost: func(*http.Request) int64 { return 0 }})
	for range 3 {
		a := g.Admit(forged())
		if d := a.Decision(); !a.Allowed() || d.At(0).Used != 0 {
			t.Errorf("allowed %v, %d used", a.Allowed(), d.At(0).Used)
		}
	}
}
