package main

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/redistest"
)

// six are limits of as many kinds.
var six = map[string]core.Algorithm{
	"api":     core.TokenBucket{Rate: 6, Per: time.Hour, Burst: 50},
	"credits": core.TokenBucket{Burst: 500},
	"fixed":   core.FixedWindow{Limit: 100, Window: 24 * time.Hour},
	"hour":    core.SlidingWindow{Limit: 100, Window: time.Hour},
	"log":     core.SlidingLog{Windows: []core.Window{{Limit: 100, Width: time.Hour}}},
	"month":   core.Calendar{Limit: 100, Every: core.PeriodMonth, In: time.UTC},
}

const sixPlans = `
default: free
plans:
  free:
    limits:
      api: {rate: 6, per: 1h, burst: 50}
      credits: {rate: 0, burst: 500}
      fixed: {limit: 100, fixed_window: 24h}
      hour: {limit: 100, sliding_window: 1h}
      log: {limit: 100, sliding_log: 1h}
      month: {limit: 100, calendar: month, in: UTC}
`

// fill spends under six limits of acme/user-1, takes two slots there, and lets three callers wait.
// It returns how much it spent.
func fill(t *testing.T, client redis.UniversalClient, prefix string) (spent map[string]int64) {
	t.Helper()
	gate := core.Must(core.NewRedis(client, core.Config{Prefix: prefix, Timeout: 30 * time.Second}))
	t.Cleanup(func() { _ = gate.Close(context.Background()) })
	key, tenant := core.Must(core.NewKey("acme", "user-1")), core.Must(core.NewKey("acme"))
	spent = make(map[string]int64)
	var charges []core.Charge
	for name, limit := range six {
		p := core.Must(core.NewPolicy(core.PolicyConfig{Name: name, Algorithm: limit}))
		spent[name] = int64(3 + len(name))
		charges = append(charges, core.Charge{Policy: p, Key: key, Cost: spent[name]})
	}
	if d, err := gate.Decide(t.Context(), charges...); err != nil || !d.Allowed {
		t.Fatal(d, err)
	}
	streams := core.Must(semaphore.New(gate, semaphore.Config{Name: "streams", TTL: time.Minute}))
	request := func(i int) semaphore.Request {
		return semaphore.Request{
			Caps: []semaphore.Cap{{Key: tenant, Limit: 20}, {Key: key, Limit: 2}},
			Meta: map[string]string{"model": fmt.Sprintf("large & %d", i)},
		}
	}
	for i := range 2 {
		lease := gatetest.Must(streams.Acquire(t.Context(), request(i)))(t)
		t.Cleanup(func() { _ = lease.Release(context.Background()) })
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{}, 3)
	t.Cleanup(func() {
		cancel()
		for range 3 {
			<-ended
		}
	})
	for i := range 3 {
		queued := make(chan int, 1)
		q := request(2 + i)
		q.MaxWait, q.OnQueue = semaphore.Forever, func(place int) {
			select {
			case queued <- place:
			default:
			}
		}
		go func() {
			defer func() { ended <- struct{}{} }()
			if lease, err := streams.Acquire(ctx, q); err == nil {
				_ = lease.Release(context.Background())
			}
		}()
		if place := <-queued; place != i {
			t.Fatalf("waiter %d is at place %d", i, place)
		}
	}
	return spent
}

// showJSON is the answer of show, as a script reads it.
type showJSON struct {
	Limits []struct {
		Key, Policy     string
		Used, Remaining int64
	}
	Counts     []struct{ Policy, Value string }     `json:"unknown_counts"`
	Keys       []struct{ Name, Kind, Value string } `json:"redis_keys"`
	Semaphores []struct {
		Semaphore string
		Caps      []struct {
			Key                  string
			Used, Limit, Waiting int64
		}
		Holders []struct {
			ID, Key       string
			Weight, Token int64
			Left          float64 `json:"lease_left_seconds"`
			Meta          map[string]string
		}
		Waiters []struct {
			ID, Key string
			Place   int
			Weight  int64
			Meta    map[string]string
		}
	}
	Below int `json:"keys_below"`
}

