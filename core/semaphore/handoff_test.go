package semaphore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/internal/redistest"
)

const contenders = 8

// handoff is a lock that several goroutines contend for, each with its own functions.
type handoff []struct{ lock, unlock func() }

// run gives every goroutine its turns. It returns the times from each unlock until a waiting
// goroutine holds the lock.
func (h handoff) run(turns int) []time.Duration {
	start := time.Now()
	var freed atomic.Int64
	var mu sync.Mutex
	var took []time.Duration
	var wg sync.WaitGroup
	for _, c := range h {
		wg.Go(func() {
			for range turns {
				from := time.Since(start)
				c.lock()
				at := time.Duration(freed.Load())
				if now := time.Since(start); at > from {
					mu.Lock()
					took = append(took, now-at)
					mu.Unlock()
				}
				<-time.After(500 * time.Microsecond)
				freed.Store(int64(time.Since(start)))
				c.unlock()
				<-time.After(2 * time.Millisecond)
			}
		})
	}
	wg.Wait()
	return took
}

// semaphores returns Gates that share a Redis and contend for one slot, as processes do.
func semaphores(t testing.TB, server *redistest.Server) handoff {
	return contend(t, func() *core.Gate { return redisGate(t, server.Client(t), core.Config{Prefix: server.Prefix}) })
}

// contend makes Gates that contend for one slot.
func contend(t testing.TB, newGate func() *core.Gate) (h handoff) {
	level := semaphore.Cap{Key: newKey(t, "k"), Limit: 1}
	for range contenders {
		g := newGate()
		t.Cleanup(func() { _ = g.Close(context.Background()) })
		s := newSemaphore(t, g, semaphore.Config{TTL: time.Minute, OnFailure: core.FailClosed})
		var l *semaphore.Lease
		h = append(h, struct{ lock, unlock func() }{
			lock: func() {
				var err error
				if l, err = s.Acquire(context.Background(), semaphore.Request{Caps: []semaphore.Cap{level}, MaxWait: semaphore.Forever}); err != nil {
					t.Error(err)
				}
			},
			unlock: func() {
				if err := l.Release(context.Background()); err != nil {
					t.Error(err)
				}
			},
		})
	}
	return h
}

// A contended slot costs two calls: one acquires and one releases. A waiter is notified of its
// turn. A holder that was alone at first makes one call more.
func TestHandoffTakesTwoCalls(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	h := semaphores(t, server)
	h.run(3) // so that every Gate is subscribed
	const turns = 50
	before := server.Calls(t, "evalsha", "eval")
	h.run(turns)
	if n := server.Calls(t, "evalsha", "eval") - before; n > (2*turns+1)*contenders {
		t.Errorf("%d calls for %d turns", n, turns*contenders)
	}
}

// An acquire or a release costs a call. Only the first one that finds other callers where there were
// none costs two.
func TestOperationTakesOneCall(t *testing.T) {
	t.Parallel()
	server, ctx := redistest.Start(t), t.Context()
	h := semaphores(t, server)[:2]
	pair := func(i int) { h[i].lock(); h[i].unlock() }
	for i := range h {
		pair(i) // so that every Gate is subscribed
	}
	if err := server.Client(t).ScriptLoad(ctx, headgate.Script("lease")).Err(); err != nil {
		t.Fatal(err)
	}
	s := newSemaphore(t, redisGate(t, server.Client(t), core.Config{Prefix: server.Prefix}),
		semaphore.Config{TTL: time.Minute, OnFailure: core.FailClosed})
	try := func() {
		ask := semaphore.Request{Caps: []semaphore.Cap{{Key: newKey(t, "k"), Limit: 1}}}
		if _, err := s.Acquire(ctx, ask); !errors.Is(err, semaphore.ErrFull) {
			t.Error(err)
		}
	}
	for _, step := range []struct {
		name string
		do   func()
		most int64
	}{
		{"alone", func() { pair(0); pair(1) }, 4},
		{"held", h[0].lock, 1},
		{"refused for the first time", try, 2},
		{"refused again", func() { try(); try() }, 2},
		{"others came", h[0].unlock, 2},
		{"given up", func() { pair(0); pair(0); pair(1) }, 6},
		{"held and refused again and again", func() {
			for range 5 {
				h[0].lock()
				try()
				h[0].unlock()
			}
		}, 5*3 + 1},
	} {
		before := server.Calls(t, "evalsha", "eval")
		step.do()
		if n := server.Calls(t, "evalsha", "eval") - before; n > step.most {
			t.Errorf("%s: %d calls", step.name, n)
		}
	}
}

// The cheapest fair hand-off: a queue, a holder, and a message to the next waiter.
var (
	floorLock = redis.NewScript(`
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
if redis.call('ZCARD', KEYS[1]) == 0 and redis.call('ZCARD', KEYS[2]) == 0 then
  redis.call('ZADD', KEYS[1], now + 10000000, ARGV[1])
  return 1
end
redis.call('ZADD', KEYS[2], now, ARGV[1])
return 0`)
	floorUnlock = redis.NewScript(`
redis.call('ZREM', KEYS[1], ARGV[1])
local time = redis.call('TIME')
local next = redis.call('ZPOPMIN', KEYS[2])[1]
if next then
  redis.call('ZADD', KEYS[1], time[1] * 1000000 + time[2] + 10000000, next)
  redis.call('PUBLISH', next, next)
end
return 1`)
)

