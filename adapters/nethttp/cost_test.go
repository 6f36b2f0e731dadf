package nethttp_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/gatetest"
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
				gatetest.Worked(t, err)
				read = string(b)
				return 7
			}}, func(cfg *nethttp.Config) {
				cfg.BufferBody, cfg.MaxDelay = c.buffer, 1
			}).Handler(http.HandlerFunc(echoBody))
			w := post(h, strings.NewReader(text), c.length)
			gatetest.Equal(t, read, c.want, "Cost read")
			if w.Code != 200 || w.Body.String() != text {
				t.Errorf("the handler read %q, status %d", w.Body, w.Code)
			}
			gatetest.Equal(t, w.Header().Get("RateLimit"), `"p";r=93`, "RateLimit")
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
		{"breaks off", io.MultiReader(strings.NewReader("ab"), iotest.ErrReader(io.ErrUnexpectedEOF)), 400},
		{"too large", iotest.ErrReader(&http.MaxBytesError{Limit: 1}), 413},
	} {
		gatetest.Equal(t, post(g.Handler(http.HandlerFunc(ok)), c.body, -1).Code, c.status, "%s: status", c.name)
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
		gatetest.Equal(t, cost(&http.Request{ContentLength: length}), want, "a length of %d costs", length)
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

// A client that leaves while its request waits leaves the queue immediately, although no handler
// has read its body.
func TestClientLeavesTheQueue(t *testing.T) {
	for name, head := range map[string]string{
		"without a body": "GET / HTTP/1.1\r\n\r\n",
		"a length":       "POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}",
		"chunks":         "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			queued, end, entered := make(chan int, 10), make(chan struct{}), make(chan struct{})
			g, s := chat(t, memory(t, newClock()), func(cfg *nethttp.Config) {
				cfg.BufferBody = 2
				cfg.Slot.MaxWait = generous
				cfg.Slot.Caps[1].Limit = 1
				cfg.Slot.OnQueue = func(_ *http.Request, position int) { queued <- position }
			})
			srv := httptest.NewServer(g.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				got, err := io.ReadAll(r.Body)
				if want := strings.Repeat("{}", min(1, strings.Count(head, "POST"))); err != nil || string(got) != want {
					t.Errorf("body %q, %v", got, err)
				}
				entered <- struct{}{}
				<-end
			})))
			defer srv.Close()
			send := func() net.Conn {
				c := gatetest.Must(net.Dial("tcp", srv.Listener.Addr().String()))(t)
				gatetest.Must(fmt.Fprint(c, strings.Replace(head, "\r\n", "\r\nHost: x\r\nX-Tenant: acme\r\nX-User: ann\r\n", 1)))(t)
				return c
			}
			first := send()
			defer first.Close()
			<-entered
			second := send()
			gatetest.Equal(t, <-queued, 0, "it waits at place")
			third := get(g.Handler(http.HandlerFunc(ok)), as("acme", "ann"))
			if s := body(t, third); third.StatusCode != 429 || !strings.Contains(s, "queue is full") {
				t.Errorf("above MaxWaiters: %d, %s", third.StatusCode, s)
			}
			gatetest.NoError(t, second.Close())
			holders(t, s, "acme", 1)
			end <- struct{}{}
			holders(t, s, "acme", 0)
			r := get(g.Handler(http.HandlerFunc(ok)), as("acme", "ann"))
			gatetest.Equal(t, r.Header.Get("RateLimit"), `"requests";r=8`, "RateLimit after two")
		})
	}
}

