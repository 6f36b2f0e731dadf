package llm_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/llm"
)

// stormTimeout bounds each wait of the storm. It is long, so that a busy machine fails no test.
const stormTimeout = time.Minute

// storm is streams of many clients through several gateways, some of which are killed.
type storm struct {
	*testing.T
	config  stormConfig
	streams []*stream
	client  *http.Client
	gate    *core.Gate
	meter   *llm.Meter
	expired atomic.Int64 // holds of living gateways

	mu      sync.Mutex
	change  *sync.Cond // of live
	live    []*gateway
	broken  bool // a gateway could not be replaced
	settled map[int]settlement
	ended   []ending // by the id of the stream
	kills   int
}

// settlement is what a gateway says about a stream.
type settlement struct {
	outcome string
	tokens  int64
}

// ending is what a client saw of a stream.
type ending struct {
	gateway  *gateway
	status   int // 0 if there was no response
	received int // words of whole events: a client reads no part of a binary frame
	whole    bool
}

// In a storm, clients stream through four gateways. Some leave, some upstream responses fail, and
// some gateways are killed and replaced. Afterwards every budget has spent what its streams used.
func TestStorm(t *testing.T) {
	t.Parallel()
	n, kills, clients := 400, 2, 32
	if os.Getenv("HEADGATE_TEST_LONG") != "" {
		n, kills, clients = 10_000, 25, 48
	}
	seed := rand.Uint64()
	if text := os.Getenv("LLM_TEST_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("LLM_TEST_SEED=%d", seed)
	server := redistest.Start(t)
	s := &storm{
		T: t, streams: newStreams(seed, n, kills),
		settled: make(map[int]settlement), ended: make([]ending, n),
		client: &http.Client{Transport: &http.Transport{
			MaxIdleConnsPerHost: clients, DisableCompression: true,
		}},
	}
	s.change = sync.NewCond(&s.mu)
	upstream := httptest.NewServer(http.HandlerFunc(s.serve))
	s.config = stormConfig{server.Addr, server.Prefix, upstream.URL, s.demand() * 2 / 5}
	redisClient := server.Client(t)
	s.gate = s.config.gate(t, redisClient, func(core.Event) {})
	var err error
	if s.meter, err = s.config.meter(s.gate, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		upstream.Close()
		if err := s.gate.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	for range 4 {
		g, err := s.spawn()
		if err != nil {
			t.Fatal(err)
		}
		s.live = append(s.live, g)
	}

	queue := make(chan *stream)
	var running sync.WaitGroup
	for range clients {
		running.Go(func() {
			for one := range queue {
				s.ended[one.id] = s.run(one)
			}
		})
	}
	for _, one := range s.streams {
		queue <- one
	}
	close(queue)
	running.Wait()
	s.client.CloseIdleConnections() // a shutdown waits for connections without a request
	for _, g := range s.live {
		_ = g.in.Close() // ends it
	}
	for _, g := range s.live {
		if err := g.wait(); err != nil {
			t.Error(err)
		}
	}
	s.awaitExpiry(redisClient)
	s.check()
}

// demand returns what the capped tenant would spend without a limit.
func (s *storm) demand() (sum int64) {
	for _, one := range s.streams {
		if _, most := one.paid(0); one.tenant == capped {
			sum += most
		}
	}
	return sum
}

// serve is the upstream.
func (s *storm) serve(w http.ResponseWriter, r *http.Request) {
	id, err := strconv.Atoi(r.Header.Get("X-Stream"))
	if err != nil || id >= len(s.streams) {
		s.Errorf("the upstream is asked for stream %q", r.Header.Get("X-Stream"))
		return
	}
	one := s.streams[id]
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // its gateway was killed
	}
	asks := bytes.Contains(body, []byte(`"include_usage":true`))
	if one.format == llm.FormatOpenAIChat && !asks {
		s.Errorf("stream %d does not ask the upstream for its usage", id)
	}
	close(one.arrived) // panics if the request comes twice
	one.serve(w, r, asks)
}

// settle records what a gateway says about a stream.
func (s *storm) settle(id int, is settlement) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, twice := s.settled[id]; twice {
		s.Errorf("stream %d was settled twice", id)
	}
	s.settled[id] = is
}

