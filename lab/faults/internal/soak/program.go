package soak

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/bloom"
	"github.com/headgate/headgate/core/once"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/lab/faults/faultproxy"
	"github.com/headgate/headgate/lab/faults/internal/lab"
	"github.com/headgate/headgate/llm"
	"github.com/headgate/headgate/plans"
)

// program is one of the processes: everything of Headgate over links of its own.
type program struct {
	id      int
	links   *faultproxy.Network
	client  redis.UniversalClient
	gate    *core.Gate
	answers *answers

	limits []*core.Policy // one of each algorithm and mode
	budget *core.Policy   // with a Hold
	quota  *core.Policy   // with a Ledger and thresholds
	logins *core.Policy   // a Block
	api    *core.Policy   // with the limits of plans
	blocks *core.Blocklist
	book   *plans.Book
	caps   *semaphore.Semaphore
	mutex  *semaphore.Mutex
	jobs   *once.Once
	seen   *bloom.Filter
	meter  *llm.Meter
	server *httptest.Server
	web    *http.Client
	user   atomic.Int64 // the latest of the names that callers have
}

func newProgram(id int, l *lab.Lab, a *answers) (*program, error) {
	p := &program{id: id, links: &faultproxy.Network{}, answers: a, web: &http.Client{
		Transport: &http.Transport{MaxIdleConnsPerHost: 32},
	}}
	p.client = l.Client(p.links)
	gate, err := core.NewRedis(p.client, core.Config{Replicas: 2, Observe: func(context.Context, core.Event) {}})
	if err != nil {
		return nil, err
	}
	p.gate = gate
	if err := gate.Ping(context.Background()); err != nil {
		return nil, err
	}
	return p, errors.Join(p.makeLimits(), p.makeSlots(), p.makeServer())
}

func (p *program) makeLimits() (err error) {
	policy := func(cfg core.PolicyConfig) *core.Policy {
		made, e := core.NewPolicy(cfg)
		err = errors.Join(err, e)
		return made
	}
	for _, a := range []struct {
		name      string
		algorithm core.Algorithm
	}{
		{"token-bucket", core.PerSecond(50)},
		{"leaky-bucket", core.LeakyBucket{Rate: 50, Per: time.Second, Capacity: 20}},
		{"fixed-window", core.FixedWindow{Limit: 50, Window: time.Second}},
		{"sliding-window", core.AnySecond(50)},
		{"sliding-log", core.SlidingLog{Windows: []core.Window{
			{Limit: 30, Width: time.Second}, {Limit: 200, Width: 10 * time.Second},
		}}},
		{"calendar", core.Calendar{Limit: 1000, Every: core.PeriodMinute, In: time.UTC}},
	} {
		for _, mode := range []core.FailureMode{core.FailLocal, core.FailOpen, core.FailClosed} {
			p.limits = append(p.limits, policy(core.PolicyConfig{
				Name: a.name + "-" + mode.String(), Algorithm: a.algorithm, OnFailure: mode,
			}))
		}
	}
	p.budget = policy(core.PolicyConfig{
		Name: "budget", Algorithm: core.PerMinute(100_000), Hold: 3 * time.Second, Unit: core.UnitTokens,
	})
	p.quota = policy(core.PolicyConfig{
		Name: "quota", Algorithm: core.Calendar{Limit: 1_000_000, Every: core.PeriodHour, In: time.UTC}, Raisable: true,
		Thresholds: []int{1, 50, 100},
		Ledger:     func(context.Context, core.Key, core.Span) (int64, error) { return 1, nil },
	})
	p.logins = policy(core.PolicyConfig{
		Name: "logins", OnFailure: core.FailClosed,
		Algorithm: core.Block{Strikes: 5, Within: 2 * time.Second, For: time.Second},
	})
	p.api = policy(core.PolicyConfig{Name: "api", Algorithm: core.PerSecond(10)})
	if err != nil {
		return err
	}
	if p.blocks, err = core.NewBlocklist(p.gate, p.logins); err != nil {
		return err
	}
	set, err := plans.NewSet(plans.SetConfig{Default: "free", Plans: map[string]plans.Plan{
		"free": {Limits: map[string]core.Algorithm{"api": core.PerSecond(20)}},
		"pro":  {Limits: map[string]core.Algorithm{"api": core.PerSecond(200)}},
	}})
	if err != nil {
		return err
	}
	p.book, err = plans.New(plans.Config{
		Set: set, Client: p.client, TTL: 5 * time.Second,
		Resolve: func(_ context.Context, tenant string) (string, error) {
			if len(tenant)%2 == 0 {
				return "pro", nil
			}
			return "", nil
		},
	})
	return err
}

func (p *program) makeSlots() (err error) {
	if p.caps, err = semaphore.New(p.gate, semaphore.Config{Name: "streams", TTL: 2 * time.Second}); err != nil {
		return err
	}
	if p.mutex, err = semaphore.NewMutex(p.gate, semaphore.MutexConfig{Name: "report", TTL: 2 * time.Second}); err != nil {
		return err
	}
	p.jobs, err = once.New(p.gate, once.Config{
		Name: "jobs", Window: 2 * time.Second, TTL: 2 * time.Second,
	})
	if err != nil {
		return err
	}
	p.seen, err = bloom.New(p.gate, bloom.Config{
		Name: "seen", Items: 10_000, FalsePositives: 0.01, Window: 10 * time.Second,
	})
	return err
}

// key returns a key of a user. There are some hundred, of which most callers use a few.
func (p *program) key(kind string) core.Key {
	n := p.user.Add(1)
	if n%4 != 0 {
		n %= 8
	}
	return core.Must(core.NewKey(fmt.Sprintf("tenant%d", n%7), kind, fmt.Sprintf("user%d", n%400)))
}

// work runs all callers until the context ends.
func (p *program) work(ctx context.Context, wg *sync.WaitGroup) {
	for name, job := range p.jobsOf() {
		for range job.callers {
			wg.Go(func() {
				for ctx.Err() == nil {
					p.answers.note(name, job.may, job.do(ctx))
					select {
					case <-time.After(job.pause):
					case <-ctx.Done():
					}
				}
			})
		}
	}
}

// close ends the program as docs/concurrency.md says.
func (p *program) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	err := p.gate.Close(ctx)
	if err != nil {
		err = fmt.Errorf("close Gate %d: %w", p.id, err)
	}
	p.server.Close()
	p.web.CloseIdleConnections()
	p.book.Close()
	err = errors.Join(err, p.client.Close())
	p.links.Close()
	return err
}
