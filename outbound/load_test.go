package outbound_test

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/provider"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/llm"
	"github.com/headgate/headgate/outbound"
)

// load is what each Transport of a load test does.
type load struct {
	URL       string
	For       time.Duration
	Every     time.Duration // a request begins that often
	MaxWait   time.Duration
	PerSecond int64 // requests, under the client's own limits
	PerMinute int64
	Burst     int64
	Tokens    int64 // a minute
	Streams   int64
	Limit     string // that the rules name
}

// loadDone is what came of it.
type loadDone struct {
	OK, Busy, Refused, Failed int
	Error                     string
	Late                      time.Duration // the longest time that the process did not run
}

func (l *load) transport(t *testing.T, g *core.Gate, base http.RoundTripper) *outbound.Transport {
	meter := core.Must(llm.NewOutbound(llm.OutboundConfig{CountsCap: true}))
	cfg := outbound.Config{
		Base: base, Gate: g, Meter: meter, MaxWait: l.MaxWait,
	}
	rule := func(name string, unit core.Unit, a core.Algorithm) {
		p := gatetest.Policy(t, core.PolicyConfig{Name: name, Unit: unit, Algorithm: a})
		cfg.Rules = append(cfg.Rules, outbound.Rule{Policy: p, Key: outbound.ByModel, Limit: l.Limit})
	}
	if l.PerSecond > 0 {
		rule("second", core.UnitRequests, core.TokenBucket{Rate: l.PerSecond, Per: time.Second, Burst: l.Burst})
	}
	if l.PerMinute > 0 {
		rule("minute", core.UnitRequests, core.TokenBucket{Rate: l.PerMinute, Per: time.Minute, Burst: l.Burst})
	}
	if l.Tokens > 0 {
		rule("tokens", core.UnitTokens, core.TokenBucket{Rate: l.Tokens, Per: time.Minute, Burst: 1000})
	}
	if l.Streams > 0 {
		cfg.Slot = &outbound.Slot{
			Semaphore: newSemaphore(t, g, semaphore.Config{MaxWaiters: 10_000}),
			Caps:      []outbound.Cap{{Key: outbound.ByModel, Limit: l.Streams}},
		}
	}
	return transport(t, cfg)
}

// run begins a request at every tick, however many wait.
func (l *load) run(t *testing.T, tr *outbound.Transport) (done loadDone) {
	var mu sync.Mutex
	var all sync.WaitGroup
	ticker := time.NewTicker(l.Every)
	defer ticker.Stop()
	start := time.Now()
	for i := 0; time.Since(start) < l.For; {
		<-ticker.C
		done.Late = max(done.Late, time.Since(start)-time.Duration(i+1)*l.Every)
		for ; time.Duration(i)*l.Every < time.Since(start); i++ { // ticks that the process has missed
			n := i
			all.Go(func() {
				status, err := l.one(t, tr, n)
				mu.Lock()
				defer mu.Unlock()
				switch {
				case errors.Is(err, outbound.ErrBusy):
					done.Busy++
				case err != nil:
					done.Failed++
					done.Error = err.Error()
				case status != http.StatusOK:
					done.Refused++
				default:
					done.OK++
				}
			})
		}
	}
	all.Wait()
	return done
}

func (l *load) one(t *testing.T, tr *outbound.Transport, i int) (int, error) {
	body := fmt.Sprintf(`{"model":"m","stream":true,"max_tokens":%d,"messages":[{"role":"user","content":"hello there"}]}`, 10+i%3*20)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, l.URL+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		return 0, err
	}
	r.Header.Set("Authorization", "Bearer key")
	r.Header.Set("X-Request-Id", fmt.Sprint(time.Now().UnixNano()))
	res, err := tr.RoundTrip(r)
	if err != nil {
		return 0, err
	}
	defer func() { _ = res.Body.Close() }()
	_, err = io.Copy(io.Discard, res.Body)
	return res.StatusCode, err
}

// together runs a Transport on each of the Gates.
func (l load) together(t *testing.T, gates []*core.Gate, base http.RoundTripper) (sum loadDone) {
	t.Helper()
	var mu sync.Mutex
	var all sync.WaitGroup
	for _, g := range gates {
		tr := l.transport(t, g, base)
		all.Go(func() {
			one := l.run(t, tr)
			mu.Lock()
			defer mu.Unlock()
			sum.add(one)
		})
	}
	all.Wait()
	return sum
}