// pick returns a gateway that lives, or nil if none will.
func (s *storm) pick() *gateway {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.live) == 0 && !s.broken {
		s.change.Wait()
	}
	if len(s.live) == 0 {
		return nil
	}
	return s.live[rand.IntN(len(s.live))]
}

// kill kills and replaces a gateway, unless another stream has.
func (s *storm) kill(g *gateway) {
	s.mu.Lock()
	at := slices.Index(s.live, g)
	if at >= 0 {
		g.killed = true
		s.live = slices.Delete(s.live, at, at+1)
		s.kills++
	}
	s.mu.Unlock()
	if at < 0 {
		return
	}
	_ = g.cmd.Process.Kill()
	_ = g.wait() // says that it was killed
	next, err := s.spawn()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.Error(err)
		s.broken = true
	} else {
		s.live = append(s.live, next)
	}
	s.change.Broadcast()
}

func (s *storm) isKilled(g *gateway) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return g.killed
}

// run is the client of a stream.
func (s *storm) run(one *stream) ending {
	for {
		g := s.pick()
		if g == nil {
			return ending{}
		}
		e, err := s.ask(g, one)
		dial := new(net.OpError)
		if s.isKilled(g) && errors.As(err, &dial) && dial.Op == "dial" {
			continue // it was killed before it was asked
		}
		if err != nil && !s.isKilled(g) {
			s.Errorf("stream %d, %v, %v: %v after %d words", one.id, one.fate, one.format, err,
				e.received)
		}
		if one.tenant == capped {
			s.checkCapped()
		}
		return e
	}
}

// ask sends the request of a stream and reads the response. It returns no error if the client has
// left.
func (s *storm) ask(g *gateway, one *stream) (ending, error) {
	e := ending{gateway: g}
	ctx, leave := context.WithTimeout(context.Background(), stormTimeout)
	defer leave()
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+g.addr+one.path(),
		strings.NewReader(one.request()))
	if err != nil {
		return e, err
	}
	q.Header, q.GetBody = one.header(), nil
	if one.fate == cut && one.leave == 0 {
		go func() {
			select {
			case <-one.arrived:
				leave()
			case <-ctx.Done():
			}
		}()
	}
	response, err := s.client.Do(q)
	if err != nil {
		if errors.Is(ctx.Err(), context.Canceled) {
			return e, nil
		}
		return e, err
	}
	defer func() { _ = response.Body.Close() }()
	e.status = response.StatusCode
	_, ends := one.body(one.asks)
	var body []byte
	for piece := make([]byte, 4096); ; {
		n, err := response.Body.Read(piece)
		if body = append(body, piece[:n]...); e.status == http.StatusOK {
			e.received = sort.SearchInts(ends, len(body)+1)
		}
		switch {
		case e.status == http.StatusOK && one.leave > 0 && e.received >= one.leave:
			if one.fate == cut {
				return e, nil
			}
			s.kill(g)
			return e, nil
		case errors.Is(err, io.EOF):
			e.whole = true
			s.checkResponse(one, response, body)
			return e, nil
		case err != nil:
			return e, err
		}
	}
}

func (s *storm) checkResponse(one *stream, response *http.Response, body []byte) {
	status, want := http.StatusOK, one.status
	if response.StatusCode == http.StatusTooManyRequests && one.tenant == capped &&
		response.Header.Get("Retry-After")+response.Header.Get("X-Should-Retry") != "" {
		return // the gateway's refusal
	}
	switch {
	case one.fate == failed && want != 0:
		status = want
	case one.fate == failed:
		status = http.StatusBadGateway
	}
	if response.StatusCode != status {
		s.Errorf("stream %d, %v: status %d, %s", one.id, one.fate, response.StatusCode, body)
		return
	}
	if one.fate == failed {
		return
	}
	if want, _ := one.body(one.asks); !bytes.Equal(body, want) {
		s.Errorf("stream %d, %v: the client was sent\n%s\nwant\n%s", one.id, one.format, body, want)
	}
}

