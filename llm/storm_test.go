package llm_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/keyfunc"
	"github.com/headgate/headgate/llm"
)

// stormed is a request of a recorded case in the storm.
type stormed struct {
	*llmCase
	fate   string // whole; broken off by the server; failed; or left by its client
	tenant string
	cut    int // bytes after which it breaks off, or its client leaves
	seed   uint64
	wrote  chan struct{} // closed when the server has sent what it sends

	id      string
	gateway int
	told    *llm.ResponseEvent
	sent    struct { // to the client
		status int
		body   string
	}
}

// storm is many requests through several gateways.
type storm struct {
	*testing.T
	all      []*stormed
	limit    int64 // of tokens of tenant-0
	clients  []*redis.Client
	gates    []*core.Gate
	gateways []*rig
	meter    *llm.Meter // of the last gateway

	mu sync.Mutex // guards told
}

// In a storm many clients send the recorded cases through four gateways. Some leave, some
// responses break off or fail, and one gateway loses Redis for good, as if it had died.
// Afterwards every budget has spent what the gateways have told, and no racing requests exceed a
// limit.
func TestStorm(t *testing.T) {
	t.Parallel()
	n := 400
	if gatetest.Long() {
		n = 10_000
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	s := &storm{T: t}
	s.draw(rand.New(rand.NewPCG(seed, 0)), n)
	upstream := httptest.NewServer(http.HandlerFunc(s.serve))
	server := redistest.Start(t)
	for range 4 {
		s.spawn(server, upstream.URL)
	}
	t.Cleanup(upstream.Close) // before the gateways, whose requests it ends
	queue := make(chan *stormed)
	var running sync.WaitGroup
	for range 32 {
		running.Go(func() {
			for one := range queue {
				s.run(one)
			}
		})
	}
	for i, one := range s.all {
		if i == n/2 {
			_ = s.clients[0].Close() // of the gateway that dies
		}
		queue <- one
	}
	close(queue)
	running.Wait()
	for _, g := range s.gateways {
		g.close()
	}
	s.check()
}

// draw draws n requests.
func (s *storm) draw(random *rand.Rand, n int) {
	metered := slices.DeleteFunc(llmCases(s.T), func(c *llmCase) bool { return c.Outcome == "other" })
	for id := range n {
		c := metered[random.IntN(len(metered))]
		one := &stormed{
			id: strconv.Itoa(id), llmCase: c, fate: []string{"whole", "whole", "whole", "broken", "failed", "left"}[random.IntN(6)],
			tenant: fmt.Sprintf("tenant-%d", random.IntN(3)), cut: random.IntN(max(1, len(c.body))),
			seed: random.Uint64(), wrote: make(chan struct{}), gateway: random.IntN(4),
		}
		s.all = append(s.all, one)
		if one.tenant == "tenant-0" && one.fate == "whole" {
			s.limit += min(c.Usage.usage(0).Total(), 10_000) / 3 // or one long answer is most of it
		}
	}
}

// serve is the upstream.
func (s *storm) serve(w http.ResponseWriter, r *http.Request) {
	id, _ := strconv.Atoi(r.Header.Get("X-Stream"))
	one := s.all[id]
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		return
	}
	length := one.cut
	switch one.fate {
	case "failed":
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	case "whole":
		length = len(one.body)
	case "left":
		defer func() {
			_ = recover() // that it breaks off
			close(one.wrote)
			<-r.Context().Done()
			panic(http.ErrAbortHandler)
		}()
	}
	one.answer(length, false, rand.New(rand.NewPCG(one.seed, 0)))(w, r)
}

// spawn adds a gateway.
func (s *storm) spawn(server *redistest.Server, upstream string) {
	client := server.Client(s.T)
	gate := gatetest.Redis(s.T, client, core.Config{Prefix: server.Prefix})
	cfg := llm.Config{
		Guard: nethttp.Config{Gate: gate}, Models: map[string]llm.Model{"m": {Tariff: llm.Tariff{Price: each}}},
		UnknownModel: llm.UnknownModelDearest, ChargeEvery: 2,
		Observe: func(_ context.Context, e core.Event) {
			told := *e.(*llm.ResponseEvent)
			id, _ := strconv.Atoi(told.HTTP.Header.Get("X-Stream"))
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.all[id].told != nil {
				s.Errorf("request %d is told twice", id)
			}
			s.all[id].told = &told
		},
	}
	for _, b := range []struct {
		name  string
		unit  core.Unit
		key   keyfunc.Func
		limit int64
	}{
		{"stream.tokens", core.UnitTokens, keyfunc.Must(keyfunc.Header("X-Stream")), 1e12},
		{"stream.money", core.UnitMicroDollars, keyfunc.Must(keyfunc.Header("X-Stream")), 1e12},
		{"tokens", core.UnitTokens, tenant, 1e12},
		{"money", core.UnitMicroDollars, tenant, 1e12},
		{"limited", core.UnitTokens, tenant, s.limit},
	} {
		p := core.Must(core.NewPolicy(core.PolicyConfig{
			Name: b.name, Unit: b.unit, Algorithm: gatetest.Frozen(b.limit), Hold: 2 * time.Second,
			OnFailure: core.FailClosed,
		}))
		cfg.Budgets = append(cfg.Budgets, llm.Budget{Policy: p, Key: b.key, Skip: func(r *http.Request) bool {
			return b.name == "limited" && r.Header.Get("X-Tenant") != "tenant-0"
		}})
	}
	s.meter = core.Must(llm.New(cfg))
	g := &rig{T: s.T}
	g.serve(s.meter.Handler(proxyTo(s.T, upstream)))
	s.clients, s.gates, s.gateways = append(s.clients, client), append(s.gates, gate), append(s.gateways, g)
}