// inMemory runs four Transports on one Gate in memory, in a bubble.
func (l load) inMemory(t *testing.T, p *provider.Provider) loadDone {
	t.Helper()
	l.URL = "http://example.com"
	return l.together(t, slices.Repeat([]*core.Gate{gatetest.Memory(t, core.Config{})}, 4), answering(p))
}

// onReplicas runs four Transports, each on a Gate of its own that shares a Redis with the others, for a
// minute.
func (l load) onReplicas(t *testing.T, s *redistest.Server, p *provider.Provider, prefix string) loadDone {
	t.Helper()
	u := httptest.NewServer(p)
	defer u.Close()
	var gates []*core.Gate
	for range 4 {
		gates = append(gates, gatetest.Redis(t, s.Client(t), core.Config{Prefix: prefix, Timeout: gatetest.LongTimeout}))
	}
	l.URL, l.For = u.URL, time.Minute
	return l.together(t, gates, &http.Transport{MaxIdleConnsPerHost: 1000})
}

// answering is a base transport whose responses are those of a handler, once they are complete.
func answering(h http.Handler) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		if r.Body == nil {
			r.Body = http.NoBody
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Result(), nil
	})
}

func (d *loadDone) add(one loadDone) {
	d.OK, d.Busy, d.Refused, d.Failed = d.OK+one.OK, d.Busy+one.Busy, d.Refused+one.Refused, d.Failed+one.Failed
	d.Late = max(d.Late, one.Late)
	if one.Error != "" {
		d.Error = one.Error
	}
}

// Transports under twice the load that a provider takes use it to its limits, in order, and it refuses
// nothing.
func TestProviderIsUsedToItsLimits(t *testing.T) {
	t.Run("memory", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p, l := aProvider()
			l.For = 4 * time.Second
			gatetest.Equal(t, useToTheLimits(t, p, l.inMemory(t, p)), "", "got")
		})
	})
	t.Run("replicas", func(t *testing.T) {
		if !gatetest.Long() {
			t.Skip("it takes a minute")
		}
		s := redistest.Start(t)
		for try := range 3 {
			p, l := aProvider()
			done := l.onReplicas(t, s, p, fmt.Sprint("try", try))
			fault := useToTheLimits(t, p, done)
			switch {
			case fault == "":
				return
			case done.Late < 50*time.Millisecond:
				t.Fatal(fault)
			}
			t.Logf("try %d: the process did not run for %v", try, done.Late)
		}
		t.Skip("the machine is too busy")
	})
}

// Four transports under twice the load that a provider of each kind takes use at least 97 % of it, and it
// refuses at most 1 %.
func TestEachKindOfProviderIsUsed(t *testing.T) {
	for name, c := range map[string]struct {
		provider provider.Config
		load     load
		capacity float64 // a second, of requests or tokens
	}{
		"a bucket": {
			provider.Config{Form: provider.OpenAI, Limits: []provider.Limit{{Unit: provider.Requests, N: 60, Per: time.Second, Burst: 6}}},
			load{PerSecond: 60, Burst: 5}, 60,
		},
		"a window": {
			provider.Config{Form: provider.GitHub, Limits: []provider.Limit{{Unit: provider.Requests, N: 600, Per: time.Minute, Window: true}}},
			load{PerMinute: 600, Burst: 1, Limit: "requests", For: 4 * time.Minute, Every: 4 * time.Second / 20}, 10,
		},
		"tokens": {
			provider.Config{
				Form: provider.Anthropic, Limits: []provider.Limit{{Unit: provider.Tokens, N: 60_000, Per: time.Minute, Burst: 2000}},
				Usage: func(q provider.Request) (int64, int64) { return 4, q.MaxTokens },
			},
			load{Tokens: 60_000}, 1000,
		},
		"a cap": {
			provider.Config{Form: provider.OpenAI, Streams: 6, Took: 100 * time.Millisecond}, load{Streams: 6}, 60,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(30 * 365 * 24 * time.Hour) // a bubble begins in 2000: seconds since 1970 were few
				p, l := provider.New(c.provider), c.load
				l.For, l.MaxWait = cmp.Or(l.For, 12*time.Second), 2*time.Second
				l.Every = cmp.Or(l.Every, 4*time.Second/120) // 120 requests a second of all
				done := l.inMemory(t, p)
				n, all := p.Counts(), p.Arrivals()
				took := all[len(all)-1].At.Sub(all[0].At).Seconds()
				units := n.Accepted
				if l.Tokens > 0 {
					units = n.Tokens
				}
				used, refused := float64(units)/(c.capacity*took), float64(n.Refused)/float64(len(all))
				t.Logf("%+v; %+v in %v: used to %.2f %%, %.2f %% refused", done, n, took, 100*used, 100*refused)
				if used < 0.97 || refused > 0.01 || done.Failed > 0 {
					t.Error("it is not used to its limit, or refuses")
				}
			})
		})
	}
}

