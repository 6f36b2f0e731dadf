package starve

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
)

const (
	limit   = 50
	slots   = 50
	callers = 20
)

// report is what a process has seen while Redis was well.
type report struct {
	Decisions int64 // on a key that has a limit of 50, under Local
	Admitted  int64 // of them
	Asked     int64 // decisions that are always allowed, under Closed
	Refused   int64 // of them
	Opened    int64 // circuits
	Why       string
	Lost      int     // of 50 slots
	Share     float64 // of the processors that it may use
}

// notice is when a process noticed that Redis stands still.
type notice struct {
	At    time.Time
	Share float64
}

// process is one that is short of CPU.
type process struct {
	report
	gate   *core.Gate
	opened chan time.Time
	mu     sync.Mutex // guards Opened and Why
}

// Process decides on Redis while goroutines compute. It writes a line when it begins, its report
// when the time is over, and when a circuit opened afterwards.
func Process(ctx context.Context, addr string, computing int, lasts time.Duration, out io.Writer) error {
	client := redis.NewClient(&redis.Options{
		Addr: addr, ContextTimeoutEnabled: true, DialerRetries: 1, PoolSize: 20,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	defer client.Close()
	p := &process{opened: make(chan time.Time, 1)}
	gate, err := core.NewRedis(client, core.Config{Observe: p.observe, DisableDenialCache: true})
	if err != nil {
		return err
	}
	p.gate = gate
	if err := gate.Ping(ctx); err != nil {
		return err
	}
	leases, err := p.hold(ctx)
	if err != nil {
		return err
	}
	busy, end := context.WithCancel(ctx)
	defer end()
	for range computing {
		go compute(busy)
	}
	tell := json.NewEncoder(out)
	if err := tell.Encode(true); err != nil {
		return err
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	defer end()
	if err := p.decide(busy, &wg); err != nil {
		return err
	}
	share := measure()
	time.Sleep(lasts)
	for _, l := range leases {
		select {
		case <-l.Lost():
			p.Lost++
		default:
		}
	}
	p.mu.Lock()
	err = tell.Encode(report{
		Decisions: atomic.LoadInt64(&p.Decisions), Admitted: atomic.LoadInt64(&p.Admitted),
		Asked: atomic.LoadInt64(&p.Asked), Refused: atomic.LoadInt64(&p.Refused),
		Opened: p.Opened, Why: p.Why, Lost: p.Lost, Share: share(),
	})
	share = measure()
	select {
	case <-p.opened:
	default:
	}
	p.mu.Unlock()
	if err != nil {
		return err
	}
	select {
	case at := <-p.opened:
		return tell.Encode(notice{at, share()})
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (p *process) observe(_ context.Context, e core.Event) {
	if e, ok := e.(*core.ServerEvent); ok && e.Op == core.OpCircuitOpened {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.Opened++
		p.Why = fmt.Sprint(e.Err)
		select {
		case p.opened <- time.Now():
		default:
		}
	}
}

// hold takes slots that are renewed from then on.
func (p *process) hold(ctx context.Context) (leases []*semaphore.Lease, err error) {
	s, err := semaphore.New(p.gate, semaphore.Config{Name: "slots"})
	for i := 0; err == nil && i < slots; i++ {
		var l *semaphore.Lease
		l, err = s.Acquire(ctx, semaphore.Request{Caps: []semaphore.Cap{{
			Key: core.Must(core.NewKey(fmt.Sprint("tenant", i%10))), Limit: slots,
		}}})
		leases = append(leases, l)
	}
	return leases, err
}

// decide decides from now on: half of the callers on a key with a limit, under Local, and the others on
// a key that always has room, under Closed.
func (p *process) decide(ctx context.Context, wg *sync.WaitGroup) error {
	few, err := core.NewPolicy(core.PolicyConfig{
		Name: "few", Algorithm: core.FixedWindow{Limit: limit, Window: time.Hour, FromFirst: true},
	})
	if err != nil {
		return err
	}
	many, err := core.NewPolicy(core.PolicyConfig{
		Name: "many", Algorithm: core.PerSecond(1_000_000), OnFailure: core.FailClosed,
	})
	if err != nil {
		return err
	}
	key := core.Must(core.NewKey("acme"))
	for i := range callers {
		wg.Go(func() {
			for ctx.Err() == nil {
				if i%2 == 0 {
					d, _ := p.gate.Decide(context.Background(), core.Charge{Policy: few, Key: key})
					count(d.Allowed, &p.Decisions, &p.Admitted)
				} else {
					d, _ := p.gate.Decide(context.Background(), core.Charge{Policy: many, Key: key})
					count(!d.Allowed, &p.Asked, &p.Refused)
				}
			}
		})
	}
	return nil
}

func count(yes bool, all, some *int64) {
	atomic.AddInt64(all, 1)
	if yes {
		atomic.AddInt64(some, 1)
	}
}

// measure begins to measure which share of the processors that it may use this process gets.
func measure() (share func() float64) {
	began, used := time.Now(), cpuTime()
	return func() float64 {
		return (cpuTime() - used).Seconds() / time.Since(began).Seconds() / float64(runtime.GOMAXPROCS(0))
	}
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// compute keeps a CPU busy until the context ends.
func compute(ctx context.Context) {
	for n := uint64(1); ; n++ {
		for range 1 << 16 {
			n = n*6364136223846793005 + 1442695040888963407
		}
		if n == 0 || ctx.Err() != nil {
			return
		}
	}
}