func floors(t testing.TB, server *redistest.Server) (h handoff) {
	ctx := context.Background()
	keys := []string{server.Prefix + "{f}:h", server.Prefix + "{f}:w"}
	for i := range contenders {
		client, id := server.Client(t), server.Prefix+string(rune('a'+i))
		p := client.Subscribe(ctx, id)
		t.Cleanup(func() { _ = p.Close() })
		if _, err := p.Receive(ctx); err != nil {
			t.Fatal(err)
		}
		messages := p.Channel()
		h = append(h, struct{ lock, unlock func() }{
			lock: func() {
				n, err := floorLock.Run(ctx, client, keys, id).Int()
				if err != nil {
					t.Error(err)
				} else if n == 0 {
					<-messages
				}
			},
			unlock: func() {
				if err := floorUnlock.Run(ctx, client, keys, id).Err(); err != nil {
					t.Error(err)
				}
			},
		})
	}
	return h
}

// BenchmarkHandoff times how long a slot stays empty between two of eight holders, compared with
// the floor. Both alternate, and the ratio is the median of several rounds.
func BenchmarkHandoff(b *testing.B) {
	server := redistest.Real(b)
	ours, floor := semaphores(b, server), floors(b, server)
	ours.run(20)
	floor.run(20)
	own, least := &quantiles{}, &quantiles{}
	for b.Loop() {
		least.add(floor.run(80))
		own.add(ours.run(80))
	}
	for _, q := range []struct {
		name string
		at   float64
	}{{"p50", 0.5}, {"p99", 0.99}} {
		x, y := own.median(q.at), least.median(q.at)
		b.ReportMetric(float64(x.Microseconds()), q.name+"-us")
		b.ReportMetric(float64(x)/float64(y), q.name+"-xfloor")
	}
	b.ReportMetric(0, "ns/op") // meaningless here
}

// quantiles collects the durations of several rounds.
type quantiles struct{ rounds [][]time.Duration }

func (q *quantiles) add(all []time.Duration) {
	slices.Sort(all)
	q.rounds = append(q.rounds, all)
}

// median returns the median over the rounds of one quantile.
func (q *quantiles) median(at float64) time.Duration {
	var all []time.Duration
	for _, r := range q.rounds {
		all = append(all, r[int(at*float64(len(r)-1))])
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// BenchmarkWaiters times asking for a slot and giving it up while many callers wait, compared with
// the same while nobody waits.
func BenchmarkWaiters(b *testing.B) {
	const waiters = 100_000
	ctx := context.Background()
	tenant := semaphore.Cap{Key: newKey(b, "acme"), Limit: 10}
	user := func(name string) semaphore.Cap { return semaphore.Cap{Key: newKey(b, "acme", name), Limit: 1} }
	for _, bm := range []struct {
		name string
		wait func(i int) []semaphore.Cap // where the many wait
		ask  []semaphore.Cap
	}{
		{
			"in the queue",
			func(int) []semaphore.Cap { return []semaphore.Cap{{Key: tenant.Key, Limit: 1}} },
			[]semaphore.Cap{{Key: tenant.Key, Limit: 1}},
		},
		{
			"of another",
			func(int) []semaphore.Cap { return []semaphore.Cap{tenant, user("a")} },
			[]semaphore.Cap{tenant, user("b")},
		},
		{
			"in many queues",
			func(i int) []semaphore.Cap { return []semaphore.Cap{{Key: tenant.Key, Limit: 1}, user(fmt.Sprint(i))} },
			[]semaphore.Cap{{Key: tenant.Key, Limit: 1}, user("b")},
		},
	} {
		b.Run(bm.name, func(b *testing.B) {
			server := redistest.Real(b)
			g := redisGate(b, server.Client(b), core.Config{Prefix: server.Prefix})
			pair := func(s *semaphore.Semaphore, ids []string) func() {
				return func() {
					id, err := s.Enqueue(ctx, semaphore.Request{Caps: bm.ask})
					if err != nil {
						b.Fatal(err)
					}
					// The holder leaves, or otherwise the caller that just got the slot.
					ids = append(ids, id)
					if _, err := s.Leave(ctx, tenant.Key, ids[0]); err != nil {
						b.Fatal(err)
					}
					ids = ids[1:]
				}
			}
			full := newSemaphore(b, g, semaphore.Config{Name: "full", TTL: time.Hour, MaxWaiters: 1_000_000})
			var ids []string
			for i := range waiters + 1 {
				id, err := full.Enqueue(ctx, semaphore.Request{Caps: bm.wait(i)})
				if err != nil {
					b.Fatal(err)
				}
				ids = append(ids, id)
			}
			if bm.name == "of another" {
				ids = nil
			}
			crowded := pair(full, ids)
			ratio := paired(crowded, pair(newSemaphore(b, g, semaphore.Config{Name: "empty", TTL: time.Hour}), nil))
			for b.Loop() {
				crowded()
			}
			b.ReportMetric(ratio, "xempty")
		})
	}
}