// used returns what the budgets of a stream have spent, in their order.
func (s *storm) used(header http.Header) []int64 {
	q := httptest.NewRequest(http.MethodPost, "/v1/messages", nil)
	q.Header = header
	charges, err := s.meter.Guard(llm.FormatAnthropicMessages).Charges(q)
	if err != nil {
		s.Error(err)
		return make([]int64, budgetOfCapped+1)
	}
	d, err := s.gate.Peek(context.Background(), charges...)
	if err != nil {
		s.Error(err)
		return make([]int64, budgetOfCapped+1)
	}
	var used []int64
	for _, r := range d.Results() {
		used = append(used, r.Used)
	}
	return used
}

// checkCapped checks that the capped tenant is within its limit. A hold that expires while its
// gateway lives becomes a debt.
func (s *storm) checkCapped() {
	header := http.Header{"X-Tenant": {capped}, "X-Stream": {"none"}}
	if n := s.used(header)[budgetOfCapped]; n > s.config.limit && s.expired.Load() == 0 {
		s.Errorf("the capped tenant has spent %d of %d tokens", n, s.config.limit)
	}
}

// awaitExpiry waits until nothing is held.
func (s *storm) awaitExpiry(client *redis.Client) {
	for giveUp := time.Now().Add(stormTimeout); ; {
		for id, e := range s.ended {
			if e.gateway != nil && e.gateway.killed { // a look sweeps the holds
				s.used(s.streams[id].header())
			}
		}
		keys, err := client.Keys(context.Background(), "*:h2").Result()
		if err != nil {
			s.Fatal(err)
		}
		if len(keys) == 0 {
			return
		}
		if time.Now().After(giveUp) {
			s.Fatalf("%d holds remain, such as %s", len(keys), keys[0])
		}
	}
}

// check compares what every stream and tenant has spent with the transcripts.
func (s *storm) check() {
	counts := make(map[string]int)
	sums := make(map[string]int64)
	for id := range s.ended {
		fate, used := s.checkStream(id)
		counts[fate]++
		sums[s.streams[id].tenant] += used
	}
	for name, sum := range sums {
		s.checkTenant(name, sum)
	}
	s.checkCapped()
	if counts["denied"] == 0 || s.kills == 0 {
		s.Error("no stream was denied, or no gateway was killed")
	}
	s.Logf("%v, %d gateways killed, %d holds expired early, tokens %v, the limit of capped is %d",
		counts, s.kills, s.expired.Load(), sums, s.config.limit)
}

// checkStream compares what a stream has spent with its transcript. It returns what became of it.
func (s *storm) checkStream(id int) (fate string, used int64) {
	e, one := s.ended[id], s.streams[id]
	used = s.used(one.header())[budgetOfStream]
	told, settled := s.settled[id]
	if settled && told.tokens != used {
		s.Errorf("stream %d, %v: it spent %d tokens, its gateway says %+v", id, one.fate, used, told)
	}
	least, most := one.paid(e.received)
	switch {
	case e.gateway == nil:
		s.Errorf("stream %d was not asked for", id)
	case e.whole && e.status == http.StatusTooManyRequests && one.status != e.status:
		fate, least, most = "denied", 0, 0
	case settled, e.whole:
		fate = one.fate.String()
		if told.outcome == llm.OutcomeReported.String() {
			least, most = one.usage.Total(), one.usage.Total()
		}
	case e.gateway.killed:
		if fate = "lost"; used == 0 {
			return fate, used
		}
	default:
		s.Errorf("stream %d, %v: its gateway did not settle it", id, one.fate)
	}
	if used < least || used > most {
		s.Errorf("stream %d, %v: it spent %d tokens, want %d to %d after %d words; %+v, %+v",
			id, one.fate, used, least, most, e.received, *one, told)
	}
	return fate, used
}

// checkTenant compares what a tenant has spent with the sum of its streams.
func (s *storm) checkTenant(name string, sum int64) {
	used := s.used(http.Header{"X-Tenant": {name}, "X-Stream": {"none"}})
	if used[budgetOfTenant] != sum || used[budgetOfMoney] != 2*sum {
		s.Errorf("%s has spent %d tokens and %d micro-dollars, its streams %d tokens",
			name, used[budgetOfTenant], used[budgetOfMoney], sum)
	}
	if name == capped && used[budgetOfCapped] != sum {
		s.Errorf("the capped tenant has spent %d tokens, its streams %d", used[budgetOfCapped], sum)
	}
}
