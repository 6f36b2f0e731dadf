package outbound_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/outbound"
)

// stream answers with a first line, and a second one when the test lets it.
func stream(t *testing.T, more <-chan struct{}) *upstream {
	return serve(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "first\n")
		w.(http.Flusher).Flush()
		select {
		case <-more:
			_, _ = io.WriteString(w, "second\n")
		case <-r.Context().Done():
		}
	})
}

// holders returns how many slots are held at an upstream.
func holders(t *testing.T, s *outbound.Slot, url string) (n int) {
	t.Helper()
	key := core.Must(outbound.ByCredential(request(t, t.Context(), url)))
	all, _, err := s.Semaphore.Holders(t.Context(), key)
	gatetest.NoError(t, err)
	return len(all)
}

// evict evicts the one holder of a key.
func evict(t *testing.T, s *outbound.Slot, key core.Key) {
	t.Helper()
	all, _, err := s.Semaphore.Holders(t.Context(), key)
	if err != nil || len(all) != 1 {
		t.Fatal(all, err)
	}
	gatetest.Must(s.Semaphore.Evict(t.Context(), key, all[0].ID))(t)
}

// However a response ends, its slot comes back, and what was reserved is settled.
func TestSlotComesBack(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, res *http.Response, more chan struct{}, cancel func()){
		"read to its end": func(t *testing.T, res *http.Response, more chan struct{}, _ func()) {
			close(more)
			if text, err := io.ReadAll(res.Body); string(text) != "first\nsecond\n" || err != nil {
				t.Errorf("%q, %v", text, err)
			}
		},
		"closed unread": func(_ *testing.T, res *http.Response, _ chan struct{}, _ func()) {
			_ = res.Body.Close()
		},
		"closed while it is read": func(_ *testing.T, res *http.Response, _ chan struct{}, _ func()) {
			_, _ = io.ReadFull(res.Body, make([]byte, len("first\n")))
			read := make(chan struct{})
			go func() {
				defer close(read)
				_, _ = res.Body.Read(make([]byte, 1))
			}()
			_ = res.Body.Close()
			<-read
		},
		"context ends, and nobody reads": func(_ *testing.T, _ *http.Response, _ chan struct{}, cancel func()) { cancel() },
		"context ends while it is read": func(t *testing.T, res *http.Response, _ chan struct{}, cancel func()) {
			_, _ = io.ReadFull(res.Body, make([]byte, len("first\n")))
			cancel()
			gatetest.Is(t, gatetest.Err(io.ReadAll(res.Body)), context.Canceled, "got")
		},
	} {
		t.Run(name, func(t *testing.T) {
			eachGate(t, func(t *testing.T, g *core.Gate) {
				more := make(chan struct{})
				u, slot := stream(t, more), slotOf(t, g, 1)
				settled := make(chan int64, 1)
				policy := gatetest.Policy(t, core.PolicyConfig{Name: "a", Algorithm: gatetest.Frozen(100), Hold: time.Minute})
				tr := transport(t, outbound.Config{
					Base: base(t), Gate: g, Slot: slot,
					Rules: []outbound.Rule{{
						Policy: policy, Key: outbound.ByHost, Cost: func(*http.Request) int64 { return 10 },
						Settle: func(_ *http.Request, res *http.Response, cost int64) int64 {
							if res == nil || res.StatusCode != http.StatusOK {
								t.Error(res)
							}
							settled <- cost
							return 3
						},
					}},
				})
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				res := roundTrip(t, tr, request(t, ctx, u.URL))
				gatetest.Equal(t, holders(t, slot, u.URL), 1, "slots are held by a stream")
				_, err := get(t, tr, u.URL)
				wantBusy(t, err, "streams")
				end(t, res, more, cancel)
				gatetest.Eventually(t, "the slot is free", func() bool { return holders(t, slot, u.URL) == 0 })
				gatetest.Equal(t, <-settled, 10, "settled from")
				key, _ := outbound.ByHost(request(t, t.Context(), u.URL))
				gatetest.Eventually(t, "the rule is settled", func() bool { return standing(t, g, policy, key).Used == 3 })
				_ = res.Body.Close()
				select {
				case <-settled:
					t.Error("settled twice")
				default:
				}
			})
		})
	}
}