// The handler reads a buffered body as it was sent. A body that cannot be read spends nothing.
func TestBufferedBody(t *testing.T) {
	broken := errors.New("broken")
	for _, c := range []struct {
		name   string
		body   io.Reader
		length int64
		status int
	}{
		{"none", http.NoBody, 0, 200},
		{"short", strings.NewReader("abc"), 3, 200},
		{"as long", strings.NewReader("abcd"), 4, 200},
		{"longer", strings.NewReader("abcde"), 5, 200},
		{"unknown, short", strings.NewReader("abc"), -1, 200},
		{"unknown, as long", strings.NewReader("abcd"), -1, 200},
		{"unknown, longer", strings.NewReader("abcdefgh"), -1, 200},
		{"breaks off", io.MultiReader(strings.NewReader("ab"), iotest.ErrReader(broken)), 4, 400},
		{"breaks off late", io.MultiReader(strings.NewReader("abcd"), iotest.ErrReader(broken)), -1, 400},
		{"forbidden", http.MaxBytesReader(nil, io.NopCloser(strings.NewReader("abc")), 2), -1, 413},
	} {
		t.Run(c.name, func(t *testing.T) {
			var errs []error
			var sent bytes.Buffer
			h := counted(t, func(cfg *nethttp.Config) {
				cfg.BufferBody, cfg.MaxDelay = 4, 1
				cfg.Observe = observed(func(a *nethttp.Admission) { errs = append(errs, a.Err()) })
			}).Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if n := sent.Len(); n > 5 { // one more tells that the body is longer
					t.Errorf("%d bytes are read before the handler runs", n)
				}
				echoBody(w, r)
			}))
			w := post(h, io.TeeReader(c.body, &sent), c.length)
			same := w.Body.String() == sent.String()
			if w.Code != c.status || c.status == 200 && !same || c.status == 400 && !errors.Is(errs[0], broken) {
				t.Errorf("status %d, %v: the handler reads %q of %q", w.Code, errs, w.Body, sent.String())
			}
			want := `"p";r=8`
			if c.status != 200 {
				want = `"p";r=9`
			}
			sent.Reset()
			gatetest.Equal(t, get(h).Header.Get("RateLimit"), want, "RateLimit")
		})
	}
}

// A form that was parsed outside the Guard keeps its uploads, even if a Cost reads the body.
func TestCostBodyKeepsUploads(t *testing.T) {
	guard := priced(t, nethttp.Rule{CostBody: 10, Cost: func(*http.Request) int64 { return 1 }})
	var uploaded []byte
	inner := guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		file, _, err := r.FormFile("upload")
		if err != nil {
			t.Error(err)
			return
		}
		defer file.Close()
		uploaded, _ = io.ReadAll(file)
	}))
	outer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := r.ParseMultipartForm(10); err != nil { // larger uploads are files
			t.Error(err)
		}
		inner.ServeHTTP(w, r)
	})
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	part := gatetest.Must(form.CreateFormFile("upload", "file"))(t)
	content := bytes.Repeat([]byte("x"), 64<<10)
	gatetest.Must(part.Write(content))(t)
	gatetest.NoError(t, form.Close())
	r := httptest.NewRequest(http.MethodPost, "/", &body)
	r.Header.Set("Content-Type", form.FormDataContentType())
	outer.ServeHTTP(httptest.NewRecorder(), r)
	gatetest.NoError(t, r.MultipartForm.RemoveAll()) // as a server does
	if !bytes.Equal(uploaded, content) {
		t.Errorf("%d bytes uploaded, want %d", len(uploaded), len(content))
	}
}

// settled is a guard of three rules: all counts every request, logins counts 401 and 403 only, and
// work counts no server errors. A request costs 1, 2 and 2.
func settled(t *testing.T, gate *core.Gate, change ...func(*nethttp.Config)) *nethttp.Guard {
	t.Helper()
	two := func(*http.Request) int64 { return 2 }
	cfg := nethttp.Config{Gate: gate, Rules: []nethttp.Rule{
		{Policy: policy(t, core.PolicyConfig{Name: "all", Algorithm: core.TokenBucket{Burst: 100}}), Key: keyfunc.RemoteIP()},
		{Policy: policy(t, core.PolicyConfig{Name: "logins", Algorithm: core.TokenBucket{Burst: 20}}), Key: keyfunc.RemoteIP(), Cost: two, Settle: nethttp.CountOnly(401, 403)},
		{Policy: policy(t, core.PolicyConfig{Name: "work", Algorithm: core.TokenBucket{Burst: 20}}), Key: keyfunc.RemoteIP(), Cost: two, Settle: nethttp.RefundServerErrors},
	}}
	for _, f := range change {
		f(&cfg)
	}
	return guard(t, cfg)
}

