package lease

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/redistest"
)

// script is a scope in Redis on an injected clock.
type script struct {
	*redis.Script
	client *redis.Client
	keys   []string
}

func newScript(s *redistest.Server, t *testing.T) *script {
	x := &script{Script: redis.NewScript(headgate.LeaseScriptInjected()), client: s.Client(t)}
	for _, part := range []string{"h", "m", "w", "p", "r"} {
		x.keys = append(x.keys, s.Prefix+":{a}:sem:"+part)
	}
	return x
}

func (x *script) run(t *testing.T, now int64, args ...any) []any {
	t.Helper()
	reply, err := x.Run(context.Background(), x.client, x.keys, append(args, now)...).Slice()
	if err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	return reply
}

func acquireArgs(q Request) []any {
	args := []any{"acquire", q.ID, q.Patience, q.Waiters, q.Priority, q.Longest, q.Lease, q.Channel, q.Metadata}
	for _, l := range q.Levels {
		args = append(args, l.Node, l.Weight, l.Limit)
	}
	return args
}

func (g Grant) reply() string {
	all := []any{int64(g.Status), g.Token, g.Position, g.Next, g.Hold, g.Left}
	for _, n := range g.Used {
		all = append(all, n)
	}
	return fmt.Sprint(all)
}

// state is all that is kept, as Redis would hold it.
func (s *Scope) state() string {
	var lines []string
	for _, e := range s.holders.order {
		lines = append(lines, fmt.Sprint("h ", e.id, " ", e.at))
	}
	for _, e := range s.patience.order {
		lines = append(lines, fmt.Sprint("p ", e.id, " ", e.at))
	}
	for part, queues := range map[string]map[string][]place{"w": s.waiters, "r": s.ready} {
		for node, q := range queues {
			for _, p := range q {
				lines = append(lines, fmt.Sprint(part, " ", node, " ", p.ticket, " ", p.id, " 0"))
			}
		}
	}
	for id, r := range s.records {
		lines = append(lines, "m "+id+" "+r.String())
	}
	for node, n := range s.used {
		lines = append(lines, fmt.Sprint("m u:", node, " ", n))
	}
	for node, ticket := range s.entered {
		lines = append(lines, fmt.Sprint("m n:", node, " ", ticket))
	}
	if !s.Idle() {
		lines = append(lines, fmt.Sprintf("m scope %d,%d,%d,%d,%d,%d", s.last, s.ahead, s.token, s.ticket, s.hold, len(s.entered)))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func (x *script) state(t *testing.T) string {
	ctx := t.Context()
	var lines []string
	for i, part := range []string{"h", "", "w", "p", "r"} {
		if part == "" {
			continue
		}
		for _, z := range x.client.ZRangeWithScores(ctx, x.keys[i], 0, -1).Val() {
			lines = append(lines, fmt.Sprintf("%s %s %.0f", part, z.Member, z.Score))
		}
	}
	for field, value := range x.client.HGetAll(ctx, x.keys[1]).Val() {
		if field == "scope" { // without the bounds, which spare it looking
			value = strings.Join(strings.Split(value, ",")[:6], ",")
		}
		lines = append(lines, "m "+field+" "+value)
	}
	for _, key := range x.keys {
		if ttl := x.client.PTTL(ctx, key).Val(); ttl != -2 && ttl <= 0 {
			t.Fatalf("%s has PTTL %d", key, ttl)
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// messages are what was published to a subscriber since the last time.
func messages(t *testing.T, p *redis.PubSub) (all []string) {
	t.Helper()
	if err := p.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	for {
		switch m, err := p.Receive(t.Context()); m := m.(type) {
		case *redis.Message:
			all = append(all, m.Channel+" "+m.Payload)
		case *redis.Pong: // comes after them
			return all
		default:
			t.Fatal(m, err)
		}
	}
}

// check holds the invariants of a scope.
func (s *Scope) check(t *testing.T, limits map[string]int64) {
	t.Helper()
	used := make(map[string]int64)
	for id := range s.holders.times {
		if _, waits := s.patience.at(id); waits || s.records[id] == nil {
			t.Fatalf("%s holds and waits, or has no record", id)
		}
		for _, l := range s.records[id].Levels {
			used[l.Node] += l.Weight
		}
	}
	for node, n := range used {
		if s.used[node] != n {
			t.Fatalf("%s: %d in use, %d counted", node, n, s.used[node])
		}
	}
	evicted := 0
	for id := range s.patience.times {
		if id[0] == '!' {
			evicted++
		}
	}
	if len(used) != len(s.used) || len(s.records) != s.holders.len()+s.patience.len()-evicted {
		t.Fatalf("%v in use, %v counted, %d records", used, s.used, len(s.records))
	}
	waiting := 0
	for _, q := range s.waiters {
		waiting += len(q)
	}
	if waiting != s.patience.len()-evicted {
		t.Fatalf("%d wait in queues, %d are patient, %d evicted", waiting, s.patience.len(), evicted)
	}
	// Nobody waits who could run: no lost wake-up.
	for _, root := range []string{"{a}"} {
		if _, id := s.head(root); id != "" && s.room(s.records[id], root) {
			t.Fatalf("%s waits and has room", id)
		}
	}
	for node, q := range s.waiters {
		_, id := s.head(node)
		r := s.records[id]
		if node == "{a}" || len(q) == 0 {
			continue
		}
		if want := s.room(r, node); want != (s.entered[node] != "") {
			t.Fatalf("%s is ready: %v, want %v", node, s.entered[node], want)
		}
	}
	_ = limits
}

func TestScriptAgreesWithScope(t *testing.T) {
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		steps := 10_000
		switch {
		case os.Getenv("HEADGATE_TEST_LONG") != "":
			steps = 200_000
		case !srv.Real: // whose Lua is slow under the race detector
			steps = 1500
		}
		seed := rand.Uint64()
		t.Cleanup(func() {
			if t.Failed() {
				t.Logf("seed %d", seed)
			}
		})
		rng := rand.New(rand.NewPCG(seed, 0))
		x, now := newScript(srv, t), int64(1_763_700_000_123_456)
		var told []string
		model := &Scope{Tell: func(channel, message string) { told = append(told, channel+" "+message) }}
		channels := []string{srv.Prefix + "c", srv.Prefix + "{a}c"}
		hears := x.client.Subscribe(t.Context(), channels[0])
		t.Cleanup(func() { _ = hears.Close() })
		if _, err := hears.Receive(t.Context()); err != nil {
			t.Fatal(err)
		}
		if srv.Real {
			if err := hears.SSubscribe(t.Context(), channels[1]); err != nil {
				t.Fatal(err)
			}
			if _, err := hears.Receive(t.Context()); err != nil {
				t.Log(err) // before Redis 7 there are no sharded ones
				channels = channels[:1]
			}
		}
		limits := make(map[string]int64)
		chains := [][]string{
			{"{a}"}, {"{a}", "{a}:u"}, {"{a}", "{a}:v"}, {"{a}", "{a}:w"}, {"{a}", "{a}:g"}, {"{a}", "{a}:g", "{a}:g:u"}, {"{a}", "{a}:g", "{a}:g:v"},
		}
		var ids []string
		plain := false // one level, one id at a time, little time: what the short steps of the script are for
		pick := func() (some []string) {
			most := 3
			if plain {
				most = 1
			}
			for range 1 + rng.IntN(most) {
				if len(ids) > 0 && rng.IntN(10) > 0 {
					some = append(some, ids[rng.IntN(len(ids))])
				} else { // such as what has another meaning in Redis
					some = append(some, []string{"unknown", "scope", "u:{a}", "n:{a}:u", "!unknown", ""}[rng.IntN(6)])
				}
			}
			return some
		}
		list := func(op string, head []any, some []string) []any {
			args := append([]any{op}, head...)
			for _, id := range some {
				args = append(args, id)
			}
			return args
		}
		for i := range steps {
			plain = i/200%2 == 1
			switch n := rng.IntN(12); {
			case n == 0 && (!plain || rng.IntN(2) == 0):
				now += rng.Int64N(3_000_000)
			case n == 1:
				now -= rng.Int64N(2_000_000)
			default:
				now += rng.Int64N(1000)
			}
			if rng.IntN(100) == 0 {
				now += 60_000_000
			}
			var args []any
			var want string
			switch op := rng.IntN(20); {
			case op < 10:
				q := Request{
					ID: fmt.Sprintf("id%d", i), Channel: channels[rng.IntN(len(channels))], Lease: 1 + rng.Int64N(4_000_000), Patience: 1 + rng.Int64N(3_000_000),
					Waiters: rng.Int64N(8), Priority: rng.IntN(2), Metadata: "-",
				}
				if rng.IntN(3) == 0 && len(ids) > 0 {
					q.ID = ids[rng.IntN(len(ids))]
				}
				if rng.IntN(4) == 0 {
					q.Longest = 1 + rng.Int64N(9_000_000)
				}
				chain := chains[rng.IntN(len(chains))]
				if plain {
					chain = chains[0]
					q.Lease *= 2 // some more than a claim
				}
				for _, node := range chain {
					if limits[node] == 0 || rng.IntN(50) == 0 {
						limits[node] = 1 + rng.Int64N(6)
					}
					q.Levels = append(q.Levels, Level{node, limits[node], 1 + rng.Int64N(2)})
				}
				if r := model.records[q.ID]; r != nil { // who asks again asks for the same
					q.Levels = slices.Clone(r.Levels)
					for j := range q.Levels {
						q.Levels[j].Limit = limits[q.Levels[j].Node]
					}
				} else {
					ids = append(ids, q.ID)
				}
				if len(ids) > 30 {
					ids = ids[1:]
				}
				args, want = acquireArgs(q), model.Acquire(now, q).reply()
			case op < 14:
				some := pick()
				lease := 1 + rng.Int64N(4_000_000)
				args, want = list("renew", []any{lease}, some), fmt.Sprint(model.Renew(now, lease, some))
			case op < 18:
				some := pick()
				args, want = list("release", nil, some), fmt.Sprint(model.Release(now, some))
			case op < 19:
				some := pick()
				args, want = list("force", nil, some), fmt.Sprint(model.Force(now, some))
			default:
				at, entries := model.List(now)
				all := []any{at}
				for _, e := range entries {
					all = append(all, e.ID, e.Left, e.Record)
				}
				args, want = []any{"list"}, fmt.Sprint(all)
			}
			if got := fmt.Sprint(x.run(t, now, args...)); got != want {
				t.Fatalf("step %d at %d: %v\nredis: %s\nmodel: %s", i, now, args, got, want)
			}
			model.check(t, limits)
			if i%10 == 0 {
				if got, want := x.state(t), model.state(); got != want {
					t.Fatalf("step %d at %d: %v\nredis:\n%s\nmodel:\n%s", i, now, args, got, want)
				}
				if srv.Real { // miniredis tells in its own time
					if got := messages(t, hears); !slices.Equal(got, told) {
						t.Fatalf("step %d at %d: redis told %q, the model %q", i, now, got, told)
					}
				}
				told = nil
			}
		}
	})
}
