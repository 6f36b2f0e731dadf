package main

import (
	"context"
	"encoding/hex"
	"fmt"
	"math"
	"net"
	"net/url"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/redistest"
)

// cli runs redis-cli on a server, and returns the lines of its answer.
func cli(t *testing.T, addr string, args ...string) []string {
	t.Helper()
	path, err := exec.LookPath("redis-cli")
	if err != nil {
		t.Skip("redis-cli is not on PATH")
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), path, append([]string{"-h", host, "-p", port, "-c"}, args...)...).Output()
	if err != nil {
		t.Fatalf("redis-cli %v: %v", args, err)
	}
	text := strings.TrimSuffix(string(out), "\n")
	if text == "" {
		return nil
	}
	return strings.Split(text, "\n")
}

func cliNumber(t *testing.T, addr string, args ...string) float64 {
	return gatetest.Must(strconv.ParseFloat(strings.Join(cli(t, addr, args...), ""), 64))(t)
}

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
// It returns the ids of the two and how much it spent.
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
	Key, Path string
	Limits    []struct {
		Key, Policy, Label, Algorithm, Value string
		Used, Limit                          *int64
		Stored                               int64    `json:"stored_units"`
		Rest                                 *float64 `json:"untouched_after_seconds"`
		TTL                                  float64  `json:"ttl_seconds"`
		Redis                                string   `json:"redis_key"`
		Details                              map[string]any
	}
	Semaphores []struct {
		Semaphore string
		Caps      []struct {
			Key                  string
			Used, Limit, Waiting int64
		}
		Holders []struct {
			ID, Key, Since string
			Weight, Token  int64
			Left           float64 `json:"lease_left_seconds"`
			Meta           map[string]string
		}
		Waiters []struct {
			ID, Key string
			Place   int
			Weight  int64
			Left    float64 `json:"place_left_seconds"`
			Meta    map[string]string
		}
	}
	Below int `json:"keys_below"`
}

// What show says of 6 limits, 2 leases and 3 waiters is what redis-cli reads.
func TestShowEqualsRedisCLI(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	spent := fill(t, srv.Client(t), "hg")
	a, r := headgateJSON[showJSON](t, "show", "acme/user-1", "--redis", urlOf(srv))
	if r.code != exitOK || len(a.Limits) != 6 || len(a.Semaphores) != 1 {
		t.Fatalf("exit code %d, %+v, %s", r.code, a, r.err)
	}
	checkLimits(t, &a, spent, srv.Addr)
	checkSlots(t, srv.Addr, &a)
	named, _ := headgateJSON[showJSON](t, "show", "{acme}:user-1", "--redis", urlOf(srv), "--policies", write(t, "plans.yaml", sixPlans))
	for _, l := range named.Limits {
		if l.Used == nil && l.Policy != "log" || l.Used != nil && *l.Used != spent[l.Policy] {
			t.Errorf("with its plan, %s has used %+v, want %d", l.Policy, l, spent[l.Policy])
		}
	}
	text := headgate(t, "show", "acme/user-1", "--redis", urlOf(srv))
	for _, want := range []string{"fixed", "2 of 20", "2 of 2", "model=large & 0", "PLACE"} {
		if !strings.Contains(text.out, want) {
			t.Errorf("%s lacks %q", text.out, want)
		}
	}
	if r := headgate(t, "show", "nobody", "--redis", urlOf(srv)); r.code != exitNothing || !strings.Contains(r.out, "keeps nothing") {
		t.Errorf("nobody: exit code %d: %s%s", r.code, r.out, r.err)
	}
	if r := headgate(t, "show", "a//b", "--redis", urlOf(srv)); r.code != exitUsage {
		t.Errorf("an empty part: exit code %d: %s", r.code, r.err)
	}
}

// checkLimits compares the limits with what redis-cli reads.
func checkLimits(t *testing.T, a *showJSON, spent map[string]int64, addrs ...string) {
	t.Helper()
	addr := addrs[0]
	var names []string
	for _, node := range addrs {
		names = append(names, cli(t, node, "KEYS", "hg:{acme}:user-1:*")...)
	}
	shown := make(map[string]bool)
	buckets := 0
	for _, l := range a.Limits {
		shown[l.Redis] = true
		if ttl := cliNumber(t, addr, "PTTL", l.Redis) / 1000; math.Abs(ttl-l.TTL) > 20 {
			t.Errorf("%s: TTL %v, redis-cli reads %v", l.Redis, l.TTL, ttl)
		}
		value := strings.Join(cli(t, addr, "GET", l.Redis), "\n")
		if l.Label != "" {
			buckets++
			raw := unquoted(t, addr, l.Redis)
			if !strings.Contains(hex.EncodeToString([]byte(raw)), l.Value) || l.Value[:12] != l.Label {
				t.Errorf("%s: %s is not in what redis-cli reads: %x", l.Redis, l.Value, raw)
			}
			if l.Algorithm == "units in all" && (l.Used == nil || *l.Used != spent["credits"] || l.Rest != nil) {
				t.Errorf("credits: %+v", l)
			}
			if l.Algorithm == "bucket" {
				// 6 an hour: each unit takes 600 s.
				want := float64(spent["api"]) * 600
				if l.Used != nil || l.Rest == nil || *l.Rest > want || *l.Rest < want-30 {
					t.Errorf("api: %+v, want full in %v s", l, want)
				}
			}
			continue
		}
		if l.Value != value {
			t.Errorf("%s: %q, redis-cli reads %q", l.Redis, l.Value, value)
		}
		used := l.Stored
		if l.Policy != "log" {
			if l.Used == nil {
				t.Fatalf("%s: use is not known", l.Redis)
			}
			used = *l.Used
			if n, err := strconv.ParseInt(strings.Fields(value)[1], 10, 64); err != nil || n != used {
				t.Errorf("%s: used %d, redis-cli reads %q", l.Redis, used, value)
			}
		}
		if used != spent[l.Policy] {
			t.Errorf("%s: used %d, want %d", l.Policy, used, spent[l.Policy])
		}
	}
	slices.Sort(names)
	if len(shown) != len(names) || buckets != 2 || slices.ContainsFunc(names, func(n string) bool { return !shown[n] }) {
		t.Errorf("show has %v, redis-cli %v", shown, names)
	}
}

