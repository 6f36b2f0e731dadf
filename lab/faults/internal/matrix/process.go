package matrix

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/lab/faults/faultproxy"
	"github.com/headgate/headgate/lab/faults/internal/lab"
)

// modes are what a cell has three of everything for.
var modes = [...]core.FailureMode{core.FailLocal, core.FailOpen, core.FailClosed}

const (
	processes = 2
	limit     = 40                    // of the contended key
	pace      = 10 * time.Millisecond // between two decisions of one caller
	life      = 15 * time.Second      // of leases and holds
	slotsEach = 2                     // that a process holds in each mode
)

// process is one of the processes that share a Redis: a Gate over links of its own.
type process struct {
	id     int
	links  *faultproxy.Network
	client redis.UniversalClient
	gate   *core.Gate
	tally  [len(modes)]tally
	counts atomic.Bool // decisions on the contended keys; before that, those on others are made

	expired atomic.Int64 // holds
	held    []*semaphore.Lease
	holds   []*core.Reservation
	caps    [len(modes)]*semaphore.Semaphore
	many    [len(modes)]*core.Policy // of keys that are used once
	few     [len(modes)]*core.Policy // of the contended key
	budget  [len(modes)]*core.Policy // with a Hold
	mutex   *semaphore.Mutex
	own     fence // of a lock that no other process wants
}

func newProcess(id int, l *lab.Lab, sound faultproxy.Fault) (*process, error) {
	p := &process{id: id, links: &faultproxy.Network{}}
	p.links.Set(sound, l.Addrs()...)
	p.client = l.Client(p.links)
	gate, err := core.NewRedis(p.client, core.Config{
		Replicas: processes, DisableDenialCache: true, Observe: p.observe,
	})
	if err != nil {
		return nil, err
	}
	p.gate = gate
	p.mutex, err = semaphore.NewMutex(gate, semaphore.MutexConfig{Name: "fenced", TTL: life})
	for i, mode := range modes {
		policy := func(name string, limit int64, hold time.Duration) *core.Policy {
			made, e := core.NewPolicy(core.PolicyConfig{
				Name: name, OnFailure: mode, Hold: hold,
				Algorithm: core.FixedWindow{Limit: limit, Window: time.Hour, FromFirst: true},
			})
			err = errors.Join(err, e)
			return made
		}
		p.many[i] = policy("many", 1000, 0)
		p.few[i] = policy("few", limit, 0)
		p.budget[i] = policy("budget", 1000, life)
		var e error
		p.caps[i], e = semaphore.New(gate, semaphore.Config{Name: "slots", TTL: life, OnFailure: mode})
		err = errors.Join(err, e)
	}
	return p, err
}

func (p *process) observe(_ context.Context, e core.Event) {
	if e, ok := e.(*core.ReservationEvent); ok && e.Op == core.OpHoldExpired {
		p.expired.Add(1)
	}
}

// key returns a key of a mode on the server that the faults hit.
func key(l *lab.Lab, mode int, inner ...string) core.Key {
	return core.Must(core.NewKey(l.Outermost, append([]string{modes[mode].String()}, inner...)...))
}

// prepare connects, and takes the slots and the holds that the fault may cost.
func (p *process) prepare(ctx context.Context, l *lab.Lab) error {
	if err := p.gate.Ping(ctx); err != nil {
		return fmt.Errorf("ping: %w", err)
	}
	for i := range modes {
		for range slotsEach {
			lease, err := p.acquire(ctx, l, i)
			if err != nil {
				return fmt.Errorf("acquire a slot: %w", err)
			}
			p.held = append(p.held, lease)
		}
		for held := false; !held; time.Sleep(pace / 5) {
			hold, d, err := p.gate.Reserve(ctx, 0, core.Charge{Policy: p.budget[i], Key: key(l, i), Cost: 1})
			if err != nil {
				return fmt.Errorf("reserve: %w", err)
			}
			if held = d.Source == core.SourceRedis; held {
				p.holds = append(p.holds, hold)
			}
		}
	}
	return nil
}

// acquire takes a slot of a mode, also on a machine that is too busy at first.
func (p *process) acquire(ctx context.Context, l *lab.Lab, mode int) (*semaphore.Lease, error) {
	request := semaphore.Request{
		Caps: []semaphore.Cap{{Key: key(l, mode), Limit: processes * slotsEach}}, MaxWait: 5 * time.Second,
	}
	for try := 0; ; try++ {
		lease, err := p.caps[mode].Acquire(ctx, request)
		if try == 5 || !errors.Is(err, core.ErrOverloaded) {
			return lease, err
		}
	}
}

// exhaust spends what the contended keys have, so that whatever is admitted later is too much.
func (p *process) exhaust(ctx context.Context, l *lab.Lab) error {
	for i := range modes {
		for spent := false; !spent; time.Sleep(pace / 5) {
			d, err := p.gate.Decide(ctx, core.Charge{Policy: p.few[i], Key: key(l, i), Cost: 1})
			if err != nil {
				return fmt.Errorf("spend the limit: %w", err)
			}
			spent = !d.Allowed && d.Source == core.SourceRedis
		}
		p.tally[i].admitted.Store(limit)
	}
	return nil
}

// decide decides until the context ends, in all modes, on the contended key and on keys that are
// used once.
func (p *process) decide(ctx context.Context, l *lab.Lab, wg *sync.WaitGroup) {
	for i := range modes {
		t := &p.tally[i]
		wg.Go(func() {
			early, hot := key(l, i, "early"), key(l, i)
			for ; ctx.Err() == nil; time.Sleep(pace) {
				counts, on := p.counts.Load(), early
				if counts {
					on = hot
				}
				d, took, err := p.once(p.few[i], on)
				t.took(took)
				if t.note(d, err) && counts && (d.Source == core.SourceRedis || d.Source == core.SourceLocal) {
					t.admitted.Add(1)
				}
			}
		})
		wg.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				d, took, err := p.once(p.many[i], p.single(l, i, n))
				t.took(took)
				t.asked = append(t.asked, t.note(d, err) && d.Source == core.SourceRedis)
				time.Sleep(pace)
			}
		})
	}
}

// once decides one charge, whatever becomes of the cell.
func (p *process) once(policy *core.Policy, key core.Key) (core.Decision, time.Duration, error) {
	began := time.Now()
	d, err := p.gate.Decide(context.Background(), core.Charge{Policy: policy, Key: key, Cost: 1})
	return d, time.Since(began), err
}

// used returns how much of a limit is spent, also where the connections of the pool are still to be
// found dead.
func (p *process) used(ctx context.Context, c core.Charge) (int64, error) {
	for deadline := time.Now().Add(life); ; time.Sleep(pace) {
		d, err := p.gate.Peek(ctx, c)
		if err == nil && d.Cause == nil {
			return d.At(0).Used, nil
		}
		if time.Now().After(deadline) {
			return 0, errors.Join(err, d.Cause)
		}
	}
}

// single returns the n-th key that is used once.
func (p *process) single(l *lab.Lab, mode, n int) core.Key {
	return key(l, mode, fmt.Sprintf("%d-%d", p.id, n))
}

// close ends the process.
func (p *process) close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = p.gate.Close(ctx)
	_ = p.client.Close()
	p.links.Close()
}
