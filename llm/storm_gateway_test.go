package llm_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/keyfunc"
	"github.com/headgate/headgate/llm"
)

const (
	stormHold = 2 * time.Second
	stormEnv  = "LLM_TEST_STORM" // environment variable with the stormConfig of a gateway
	// stormPrice makes a token cost 2 micro-dollars.
	stormPrice = 2_000_000
)

// stormConfig is what the gateways of a storm need to know.
type stormConfig struct {
	redis, prefix, upstream string
	limit                   int64 // of the capped tenant
}

func (c stormConfig) String() string {
	return fmt.Sprintf("%s %s %s %d", c.redis, c.prefix, c.upstream, c.limit)
}

// gate returns a Gate that waits long enough for a busy machine.
func (c stormConfig) gate(t *testing.T, client *redis.Client, observe func(core.Event)) *core.Gate {
	return core.Must(core.NewRedis(client, core.Config{
		Prefix: c.prefix, Timeout: 30 * time.Second,
		Observe: func(_ context.Context, e core.Event) { observe(e) },
	}))
}

// The budgets of a stream in the storm, in order. The last one is of the capped tenant.
const (
	budgetOfStream = iota
	budgetOfTenant
	budgetOfMoney
	budgetOfCapped
)

func (c stormConfig) meter(
	gate *core.Gate, observe func(context.Context, core.Event),
) (*llm.Meter, error) {
	const plenty = 1_000_000_000_000
	policy := func(name string, unit core.Unit, a core.Algorithm) *core.Policy {
		return core.Must(core.NewPolicy(core.PolicyConfig{
			Name: name, Unit: unit, Algorithm: a, Hold: stormHold, OnFailure: core.FailClosed,
		}))
	}
	slots, err := semaphore.New(gate, semaphore.Config{
		Name: "streams", OnFailure: core.FailClosed,
	})
	if err != nil {
		return nil, err
	}
	return llm.New(llm.Config{
		Guard: nethttp.Config{
			Gate: gate,
			Slot: &nethttp.Slot{
				Semaphore: slots, Caps: []nethttp.Cap{{Name: "streams", Key: tenant, Limit: 1000}},
			},
		},
		Budgets: []llm.Budget{
			budgetOfStream: {
				Policy: policy("stream", core.UnitTokens, core.TokenBucket{Burst: plenty}),
				Key:    keyfunc.Must(keyfunc.Header("X-Stream")),
			},
			budgetOfTenant: {
				Policy: policy("tenant", core.UnitTokens, core.TokenBucket{Burst: plenty}), Key: tenant,
			},
			budgetOfMoney: {
				Policy: policy("money", core.UnitMicroDollars,
					core.Calendar{Limit: plenty, Every: core.PeriodYear, In: time.UTC}),
				Key: tenant,
			},
			budgetOfCapped: {
				Policy: policy("capped", core.UnitTokens, core.TokenBucket{Burst: c.limit}), Key: tenant,
				Skip: func(r *http.Request) bool { return r.Header.Get("X-Tenant") != capped },
			},
		},
		Models: map[string]llm.Model{
			"m": {Tariff: llm.Tariff{Price: llm.Price{
				Input: stormPrice, CacheRead: stormPrice, CacheWrite: stormPrice, Output: stormPrice,
			}}},
		},
		Estimate: stormEstimate,
		Observe:  observe,
	})
}

// stormEstimate is not corrected by what is learnt, so that the test knows it.
func stormEstimate(_ *http.Request, q llm.Request, _ []byte) (llm.Usage, error) {
	return llm.Usage{Input: q.PromptBytes / 4, Output: q.MaxOutput}, nil
}