// run is the client of a request.
func (s *storm) run(one *stormed) {
	ctx, leave := context.WithCancel(s.Context())
	defer leave()
	if one.fate == "left" {
		go func() {
			select {
			case <-one.wrote:
				leave()
			case <-ctx.Done():
			}
		}()
	}
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, s.gateways[one.gateway].url+one.path, strings.NewReader(one.ask))
	if err != nil {
		s.Error(err)
		return
	}
	q.Header = http.Header{
		"X-Tenant": {one.tenant}, "X-Stream": {one.id}, "Content-Type": {one.contentType},
	}
	response, err := plainClient.Do(q)
	if err != nil {
		return // it has left, or the response broke off at once
	}
	defer response.Body.Close()
	shown, _ := io.ReadAll(response.Body)
	one.sent.status, one.sent.body = response.StatusCode, string(shown)
}

// peek returns the budgets of a request, in their order.
func (s *storm) peek(tenant, stream string) (all []core.Result) {
	q := httptest.NewRequest(http.MethodPost, chatPath, nil)
	q.Header = http.Header{"X-Tenant": {tenant}, "X-Stream": {stream}}
	charges := gatetest.Must(s.meter.Guard(llm.FormatOpenAIChat).Charges(q))(s)
	d := gatetest.Peek(s.T, s.gates[3], charges...)
	for _, r := range d.Results() {
		all = append(all, r)
	}
	return all
}

// check compares what every request and tenant has spent with what the gateways have told.
func (s *storm) check() {
	gatetest.Eventually(s.T, "the gateway that died holds nothing", func() bool {
		return !slices.ContainsFunc(s.all, func(one *stormed) bool {
			return one.gateway == 0 && s.peek(one.tenant, one.id)[0].Held > 0
		})
	})
	sums, counts, debt := make(map[string][2]int64), make(map[string]int), int64(0)
	for _, one := range s.all {
		used := s.peek(one.tenant, one.id)
		tokens, money := used[0].Used, used[1].Used
		sums[one.tenant] = [...]int64{sums[one.tenant][0] + tokens, sums[one.tenant][1] + money}
		told, lost := one.told, one.gateway == 0 && tokens+money == 0
		switch {
		case told == nil && tokens+money == 0:
			if one.gateway != 0 {
				counts["refused"]++
			}
			continue
		case told == nil || !lost && (tokens != totalOf(told) || money != told.Cost):
			s.Errorf("request %s, %s: %d tokens and %d micro-dollars, told %+v", one.id, one.fate, tokens, money, told)
		case one.fate == "whole" && told.Outcome != llm.OutcomeLeft:
			one.check(s.T, *told)
			if one.sent.status != one.status || one.sent.body != string(one.shown()) {
				s.Errorf("request %s: the client was sent %+v", one.id, one.sent)
			}
		}
		counts[told.Outcome.String()]++
		debt += max(0, totalOf(told)-min(told.Estimate.Total(), s.limit))
	}
	for tenant, sum := range sums {
		if used := s.peek(tenant, "none"); used[2].Used != sum[0] || used[3].Used != sum[1] {
			s.Errorf("%+v are used of %s, its requests %v", used, tenant, sum)
		}
	}
	limited := s.peek("tenant-0", "none")[4].Used
	if limited > s.limit+debt || counts["refused"] == 0 || counts["cut"] == 0 {
		s.Errorf("%d of %d tokens are used with a debt of %d: %v", limited, s.limit, debt, counts)
	}
	s.Log(counts)
}

// totalOf returns the tokens of all models.
func totalOf(e *llm.ResponseEvent) int64 {
	sum := e.Usage.Total()
	for _, o := range e.Others {
		sum += o.Usage.Total()
	}
	return sum
}