// remaining returns what each policy had left before this call.
func remaining(g *nethttp.Guard, outer ...func(http.Handler) http.Handler) string {
	var all []string
	h := g.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		d := nethttp.AdmissionFromContext(r.Context()).Decision()
		for i := range d.Len() {
			all = append(all, strconv.FormatInt(d.At(i).Remaining+[]int64{1, 2, 2}[i], 10))
		}
	}))
	for _, wrap := range outer {
		h = wrap(h)
	}
	get(h)
	return strings.Join(all, " ")
}

// A flush that no ResponseWriter below can do begins no response, through an inner Guard too: the
// handler may still fail.
func TestFlushThatNothingSupports(t *testing.T) {
	t.Parallel()
	eachGate(t, func(t *testing.T, gate *core.Gate) {
		g := settled(t, gate)
		inner := settled(t, memory(t, newClock()))
		h := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			gatetest.Is(t, http.NewResponseController(w).Flush(), http.ErrNotSupported, "error")
			w.WriteHeader(500)
		})
		guarded := g.Handler(inner.Handler(h))
		get(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			guarded.ServeHTTP(struct{ http.ResponseWriter }{w}, r)
		}))
		if outside, inside := remaining(g), remaining(inner); outside != "99 20 20" || inside != "99 20 20" {
			t.Errorf("%s and %s remain", outside, inside)
		}
	})
}

// A running request has spent its cost, so concurrent requests cannot overspend the limit, whatever
// their responses.
func TestSettleCannotBeOverspent(t *testing.T) {
	t.Parallel()
	eachGate(t, func(t *testing.T, gate *core.Gate) {
		g := settled(t, gate)
		var entered, refused sync.WaitGroup
		entered.Add(10)
		refused.Add(20)
		h := g.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			entered.Done()
			refused.Wait()
			w.WriteHeader(500)
		}))
		var all sync.WaitGroup
		for range 30 {
			all.Go(func() {
				if get(h).StatusCode == 429 {
					refused.Done()
				}
			})
		}
		entered.Wait()
		all.Wait()
		gatetest.Equal(t, remaining(g), "90 20 20", "remain")
	})
}

// A rule may charge what the handler measured, also more than the cost.
func TestSettleActual(t *testing.T) {
	type usage struct{}
	g := settled(t, memory(t, newClock()), func(cfg *nethttp.Config) {
		cfg.Rules[2].Settle = func(r *http.Request, status int, cost int64) int64 {
			if status != 200 || cost != 2 {
				t.Errorf("status %d, cost %d", status, cost)
			}
			return *r.Context().Value(usage{}).(*int64)
		}
	})
	h := g.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		*r.Context().Value(usage{}).(*int64) += 15
	}))
	count := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), usage{}, new(int64))))
		})
	}
	get(count(h))
	gatetest.Equal(t, remaining(g, count), "99 20 5", "remain")
}

// The rule sees the status that the server sends, by whatever call the handler sends it.
func TestSettleSeesWhatIsSent(t *testing.T) {
	for name, c := range map[string]struct {
		handler http.HandlerFunc
		want    int
	}{
		"copied": {func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.Copy(w, strings.NewReader("ok"))
			w.WriteHeader(500)
		}, 200},
		"nothing could be copied": {func(w http.ResponseWriter, _ *http.Request) {
			if _, err := io.Copy(w, iotest.ErrReader(io.ErrUnexpectedEOF)); err != nil {
				http.Error(w, "bad gateway", http.StatusBadGateway)
			}
		}, 502},
		"early hints and then an error": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusEarlyHints)
			w.WriteHeader(500)
		}, 500},
		"switched": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(101) }, 101},
	} {
		t.Run(name, func(t *testing.T) {
			seen := make(chan int, 1)
			g := settled(t, memory(t, newClock()), func(cfg *nethttp.Config) {
				cfg.Rules[2].Settle = func(_ *http.Request, status int, cost int64) int64 { seen <- status; return cost }
			})
			s := httptest.NewServer(g.Handler(c.handler))
			defer s.Close()
			r := gatetest.Must(s.Client().Get(s.URL))(t)
			defer r.Body.Close()
			if got := <-seen; got != c.want || r.StatusCode != c.want {
				t.Errorf("sent %d, seen %d, want %d", r.StatusCode, got, c.want)
			}
		})
	}
}