// unquoted returns a value with bytes that are no text.
func unquoted(t *testing.T, addr, name string) string {
	return gatetest.Must(strconv.Unquote(strings.Join(cli(t, addr, "--no-raw", "GET", name), "\n")))(t)
}

// checkSlots compares holders and waiters with what redis-cli reads.
func checkSlots(t *testing.T, addr string, a *showJSON) {
	t.Helper()
	const scope = "hg:{acme}:streams:se7:"
	s := a.Semaphores[0]
	if fmt.Sprint(s.Caps) != "[{acme 2 20 3} {acme/user-1 2 2 3}]" {
		t.Errorf("%+v", s.Caps)
	}
	for _, c := range []struct{ key, field string }{{"acme", "u:{acme}"}, {"acme/user-1", "u:{acme}:user-1"}} {
		if n := cliNumber(t, addr, "HGET", scope+"m", c.field); n != 2 {
			t.Errorf("redis-cli reads %v in use at %s", n, c.key)
		}
	}
	holders := cli(t, addr, "ZRANGE", scope+"h", "0", "-1")
	if len(holders) != 2 || len(s.Holders) != 2 || len(s.Waiters) != 3 {
		t.Fatalf("%+v, redis-cli reads %v", s, holders)
	}
	now := cli(t, addr, "TIME")
	seconds := gatetest.Must(strconv.ParseFloat(now[0], 64))(t)
	meta := func(id string) map[string]string {
		words := strings.Fields(strings.Join(cli(t, addr, "HGET", scope+"m", id), ""))
		values, err := url.ParseQuery(words[6])
		if err != nil || len(words) != 13 {
			t.Fatalf("%q: %v", words, err)
		}
		return map[string]string{"model": values.Get("model")}
	}
	for i, h := range s.Holders {
		ends := cliNumber(t, addr, "ZSCORE", scope+"h", h.ID)/1e6 - seconds
		words := strings.Fields(strings.Join(cli(t, addr, "HGET", scope+"m", h.ID), ""))
		if h.ID != holders[i] || h.Key != "acme/user-1" || math.Abs(h.Left-ends) > 20 ||
			fmt.Sprint(h.Token) != words[1] || fmt.Sprint(h.Meta) != fmt.Sprint(meta(h.ID)) {
			t.Errorf("holder %+v, redis-cli reads %s, %v s, %q", h, holders[i], ends, words)
		}
	}
	var queue []string
	for _, member := range cli(t, addr, "ZRANGE", scope+"w", "0", "-1") {
		if words := strings.Fields(member); words[0] == "{acme}:user-1" {
			queue = append(queue, words[2])
		}
	}
	for i, w := range s.Waiters {
		if w.ID != queue[i] || w.Place != i || w.Meta["model"] != fmt.Sprintf("large & %d", 2+i) || fmt.Sprint(w.Meta) != fmt.Sprint(meta(w.ID)) {
			t.Errorf("waiter %+v, redis-cli reads %s", w, queue[i])
		}
	}
}

// On a cluster show does what it does on one server, and writes nothing: the user may only read.
func TestShowOnClusterWithItsRights(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3)
	spent := fill(t, c.Client(t), "hg")
	for _, n := range c.Nodes {
		acl(t, n.Client(t), "reader", "on >secret ~hg:* +cluster|slots "+allow(features[len(features)-1].commands))
	}
	a, r := headgateJSON[showJSON](t, "show", "acme/user-1", "--redis", "redis://reader:secret@"+c.Addrs[1])
	if r.code != exitOK || len(a.Limits) != 6 || len(a.Semaphores) != 1 {
		t.Fatalf("exit code %d, %+v, %s", r.code, a, r.err)
	}
	checkLimits(t, &a, spent, c.Addrs...)
	checkSlots(t, c.Addrs[0], &a)
	for _, n := range c.Nodes {
		acl(t, n.Client(t), "reader", "-hgetall")
	}
	r = headgate(t, "show", "acme/user-1", "--redis", "redis://reader:secret@"+c.Addrs[1])
	if r.code != exitMisconfigured || !strings.Contains(r.err, "+hgetall; headgate ping lists") {
		t.Errorf("exit code %d: %s", r.code, r.err)
	}
}
