package outbound_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/provider"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/llm"
	"github.com/headgate/headgate/outbound"
)

// load is what a process of a load test does.
type load struct {
	Addr, Prefix, URL string
	For               time.Duration
	Every             time.Duration // a request begins that often
	MaxWait           time.Duration
	PerSecond         int64 // requests, under the client's own limits
	PerMinute         int64
	Burst             int64
	Tokens            int64 // a minute
	Streams           int64
}

// loadDone is what came of it.
type loadDone struct {
	OK, Busy, Refused, Failed int
	Error                     string
	Late                      time.Duration // the longest time that a process did not run
}

const loadEnv = "HEADGATE_OUTBOUND_LOAD"

// TestLoadProcess is a process of the tests below, and does nothing otherwise.
func TestLoadProcess(t *testing.T) {
	text := os.Getenv(loadEnv)
	if text == "" {
		return
	}
	var l load
	if err := json.Unmarshal([]byte(text), &l); err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(&redis.Options{
		Addr: l.Addr, ContextTimeoutEnabled: true, DialerRetries: 1,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	defer func() { _ = client.Close() }()
	g := gatetest.Redis(t, client, core.Config{Prefix: l.Prefix, Timeout: gatetest.LongTimeout})
	tr := l.transport(t, g)
	fmt.Println("ready")
	in := bufio.NewScanner(os.Stdin)
	in.Scan()
	done, err := json.Marshal(l.run(t, tr))
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println(string(done))
}

func (l *load) transport(t *testing.T, g *core.Gate) *outbound.Transport {
	meter, err := llm.NewOutbound(llm.OutboundConfig{CountsCap: true})
	if err != nil {
		t.Fatal(err)
	}
	cfg := outbound.Config{
		Base: &http.Transport{MaxIdleConnsPerHost: 1000}, Gate: g, Meter: meter, MaxWait: l.MaxWait,
	}
	rule := func(name string, unit core.Unit, a core.Algorithm) {
		p := gatetest.Policy(t, core.PolicyConfig{Name: name, Unit: unit, Algorithm: a})
		cfg.Rules = append(cfg.Rules, outbound.Rule{Policy: p, Key: outbound.ByModel})
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

// start starts processes under a load, and returns a func that waits for them and adds up what they
// have done.
func (l load) start(t *testing.T, processes int) (wait func() loadDone) {
	t.Helper()
	type process struct {
		in    io.Writer
		lines *bufio.Scanner
	}
	var all []process
	for i := range processes {
		text, err := json.Marshal(l)
		if err != nil {
			t.Fatal(err)
		}
		in, lines, _ := redistest.StartKillable(t, "TestLoadProcess", loadEnv+"="+string(text))
		if !lines.Scan() || lines.Text() != "ready" {
			t.Fatalf("process %d: %q, %v", i, lines.Text(), lines.Err())
		}
		all = append(all, process{in, lines})
	}
	for _, p := range all {
		_, _ = fmt.Fprintln(p.in, "go")
	}
	return func() (sum loadDone) {
		for i, p := range all {
			var one loadDone
			if !p.lines.Scan() {
				t.Fatalf("process %d ended: %v", i, p.lines.Err())
			}
			if err := json.Unmarshal(p.lines.Bytes(), &one); err != nil {
				t.Fatalf("process %d: %q: %v", i, p.lines.Text(), err)
			}
			sum.OK, sum.Busy, sum.Refused, sum.Failed = sum.OK+one.OK, sum.Busy+one.Busy, sum.Refused+one.Refused, sum.Failed+one.Failed
			sum.Late = max(sum.Late, one.Late)
			if one.Error != "" {
				sum.Error = one.Error
			}
		}
		return sum
	}
}

// starved reports whether the machine let a process stand still for so long that a test of it tells
// nothing about the Transport. It tries the test again then, and gives up after some times.
func (d *loadDone) starved(t *testing.T, try int) bool {
	if d.Late < 50*time.Millisecond {
		return false
	}
	t.Logf("try %d: a process did not run for %v", try, d.Late)
	return true
}

const tries = 3

// lasting returns how long a load test runs.
func lasting(short time.Duration) time.Duration {
	if gatetest.Long() {
		return time.Minute
	}
	return short
}

// Four processes under twice the load that a provider takes use it to its limits, in order, and it
// refuses nothing.
func TestProcessesUseAProviderToItsLimits(t *testing.T) {
	s := redistest.Start(t)
	for try := range tries {
		if useToTheLimits(t, s, try) {
			return
		}
	}
	t.Skip("the machine is too busy to tell how much of the provider is used")
}

func useToTheLimits(t *testing.T, s *redistest.Server, try int) (told bool) {
	const perSecond, tokensPerMinute, streams = 60, 144_000, 40
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
	u := httptest.NewServer(p)
	defer u.Close()
	l := load{
		Addr: s.Addr, Prefix: fmt.Sprintf("try%d", try), URL: u.URL, For: lasting(4 * time.Second),
		Every: 4 * time.Second / (2 * perSecond), MaxWait: 2 * time.Second,
		PerSecond: perSecond + 6, PerMinute: 60 * perSecond, Burst: 1, Tokens: tokensPerMinute, Streams: streams,
	}
	done := l.start(t, 4)()
	n, all := p.Counts(), p.Arrivals()
	took := all[len(all)-1].At.Sub(all[0].At)
	used := max(float64(n.Accepted-1)/(60*perSecond*took.Minutes()), float64(n.Tokens)/(tokensPerMinute*took.Minutes()))
	most, sum := overtakes(all)
	t.Logf("%+v; the provider: %+v in %v, used to %.2f %%; a request was overtaken by at most %d, and by %.2f on average",
		done, n, took, 100*used, most, float64(sum)/float64(len(all)))
	refused := n.Refused > 0 || done.Refused > 0 || done.Failed > 0
	if !refused && used >= 0.98 && most <= 128 { // calls in a batch
		return true
	}
	if done.starved(t, try) {
		return false
	}
	t.Errorf("%d refused and %d failed, used to %.2f %%, a request was overtaken by %d",
		n.Refused, done.Failed, 100*used, most)
	return true
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
	t.Parallel()
	forms := []provider.Form{provider.OpenAI, provider.Draft11, provider.GitHub}
	if !gatetest.Long() {
		forms = forms[:1]
	}
	for _, form := range forms {
		t.Run(form.String(), func(t *testing.T) {
			s := redistest.Start(t)
			for try := range tries {
				if useBesideOthers(t, s, form, try) {
					return
				}
			}
			t.Skip("the machine is too busy to tell how many are refused")
		})
	}
}

func useBesideOthers(t *testing.T, s *redistest.Server, form provider.Form, try int) (told bool) {
	const inWindow, window = 600, 3 * time.Second
	p := provider.New(provider.Config{
		Form: form, Limits: []provider.Limit{{Unit: provider.Requests, N: inWindow, Per: window, Window: true}},
	})
	u := httptest.NewServer(p)
	defer u.Close()
	over := make(chan struct{})
	var others sync.WaitGroup
	others.Go(func() {
		ticker := time.NewTicker(window / (inWindow / 2))
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
			case <-over:
				return
			}
			r, _ := http.NewRequest(http.MethodPost, u.URL, strings.NewReader(`{"model":"m"}`))
			r.Header.Set("Authorization", "Bearer key")
			if res, err := u.Client().Do(r); err == nil {
				_ = res.Body.Close()
			}
		}
	})
	l := load{
		Addr: s.Addr, Prefix: fmt.Sprintf("try%d", try), URL: u.URL, For: lasting(7 * time.Second),
		Every: 20 * time.Millisecond, MaxWait: 2 * time.Second, PerMinute: inWindow * 20, Burst: 10,
	}
	done := l.start(t, 4)()
	close(over)
	others.Wait()
	all := p.Arrivals()
	ours, refused := 0, 0
	for _, a := range all {
		if a.ID != "" && a.At.Sub(all[0].At) >= window {
			if ours++; a.Refused {
				refused++
			}
		}
	}
	t.Logf("%+v: after the first window the provider refused %d of ours of %d", done, refused, ours)
	if refused*100 <= ours && ours > 0 {
		return true
	}
	if done.starved(t, try) {
		return false
	}
	t.Errorf("%d of %d were refused", refused, ours)
	return true
}