// A request that got no connection gives back what it spent, unless a bucket refills anyway and nothing
// settles it. One that may have reached the upstream stays spent, although a later dial failed.
func TestDialErrorRefunds(t *testing.T) {
	g := gatetest.Memory(t, core.Config{})
	u, first := serve(t, nil), base(t)
	again := roundTripper(func(r *http.Request) (*http.Response, error) {
		if res, err := first.RoundTrip(r); err == nil {
			_ = res.Body.Close() // as one that sends again
		}
		return nil, &net.OpError{Op: "dial", Err: errors.New("refused")}
	})
	bucket := core.TokenBucket{Rate: 1, Per: time.Hour, Burst: 5}
	for name, limit := range map[string]core.Algorithm{"frozen": gatetest.Frozen(5), "bucket": bucket, "settled": bucket} {
		for url, b := range map[string]http.RoundTripper{"http://" + unreachable(t): base(t), u.URL: again} {
			policy := gatetest.Limited(t, name, limit)
			tr := transport(t, outbound.Config{Base: b, Gate: g, Rules: []outbound.Rule{{
				Policy: policy, Key: outbound.ByHost, Clamp: name == "settled", Cost: func(*http.Request) int64 { return 3 },
			}}})
			if _, err := get(t, tr, url); err == nil {
				t.Fatal("no error")
			}
			used := func() int64 {
				return standing(t, g, policy, core.Must(outbound.ByHost(request(t, t.Context(), url)))).Used
			}
			if url != u.URL && name != "bucket" {
				gatetest.Eventually(t, name+": the cost is refunded", func() bool { return used() == 0 })
			} else if n := used(); n != 3 {
				t.Errorf("%s: %d used", name, n)
			}
		}
	}
}

// A request that is sent again in a way that asks for no connection may have reached the upstream.
func TestRetryWithoutConnectionStaysSpent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, policy, sent := gatetest.Memory(t, core.Config{}), gatetest.Limited(t, "a", gatetest.Frozen(10)), 0
		tr := transport(t, outbound.Config{
			Gate: g, MaxWait: time.Minute, Retry: outbound.Retry{Max: 1}, Rules: []outbound.Rule{{Policy: policy, Key: outbound.ByHost}},
			Base: roundTripper(func(r *http.Request) (*http.Response, error) {
				if sent++; sent > 1 {
					return nil, errors.New("the connection is lost")
				}
				httptrace.ContextClientTrace(r.Context()).GetConn("")
				return &http.Response{StatusCode: 429, Header: http.Header{"Retry-After": {"1"}}, Body: http.NoBody}, nil
			}),
		})
		if _, err := get(t, tr, "http://example.com/"); err == nil {
			t.Error("no error")
		}
		synctest.Wait()
		gatetest.Equal(t, standing(t, g, policy, gatetest.Key(t, "example.com")).Used, 2, "used")
	})
}

// A request whose slot is lost before it is sent asks again, and sends once: after its last question, or
// while it waits for a rule.
func TestSlotLostBeforeSending(t *testing.T) {
	for _, waits := range []bool{false, true} {
		lost := make(chan struct{}, 1)
		var slot *outbound.Slot
		evicted := false
		evictOnce := func() {
			if !evicted {
				evicted = true
				evict(t, slot, gatetest.Key(t, "example.com"))
				<-lost
			}
		}
		g := gatetest.Memory(t, core.Config{Observe: func(_ context.Context, e core.Event) {
			switch e := e.(type) {
			case *semaphore.LeaseEvent:
				if e.Kind == semaphore.LeaseEvicted {
					lost <- struct{}{}
				}
			case *core.DecisionEvent:
				if !waits && e.Op == core.OpDecide && e.Decision.Len() == 1 {
					evictOnce()
				}
			}
		}})
		slot = slotOf(t, g, 1)
		slot.Caps[0].Key = outbound.ByHost
		sent := 0
		tr := transport(t, outbound.Config{
			Gate: g, Slot: slot, MaxWait: time.Minute,
			Rules: []outbound.Rule{{Policy: gatetest.Limited(t, "a", core.TokenBucket{Rate: 20, Per: time.Second, Burst: 1}), Key: outbound.ByHost}},
			Base: roundTripper(func(r *http.Request) (*http.Response, error) {
				if sent++; r.Context().Err() != nil {
					t.Error(context.Cause(r.Context()))
				}
				return &http.Response{StatusCode: 200, Body: http.NoBody}, nil
			}),
			Observe: func(_ context.Context, e core.Event) {
				if waits && e.EventName() == "wait" {
					evictOnce()
				}
			},
		})
		for range 2 {
			gatetest.Must(get(t, tr, "http://example.com/"))(t)
			gatetest.Eventually(t, "the slot is free", func() bool { return holders(t, slot, "http://example.com/") == 0 })
		}
		if sent != 2 || !evicted {
			t.Errorf("%d sent, evicted %v", sent, evicted)
		}
	}
}

