package nethttp_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/keyfunc"
)

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
			if err := http.NewResponseController(w).Flush(); !errors.Is(err, http.ErrNotSupported) {
				t.Errorf("error %v", err)
			}
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
		if got := remaining(g); got != "90 20 20" {
			t.Errorf("%s remain", got)
		}
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
	if got := remaining(g, count); got != "99 20 5" {
		t.Errorf("%s remain", got)
	}
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
			if _, err := io.Copy(w, errorReader{io.ErrUnexpectedEOF}); err != nil {
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