const perSecond, tokensPerMinute = 60, 144_000

// aProvider returns a provider, and the load of one of four clients that know its limits and ask for
// twice as much.
func aProvider() (*provider.Provider, load) {
	const streams = 40
	p := provider.New(provider.Config{
		Form: provider.OpenAI,
		Limits: []provider.Limit{
			{Unit: provider.Requests, N: perSecond + 6, Per: time.Second},
			{Unit: provider.Requests, N: 60 * perSecond, Per: time.Minute, Burst: perSecond},
			{Unit: provider.Tokens, N: tokensPerMinute, Per: time.Minute, Burst: 10_000},
		},
		Streams: streams, Took: 50 * time.Millisecond,
		Usage: func(q provider.Request) (int64, int64) { return 4, q.MaxTokens },
	})
	return p, load{
		Every: 4 * time.Second / (2 * perSecond), MaxWait: 2 * time.Second,
		PerSecond: perSecond + 6, PerMinute: 60 * perSecond, Burst: 1, Tokens: tokensPerMinute, Streams: streams,
	}
}

// useToTheLimits tells what is wrong with how a provider was used.
func useToTheLimits(t *testing.T, p *provider.Provider, done loadDone) (fault string) {
	n, all := p.Counts(), p.Arrivals()
	took := all[len(all)-1].At.Sub(all[0].At)
	used := max(float64(n.Accepted-1)/(60*perSecond*took.Minutes()), float64(n.Tokens)/(tokensPerMinute*took.Minutes()))
	most, sum := overtakes(all)
	t.Logf("%+v; the provider: %+v in %v, used to %.2f %%; a request was overtaken by at most %d, and by %.2f on average",
		done, n, took, 100*used, most, float64(sum)/float64(len(all)))
	if n.Refused > 0 || done.Refused > 0 || done.Failed > 0 || used < 0.98 || most > 128 { // calls in a batch
		return fmt.Sprintf("%d refused and %d failed, used to %.2f %%, a request was overtaken by %d",
			n.Refused, done.Failed, 100*used, most)
	}
	return ""
}

// overtakes returns by how many later requests one was overtaken at most, and the sum for all.
func overtakes(all []provider.Arrival) (most, sum int) {
	for i, a := range all {
		n := 0
		for _, before := range all[:i] {
			if before.ID > a.ID { // nanoseconds since 1970, all of as many digits
				n++
			}
		}
		most, sum = max(most, n), sum+n
	}
	return most, sum
}

// While others use half of an account, its headers alone keep the provider from refusing more than
// 1 % after the first window.
func TestOthersUseHalfOfTheAccount(t *testing.T) {
	const window = 3 * time.Second
	const inWindow = 600
	for form, limit := range map[provider.Form]string{provider.OpenAI: "requests", provider.Draft11: "l0", provider.GitHub: "requests"} {
		t.Run(form.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(30 * 365 * 24 * time.Hour) // a bubble begins in 2000: seconds since 1970 were few
				p := provider.New(provider.Config{
					Form: form, Limits: []provider.Limit{{Unit: provider.Requests, N: inWindow, Per: window, Window: true}},
				})
				l := load{
					Every: 20 * time.Millisecond, MaxWait: 2 * time.Second, PerMinute: inWindow * 20, Burst: 10, Limit: limit,
					For: 7 * time.Second,
				}
				end := others(t, window/300, answering(p), "http://example.com")
				l.inMemory(t, p)
				end()
				ours, refused := 0, 0
				all := p.Arrivals()
				for _, a := range all {
					if a.ID != "" && a.At.Sub(all[0].At) >= window {
						if ours++; a.Refused {
							refused++
						}
					}
				}
				if ours == 0 || refused*100 > ours {
					t.Errorf("%d of %d were refused", refused, ours)
				}
			})
		})
	}
}

// others sends a request without an ID at every tick until end.
func others(t *testing.T, every time.Duration, rt http.RoundTripper, url string) (end func()) {
	over := make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		ticker := time.NewTicker(every)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
			case <-over:
				return
			}
			all.Go(func() {
				r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(`{"model":"m"}`))
				r.Header.Set("Authorization", "Bearer key")
				if res, err := rt.RoundTrip(r); err == nil {
					_ = res.Body.Close()
				}
			})
		}
	})
	return func() {
		close(over)
		all.Wait()
	}
}