// A request whose slot is lost is cancelled, so that the cap holds.
func TestLostSlotCancelsItsRequest(t *testing.T) {
	t.Parallel()
	eachGate(t, func(t *testing.T, g *core.Gate) {
		u, slot := stream(t, nil), slotOf(t, g, 1)
		tr := transport(t, outbound.Config{Base: base(t), Gate: g, Slot: slot})
		res := roundTrip(t, tr, request(t, t.Context(), u.URL))
		key, _ := outbound.ByCredential(request(t, t.Context(), u.URL))
		evict(t, slot, key)
		gatetest.Is(t, gatetest.Err(io.ReadAll(res.Body)), semaphore.ErrLeaseLost, "the body ends with")
		_ = res.Body.Close()
	})
}

// An upgraded connection can be written to, and keeps its slot until it is closed.
func TestUpgrade(t *testing.T) {
	eachGate(t, func(t *testing.T, g *core.Gate) {
		u, slot := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			c, rw, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer func() { _ = c.Close() }()
			_, _ = rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
			_ = rw.Flush()
			line, _ := rw.ReadString('\n')
			_, _ = rw.WriteString(strings.ToUpper(line))
			_ = rw.Flush()
			if _, err := rw.ReadByte(); err != io.EOF { // the client has ended what it writes
				t.Error(err)
			}
			_, _ = rw.WriteString("bye\n")
			_ = rw.Flush()
		}), slotOf(t, g, 1)
		tr := transport(t, outbound.Config{Base: base(t), Gate: g, Slot: slot})
		r := request(t, t.Context(), u.URL)
		r.Header.Set("Connection", "Upgrade")
		r.Header.Set("Upgrade", "echo")
		res := gatetest.Must(tr.RoundTrip(r))(t)
		gatetest.Need(t, res.StatusCode, http.StatusSwitchingProtocols, "got")
		both, ok := res.Body.(io.ReadWriteCloser)
		if !ok {
			t.Fatalf("%T cannot be written to", res.Body)
		}
		if _, err := io.WriteString(both, "hello\n"); err != nil {
			t.Error(err)
		}
		lines := bufio.NewReader(both)
		if line, err := lines.ReadString('\n'); line != "HELLO\n" || err != nil {
			t.Errorf("%q, %v", line, err)
		}
		gatetest.Equal(t, holders(t, slot, u.URL), 1, "slots are held")
		half, ok := res.Body.(interface{ CloseWrite() error }) // as httputil.ReverseProxy asks
		if !ok || half.CloseWrite() != nil {
			t.Errorf("%T cannot be closed for writing", res.Body)
		}
		if line, err := lines.ReadString('\n'); line != "bye\n" || err != nil {
			t.Errorf("%q, %v", line, err)
		}
		_ = both.Close()
		gatetest.Eventually(t, "the slot is free", func() bool { return holders(t, slot, u.URL) == 0 })
	})
}

