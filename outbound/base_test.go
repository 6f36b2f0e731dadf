package outbound_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/outbound"
)

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

// A body that a Pool has had anew for the next upstream is closed if none has room.
func TestPoolClosesTheBodyThatNoUpstreamReads(t *testing.T) {
	g := gatetest.Memory(t, core.Config{})
	u := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		refuse(http.StatusTooManyRequests, "{}", "Retry-After", "3600")(w)
	})
	p := pool(t, outbound.PoolConfig{
		Upstreams: accounts(t, g, core.PerHour(100)), Retry: outbound.Retry{Max: 1},
	})
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, u.URL, strings.NewReader("text"))
	if err != nil {
		t.Fatal(err)
	}
	var again *closer
	r.GetBody = func() (io.ReadCloser, error) {
		again = newCloser("text")
		return again, nil
	}
	res, err := p.RoundTrip(r)
	if err != nil || res.StatusCode != http.StatusTooManyRequests {
		t.Fatal(res, err)
	}
	_ = res.Body.Close()
	if again == nil || !again.closed.Load() {
		t.Error("the body that was had anew is open")
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
	if err != nil {
		t.Fatal(err)
	}
	_, err = p.RoundTrip(r)
	wantBusy(t, err, "inner")
}

// The refusals of requests that run at the same time are one reason to cool.
func TestConcurrentGuessesAreOne(t *testing.T) {
	eachGate(t, func(t *testing.T, g *core.Gate) {
		const n = 20
		all := make(chan struct{})
		come := make(chan struct{}, n)
		r := newRig(t, outbound.Config{Gate: g, Backoff: outbound.Backoff{First: time.Second, Most: time.Minute}})
		done := make(chan struct{}, n)
		for range n {
			r.push(func(w http.ResponseWriter) {
				come <- struct{}{}
				<-all
				refuse(429, "{}")(w)
			})
			go func() {
				_, _ = get(t, r.tr, r.URL)
				done <- struct{}{}
			}()
		}
		for range n {
			<-come
		}
		close(all)
		for range n {
			<-done
			if e := <-r.cooled; e.For > time.Second {
				t.Errorf("cools for %v", e.For)
			}
		}
	})
}

// A refusal is read too if the caller has asked for a compressed body, and it gets that as it is.
func TestCompressedRefusal(t *testing.T) {
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	_, _ = io.WriteString(z, `{"error":{"code":"insufficient_quota"}}`)
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
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
			res, err := r.tr.RoundTrip(request(t, t.Context(), r.URL))
			if err != nil || (res.Body == http.NoBody) != (body == "") {
				t.Fatal(res, err)
			}
			gatetest.Eventually(t, "the slot is free", func() bool { return holders(t, slot, r.URL) == 0 })
			if text, err := io.ReadAll(res.Body); string(text) != body || err != nil {
				t.Errorf("%q, %v", text, err)
			}
			_ = res.Body.Close()
		})
	}
}