// Show tells of 6 limits, 2 leases and 3 waiters what was spent, taken and asked for.
func TestShow(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	spent := fill(t, srv.Client(t), "hg")
	file := write(t, "plans.yaml", sixPlans)
	if a, _ := headgateJSON[showJSON](t, "show", "acme/user-1", "--redis", urlOf(srv)); len(a.Limits) != 0 || len(a.Counts) != 6 {
		t.Errorf("without plans: %+v", a)
	}
	a, r := headgateJSON[showJSON](t, "show", "{acme}:user-1", "--redis", urlOf(srv), "--policies", file)
	a.check(t, r, srv.Client(t), spent)
	if a, _ := headgateJSON[showJSON](t, "show", "acme", "--below", "--redis", urlOf(srv), "--policies", file); len(a.Limits) != 6 {
		t.Errorf("below acme: %+v", a)
	}
	text := headgate(t, "show", "acme/user-1", "--redis", urlOf(srv), "--policies", file)
	for _, want := range []string{"fixed", "2 of 20", "2 of 2", "model=large & 0", "PLACE"} {
		if !strings.Contains(text.out, want) {
			t.Errorf("%s lacks %q", text.out, want)
		}
	}
	gate := core.Must(core.NewRedis(srv.Client(t), core.Config{}))
	defer func() { _ = gate.Close(context.Background()) }()
	mutex := core.Must(semaphore.NewMutex(gate, semaphore.MutexConfig{Name: "nightly"}))
	lease := gatetest.Must(mutex.Lock(t.Context(), core.Must(core.NewKey("report"))))(t)
	defer func() { _ = lease.Release(context.Background()) }()
	token := fmt.Sprint("  ", lease.Token(), "\n")
	text = headgate(t, "show", "report", "--redis", urlOf(srv))
	if head, row, _ := strings.Cut(text.out[strings.Index(text.out, "HOLDER"):], "\n"); !strings.Contains(row, token) ||
		strings.Index(head, "METADATA") != strings.Index(row, token)+len(token)+1 {
		t.Errorf("without metadata the heading has other columns:\n%s", text.out)
	}
	headgate(t, "show", "nobody", "--redis", urlOf(srv)).want(t, exitNothing, "keeps nothing")
	headgate(t, "show", "a//b", "--redis", urlOf(srv)).want(t, exitUsage)
}

// check compares the answer with what fill has done, and its values with those of Redis.
func (a *showJSON) check(t *testing.T, r result, client redis.UniversalClient, spent map[string]int64) {
	t.Helper()
	if r.code != exitOK || len(a.Limits) != 6 || len(a.Counts) != 0 || len(a.Keys) != 6 || len(a.Semaphores) != 1 {
		t.Fatalf("exit code %d, %+v, %s", r.code, a, r.err)
	}
	for _, l := range a.Limits {
		if l.Key != "acme/user-1" || l.Used != spent[l.Policy] || l.Remaining <= 0 {
			t.Errorf("%+v, want %d used", l, spent[l.Policy])
		}
	}
	for _, k := range a.Keys {
		if value := client.Get(t.Context(), k.Name).Val(); k.Kind == "state" && (k.Value != value || value == "") {
			t.Errorf("%+v, and in Redis %q", k, value)
		}
	}
	s := a.Semaphores[0]
	if fmt.Sprint(s.Caps) != "[{acme 2 20 3} {acme/user-1 2 2 3}]" || len(s.Holders) != 2 || len(s.Waiters) != 3 {
		t.Fatalf("%+v", s)
	}
	for _, h := range s.Holders {
		if h.Key != "acme/user-1" || h.ID == "" || h.Token <= 0 || h.Left <= 0 || !strings.HasPrefix(h.Meta["model"], "large & ") {
			t.Errorf("holder %+v", h)
		}
	}
	for i, w := range s.Waiters {
		if w.Key != "acme/user-1" || w.ID == "" || w.Place != i+1 || w.Meta["model"] != fmt.Sprint("large & ", 2+i) {
			t.Errorf("waiter %+v", w)
		}
	}
}

// On a cluster show does what it does on one server, with the rights that the docs name.
func TestShowOnClusterWithItsRights(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3)
	spent := fill(t, c.Client(t), "hg")
	for _, n := range c.Nodes {
		acl(t, n.Client(t), "reader", strings.Join([]string{rights(t, 1), rights(t, 2), rights(t, 7), "+cluster|slots"}, " "))
	}
	args := []string{"show", "acme/user-1", "--policies", write(t, "plans.yaml", sixPlans), "--redis", "redis://reader:secret@" + c.Addrs[1]}
	a, r := headgateJSON[showJSON](t, args...)
	a.check(t, r, c.Client(t), spent)
	for _, n := range c.Nodes {
		acl(t, n.Client(t), "reader", "-scan")
	}
	headgate(t, args...).want(t, exitMisconfigured, "lacks the right +scan", "ACL SETUSER ")
}