// Informational responses and HTTP/2 pass, and a response names the request of the caller.
func TestInformationalResponsesOverHTTP2(t *testing.T) {
	eachGate(t, func(t *testing.T, g *core.Gate) {
		u := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Link", "</style.css>")
			w.WriteHeader(http.StatusEarlyHints)
			w.Header().Set("Trailer", "X-End")
			_, _ = fmt.Fprint(w, r.Proto)
			w.Header().Set("X-End", "yes")
		}))
		u.EnableHTTP2 = true
		u.StartTLS()
		t.Cleanup(u.Close)
		hints := 0
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
			Got1xxResponse: func(code int, _ textproto.MIMEHeader) error {
				hints += code
				return nil
			},
		})
		tr := transport(t, outbound.Config{Base: u.Client().Transport, Gate: g, Slot: slotOf(t, g, 1)})
		r := request(t, ctx, u.URL)
		res := roundTrip(t, tr, r)
		text, err := io.ReadAll(res.Body)
		if string(text) != "HTTP/2.0" || err != nil || hints != http.StatusEarlyHints || res.Request != r ||
			res.Trailer.Get("X-End") != "yes" {
			t.Errorf("%q, %v, hints %d, trailer %v", text, err, hints, res.Trailer)
		}
		tr.CloseIdleConnections()
	})
}

// panicking is a Meter whose measure panics at a response.
type panicking struct{}

func (panicking) Measure(*http.Request) (outbound.Measure, error) {
	return panics{&pathMeasure{"m"}}, nil
}

type panics struct{ *pathMeasure }

func (panics) Response(*http.Response) { panic("response") }

// A request whose Base, Meter or observer panics, and one whose Base returns nothing, give their
// slot back and close the response.
func TestPanicsGiveTheSlotBack(t *testing.T) {
	answer := func(status int, body io.ReadCloser) outbound.Config {
		return outbound.Config{Base: roundTripper(func(*http.Request) (*http.Response, error) {
			return &http.Response{
				StatusCode: status, Body: body, Header: http.Header{"Retry-After": {"1"}},
			}, nil
		})}
	}
	for _, c := range []struct {
		name   string
		make   func(body *closer) outbound.Config
		panics bool
		opened bool
	}{
		{name: "base", panics: true, make: func(*closer) outbound.Config {
			return outbound.Config{Base: roundTripper(func(*http.Request) (*http.Response, error) { panic("base") })}
		}},
		{name: "base returns nothing", make: func(*closer) outbound.Config {
			return outbound.Config{Base: roundTripper(func(*http.Request) (*http.Response, error) { return nil, nil })}
		}},
		{name: "meter", panics: true, opened: true, make: func(body *closer) outbound.Config {
			cfg := answer(http.StatusOK, body)
			cfg.Meter = panicking{}
			return cfg
		}},
		{name: "observer", panics: true, opened: true, make: func(body *closer) outbound.Config {
			cfg := answer(http.StatusTooManyRequests, body)
			cfg.Observe = func(_ context.Context, e core.Event) {
				if _, ok := e.(*outbound.CooldownEvent); ok {
					panic("observer")
				}
			}
			return cfg
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := gatetest.Memory(t, core.Config{})
			slot, body := slotOf(t, g, 1), newCloser("text")
			cfg := c.make(body)
			cfg.Gate, cfg.Slot = g, slot
			tr := transport(t, cfg)
			func() {
				defer func() {
					if (recover() != nil) != c.panics {
						t.Error("panics:", !c.panics)
					}
				}()
				res, err := tr.RoundTrip(request(t, t.Context(), "http://example.com/m"))
				if res != nil || err == nil {
					t.Error(res, err)
				}
			}()
			gatetest.Eventually(t, "the slot is free", func() bool {
				return holders(t, slot, "http://example.com/m") == 0
			})
			if body.closed.Load() != c.opened {
				t.Error("the response is closed:", !c.opened)
			}
		})
	}
}

// A body that an upstream has had is not sent to another one, even if the error of that upstream's
// Base is a BusyError.
func TestPoolSendsABodyOnce(t *testing.T) {
	g := gatetest.Memory(t, core.Config{})
	upstream := func(name string, base http.RoundTripper) outbound.Upstream {
		return outbound.Upstream{Name: name, Transport: transport(t, outbound.Config{Base: base, Gate: g})}
	}
	p := pool(t, outbound.PoolConfig{Upstreams: []outbound.Upstream{
		upstream("a", roundTripper(func(r *http.Request) (*http.Response, error) {
			_, _ = io.ReadAll(r.Body)
			_ = r.Body.Close()
			return nil, &outbound.BusyError{Rule: "inner", After: time.Second}
		})),
		upstream("b", roundTripper(func(r *http.Request) (*http.Response, error) {
			text, _ := io.ReadAll(r.Body)
			t.Errorf("the second upstream got %q", text)
			return nil, errors.New("sent")
		})),
	}})
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://example.com/", newCloser("text"))
	gatetest.NoError(t, err)
	_, err = p.RoundTrip(r)
	wantBusy(t, err, "inner")
}