// TestStormGateway is the body of each gateway of TestStorm. It serves until its input ends, and
// tells what it settles.
func TestStormGateway(t *testing.T) {
	var c stormConfig
	env := os.Getenv(stormEnv)
	if env == "" {
		t.Skip("runs only as a process of TestStorm")
	}
	if _, err := fmt.Sscan(env, &c.redis, &c.prefix, &c.upstream, &c.limit); err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(&redis.Options{
		Addr: c.redis, ContextTimeoutEnabled: true, ReadTimeout: time.Minute,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	t.Cleanup(func() { _ = client.Close() })
	gate := c.gate(t, client, func(e core.Event) {
		var fault error
		switch e := e.(type) {
		case *core.DecisionEvent:
			fault = e.Err
		case *core.ReservationEvent:
			if fault = e.Err; e.Op == core.OpHoldExpired {
				fmt.Println("expired")
				return
			}
		case *semaphore.AcquireEvent:
			fault = e.Err
		case *semaphore.LeaseEvent:
			fault = e.Err
		case *core.ServerEvent:
			fault = e.Err
		}
		if fault != nil && !errors.Is(fault, context.Canceled) {
			fmt.Println("fault", e.EventName(), fault)
		}
	})
	meter, err := c.meter(gate, func(_ context.Context, e core.Event) {
		if e, ok := e.(*llm.ResponseEvent); ok {
			fmt.Println("settled", e.HTTP.Header.Get("X-Stream"), e.Outcome, e.Usage.Total())
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	upstream, err := url.Parse(c.upstream)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(upstream)
	proxy.ErrorLog = log.New(io.Discard, "", 0)
	proxy.Transport = &http.Transport{MaxIdleConnsPerHost: 100, DisableCompression: true}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: meter.Handler(proxy)}
	served := make(chan error)
	go func() { served <- server.Serve(listener) }()
	fmt.Println("listens", listener.Addr())
	_, _ = io.Copy(io.Discard, os.Stdin)
	if err := server.Shutdown(context.Background()); err != nil {
		t.Error(err)
	}
	<-served
	if err := gate.Close(context.Background()); err != nil {
		t.Error(err)
	}
}

// gateway is a process of the storm.
type gateway struct {
	storm  *storm
	cmd    *exec.Cmd
	in     io.Closer
	addr   string
	listen chan struct{} // closed when addr is known, or never will be
	done   chan struct{} // closed when all of the output has been read
	killed bool          // guarded by storm.mu
}

func (s *storm) spawn() (*gateway, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	g := &gateway{
		storm: s, cmd: exec.Command(self, "-test.run=^TestStormGateway$"),
		listen: make(chan struct{}), done: make(chan struct{}),
	}
	// With the race detector a process waits for a second before it exits.
	g.cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0", stormEnv+"="+s.config.String())
	g.cmd.Stderr = s.Output()
	if g.in, err = g.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := g.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := g.cmd.Start(); err != nil {
		return nil, err
	}
	go g.read(out)
	<-g.listen
	if g.addr == "" {
		return nil, fmt.Errorf("the gateway does not listen: %w", g.wait())
	}
	return g, nil
}

// read records what the gateway tells. A kill may cut the last line short.
func (g *gateway) read(out io.Reader) {
	defer close(g.done)
	listens := false
	for lines := bufio.NewReader(out); ; {
		line, err := lines.ReadString('\n')
		if err != nil {
			break
		}
		words := strings.Fields(line)
		switch {
		case len(words) == 2 && words[0] == "listens":
			g.addr, listens = words[1], true
			close(g.listen)
		case len(words) == 4 && words[0] == "settled":
			id, _ := strconv.Atoi(words[1])
			tokens, _ := strconv.ParseInt(words[3], 10, 64)
			g.storm.settle(id, settlement{words[2], tokens})
		case len(words) == 1 && words[0] == "expired":
			g.storm.expired.Add(1)
		case strings.HasPrefix(line, "fault "), strings.HasPrefix(line, "--- "),
			strings.HasPrefix(line, "    "):
			g.storm.Error(strings.TrimSpace(line))
		}
	}
	if !listens {
		close(g.listen)
	}
}

// wait waits for the process to end.
func (g *gateway) wait() error {
	<-g.done
	return g.cmd.Wait()
}