// A refusal is read too if the caller has asked for a compressed body, and it gets that as it is.
func TestCompressedRefusal(t *testing.T) {
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	_, _ = io.WriteString(z, `{"error":{"code":"insufficient_quota"}}`)
	gatetest.NoError(t, z.Close())
	u := newRig(t, outbound.Config{})
	u.push(refuse(http.StatusTooManyRequests, zipped.String(), "Content-Encoding", "gzip"))
	r := request(t, t.Context(), u.URL)
	r.Header.Set("Accept-Encoding", "gzip")
	res := roundTrip(t, u.tr, r)
	if got, err := io.ReadAll(res.Body); !bytes.Equal(got, zipped.Bytes()) || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	_ = res.Body.Close()
	if busy := u.busy("", "spent"); !busy.Spent {
		t.Errorf("%+v", busy)
	}
}

// hanging is a body whose rest comes when the test lets it.
type hanging struct {
	first, rest io.Reader
	let         chan struct{}
	closed      chan struct{}
	once        sync.Once
}

func (h *hanging) Read(p []byte) (int, error) {
	if n, err := h.first.Read(p); err == nil {
		return n, nil
	}
	select {
	case <-h.let:
		return h.rest.Read(p)
	case <-h.closed:
		return 0, errors.New("closed")
	}
}

func (h *hanging) Close() error {
	h.once.Do(func() { close(h.closed) })
	return nil
}

// A refusal whose body hangs cools for what its headers tell, and its caller gets it all the same.
func TestHangingRefusal(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status int
		header http.Header
		least  time.Duration
	}{
		"told":       {429, http.Header{"Retry-After": {"60"}}, 50 * time.Second},
		"guessed":    {429, http.Header{}, time.Second},
		"overloaded": {503, http.Header{"Retry-After": {"60"}}, 50 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			eachGate(t, func(t *testing.T, g *core.Gate) {
				t.Parallel()
				long := strings.Repeat("x", 200<<10)
				body := &hanging{
					first: strings.NewReader("slow "), rest: strings.NewReader(long),
					let: make(chan struct{}), closed: make(chan struct{}),
				}
				tr := transport(t, outbound.Config{
					Gate: g, Backoff: outbound.Backoff{First: time.Minute, Most: time.Minute},
					Base: roundTripper(func(*http.Request) (*http.Response, error) {
						return &http.Response{StatusCode: c.status, Header: c.header, Body: body}, nil
					}),
				})
				res, err := tr.RoundTrip(request(t, t.Context(), "http://example.com/"))
				if err != nil || res.StatusCode != c.status {
					t.Fatal(res, err)
				}
				_, err = tr.RoundTrip(request(t, t.Context(), "http://example.com/"))
				if busy := wantBusy(t, err, "cooldown"); busy.After < c.least {
					t.Errorf("%+v", busy)
				}
				close(body.let)
				if text, err := io.ReadAll(res.Body); string(text) != "slow "+long || err != nil {
					t.Errorf("%d bytes, %v", len(text), err)
				}
				_ = res.Body.Close()
				<-body.closed
			})
		})
	}
}

// A response without a body, and a refusal whose body has come, hold no slot, even if nobody closes them.
func TestNothingToReadHoldsNoSlot(t *testing.T) {
	for body, status := range map[string]int{"": 204, "slow down": 429} {
		eachGate(t, func(t *testing.T, g *core.Gate) {
			slot := slotOf(t, g, 1)
			r := newRig(t, outbound.Config{Gate: g, Slot: slot})
			r.push(refuse(status, body))
			res := gatetest.Must(r.tr.RoundTrip(request(t, t.Context(), r.URL)))(t)
			gatetest.Need(t, res.Body == http.NoBody, body == "", "got")
			gatetest.Eventually(t, "the slot is free", func() bool { return holders(t, slot, r.URL) == 0 })
			if text, err := io.ReadAll(res.Body); string(text) != body || err != nil {
				t.Errorf("%q, %v", text, err)
			}
			_ = res.Body.Close()
		})
	}
}
