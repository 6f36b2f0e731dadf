package lease

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/redistest"
)

// script is a scope in Redis on an injected clock.
type script struct {
	*redis.Script
	take, leave *redis.Script // of lone holders
	client      *redis.Client
	keys        []string
}

func newScript(s *redistest.Server, t *testing.T) *script {
	x := &script{
		Script: redis.NewScript(redistest.Script("lease")),
		take:   redis.NewScript(redistest.Script("take")), client: s.Client(t),
		leave: redis.NewScript(redistest.Script("leave")),
	}
	for _, part := range []string{"h", "m", "w", "p", "s"} {
		x.keys = append(x.keys, s.Prefix+":{a}:sem:"+part)
	}
	return x
}

func (x *script) run(t *testing.T, now int64, args ...any) []any {
	t.Helper()
	return x.runAll(t, now, args)[0]
}

// runLone runs an operation by the script for lone holders. It returns nil if there is none, or if the
// other is to decide.
func (x *script) runLone(t *testing.T, now int64, args []any) []any {
	t.Helper()
	var reply int64
	var err error
	switch {
	case args[0] == "acquire":
		reply, err = x.take.Run(t.Context(), x.client, x.keys[1:2], args[4], args[5], now).Int64()
	case args[0] == "release" && len(args) == 2:
		reply, err = x.leave.Run(t.Context(), x.client, x.keys[1:2], fmt.Sprint(" ", args[1], " ")).Int64()
	}
	if err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	if reply == 0 {
		return nil
	}
	return []any{reply}
}

// runAll runs operations in one script, and returns their replies as if each had run alone. One alone
// runs by the script for lone holders first, half of the time.
func (x *script) runAll(t *testing.T, now int64, operations ...[]any) (replies [][]any) {
	t.Helper()
	var keys []string
	var args []any
	for _, o := range operations {
		keys = append(keys, x.keys...)
		if len(operations) > 1 {
			args = append(args, len(o))
		}
		args = append(args, o...)
	}
	var reply []any
	if len(operations) == 1 && now%2 == 0 {
		reply = x.runLone(t, now, args)
	}
	if reply == nil {
		var err error
		if reply, err = x.Run(context.Background(), x.client, keys, append(args, now)...).Slice(); err != nil {
			t.Fatalf("%v: %v", args, err)
		}
	}
	for _, o := range operations {
		own := reply
		if reply = nil; len(operations) > 1 {
			n := own[0].(int64)
			own, reply = own[1:1+n], own[1+n:]
		}
		if o[0] == "acquire" && len(own) == 1 { // a lone holder
			own = []any{int64(Held), own[0], int64(0), int64(-1), int64(0)}
			words := strings.Fields(o[5].(string))
			own = append(own, words[1])
			for words = words[7:]; len(words) > 0; words = words[3:] {
				own = append(own, words[1])
			}
		}
		if o[0] == "release" { // how Redis kept the holder is not the model's matter
			own = nil
		}
		replies = append(replies, own)
	}
	if len(reply) > 0 {
		t.Fatalf("%v behind the replies", reply)
	}
	return replies
}

func acquireArgs(q Request) []any {
	return []any{"acquire", q.ID, q.SignedPatience(), q.Waiters, q.Lease/1000 + 301_000, q.Lone()}
}

func (g Grant) reply() string {
	all := []any{int64(g.Status), g.Token, g.Position, g.Next, g.Hold, g.Left}
	for _, n := range g.Used {
		all = append(all, n)
	}
	return fmt.Sprint(all)
}

// state returns everything the model keeps, as Redis stores it.
func (s *Scope) state() string {
	var lines []string
	for _, e := range s.holders.order {
		lines = append(lines, fmt.Sprint("h ", e.id, " ", e.at))
	}
	for _, e := range s.patience.order {
		lines = append(lines, fmt.Sprint("p ", e.id, " ", e.at))
	}
	for part, queues := range map[string]map[string][]place{"w ": s.waiters, "w ~": s.ready} {
		for node, q := range queues {
			for _, p := range q {
				lines = append(lines, fmt.Sprint(part, node, " ", p.rank, " ", p.id, " 0"))
			}
		}
	}
	for id, r := range s.records {
		lines = append(lines, "m "+id+" "+r.String())
	}
	for name, id := range s.named {
		lines = append(lines, "m i:"+name+" "+id)
	}
	for node, n := range s.used {
		lines = append(lines, fmt.Sprint("m u:", node, " ", n))
	}
	for node, at := range s.readyAt {
		lines = append(lines, fmt.Sprint("m n:", node, " ", at.parent, " ", at.rank))
	}
	for node, n := range s.newest {
		lines = append(lines, fmt.Sprint("m w:", node, " ", n.limit, ",", n.waiters))
	}
	for parent, debts := range s.debts {
		for _, p := range debts {
			node, class := strings.TrimPrefix(parent, "!"), " "
			if node != parent {
				class = "!"
			}
			lines = append(lines, fmt.Sprint("w ~", node, " ", class, p.rank, " ", p.id, " 0"))
		}
	}
	if s.since > 0 {
		lines = append(lines, fmt.Sprint("s since ", s.since))
	}
	for node, n := range s.account {
		lines = append(lines, fmt.Sprint("s a:", node, " ", n))
	}
	for node, n := range s.clock {
		lines = append(lines, fmt.Sprint("s c:", node, " ", n))
	}
	if s.Idle() && s.token > 0 {
		lines = append(lines, fmt.Sprint("m token ", s.token))
	} else if !s.Idle() {
		scope := fmt.Sprintf("m scope %d,%d,%d,%d,%d", s.last, s.ahead, s.token, s.hold, s.holders.len())
		if n := s.patience.len(); n > 0 {
			scope += fmt.Sprintf(" and %d,%d,%d,%d", s.ticket, len(s.readyAt), n, s.since)
		}
		lines = append(lines, scope)
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func (x *script) state(t *testing.T) string {
	ctx := t.Context()
	for _, key := range x.keys {
		if ttl := x.client.PTTL(ctx, key).Val(); ttl != -2 && ttl <= 0 {
			t.Fatalf("%s has PTTL %d", key, ttl)
		}
	}
	if lone := x.client.MGet(ctx, x.keys[1]).Val()[0]; lone != nil {
		if n := x.client.Exists(ctx, x.keys...).Val(); n != 1 {
			t.Fatalf("%d keys beside %v", n-1, lone)
		}
		return unfold(t, lone.(string))
	}
	records := x.client.HGetAll(ctx, x.keys[1]).Val()
	var lines []string
	for field, value := range x.client.HGetAll(ctx, x.keys[4]).Val() {
		lines = append(lines, "s "+field+" "+value)
	}
	for i, part := range []string{"h", "", "w", "p"} {
		if part == "" {
			continue
		}
		for _, z := range x.client.ZRangeWithScores(ctx, x.keys[i], 0, -1).Val() {
			lines = append(lines, fmt.Sprintf("%s %s %.0f", part, z.Member, z.Score))
		}
	}
	for field, value := range records {
		if field == "scope" { // the bounds at the ends of its lines only save the script lookups
			scope, queue, waits := strings.Cut(value, "\n")
			value = strings.Join(strings.Split(scope, ",")[:5], ",")
			if waits {
				parts := strings.Split(queue, ",")
				value += " and " + strings.Join(append(parts[:3], parts[4]), ",")
			}
		}
		lines = append(lines, "m "+field+" "+value)
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// unfold returns the state of a scope with a lone holder.
func unfold(t *testing.T, lone string) string {
	t.Helper()
	words := strings.Fields(lone)
	var times [3]int64 // granted, after, left
	for i := range times {
		var err error
		if times[i], err = strconv.ParseInt(words[i], 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	granted, seen, id, request := times[0], times[0]+times[1], words[3], words[4:]
	if times[2] == 0 {
		return fmt.Sprint("m token ", granted)
	}
	lines := []string{
		fmt.Sprint("h ", id, " ", seen+times[2]),
		fmt.Sprintf("m %s - %d %d %s", id, granted, granted, strings.Join(request, " ")),
		fmt.Sprintf("m scope %d,0,%d,0,1", seen, granted),
	}
	if name := Name(id); name != "" {
		lines = append(lines, "m i:"+request[len(request)-3]+"/"+name+" "+id)
	}
	for levels := request[4:]; len(levels) > 0; levels = levels[3:] {
		lines = append(lines, "m u:"+levels[0]+" "+levels[1])
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// received returns the messages that arrived since the last call.
func received(t *testing.T, p *redis.PubSub) (all []string) {
	t.Helper()
	if err := p.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	for {
		switch m, err := p.Receive(t.Context()); m := m.(type) {
		case *redis.Message:
			all = append(all, m.Channel+" "+m.Payload)
		case *redis.Pong: // Redis sends it after the messages
			return all
		default:
			t.Fatal(m, err)
		}
	}
}

// check fails the test if the model breaks an invariant.
func (s *Scope) check(t *testing.T) {
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
	crowds := make(map[string]int64)
	for id, r := range s.records {
		for _, l := range r.Levels {
			if _, waits := s.patience.at(id); waits {
				crowds[l.Node]++
			}
		}
	}
	for node, n := range s.newest {
		if n.waiters != crowds[node] {
			t.Fatalf("%s: %d waiters counted, want %d", node, n.waiters, crowds[node])
		}
	}
	if len(crowds) != len(s.newest) {
		t.Fatalf("waiters at %v, limits of %v", crowds, s.newest)
	}
	if len(used) != len(s.used) || len(s.records) != s.holders.len()+s.patience.len()-evicted {
		t.Fatalf("%v in use, %v counted, %d records", used, s.used, len(s.records))
	}
	waiting := 0
	for _, q := range s.waiters {
		waiting += len(q)
	}
	if waiting != s.patience.len()-evicted {
		t.Fatalf("%d wait in queues, %d have a place, %d are evicted", waiting, s.patience.len(), evicted)
	}
	// A first waiter with room would have lost its wake-up.
	if id := s.head("{a}"); id != "" && s.hasRoomAt(s.records[id], "{a}") {
		t.Fatalf("%s waits and has room", id)
	}
	for node, q := range s.waiters {
		r := s.records[s.head(node)]
		if node == "{a}" || len(q) == 0 {
			continue
		}
		if at, isReady := s.readyAt[node]; isReady != s.hasRoomAt(r, node) {
			t.Fatalf("%s is ready: %v, want %v", node, at, !isReady)
		}
	}
}

func TestScriptAgreesWithScope(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		steps := 10_000
		switch {
		case !srv.Real: // gopher-lua is slow, and would take most of the time of a long test
			steps = 1500
		case os.Getenv("HEADGATE_TEST_LONG") != "":
			steps = 200_000
		}
		rng := redistest.Rand(t)
		x, now := newScript(srv, t), int64(1_763_700_000_123_456)
		redistest.ReplayUnderLua54(t, x.client)
		var published []string
		model := &Scope{Tell: func(channel, message string) {
			published = append(published, channel+" "+message)
		}}
		channel := srv.Prefix + "c"
		sub := x.client.Subscribe(t.Context(), channel)
		t.Cleanup(func() { _ = sub.Close() })
		if _, err := sub.Receive(t.Context()); err != nil {
			t.Fatal(err)
		}
		limits := make(map[string]int64)
		chains := [][]string{
			{"{a}"}, {"{a}", "{a}:u"}, {"{a}", "{a}:v"}, {"{a}", "{a}:w"}, {"{a}", "{a}:g"},
			{"{a}", "{a}:g", "{a}:g:u"}, {"{a}", "{a}:g", "{a}:g:v"},
		}
		var ids []string
		fast := false // one level, one id and little time in each step, for the script's fast paths
		pick := func() (some []string) {
			most := 3
			if fast {
				most = 1
			}
			for range 1 + rng.IntN(most) {
				if len(ids) > 0 && rng.IntN(10) > 0 {
					some = append(some, ids[rng.IntN(len(ids))])
				} else { // unknown ids, most of them names of other fields or members
					unknown := []string{"unknown", "scope", "u:{a}", "n:{a}:u", "c:{a}", "!unknown", ""}
					some = append(some, unknown[rng.IntN(len(unknown))])
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
		var operations [][]any // of the next script
		var wants []string
		for i := range steps {
			fast = i/200%2 == 1
			switch n := rng.IntN(12); {
			case len(operations) > 0:
			case n == 0 && (!fast || rng.IntN(2) == 0):
				now += rng.Int64N(3_000_000)
			case n == 1:
				now -= rng.Int64N(2_000_000)
			default:
				now += rng.Int64N(1000)
			}
			if len(operations) == 0 && rng.IntN(100) == 0 {
				now += 60_000_000
			}
			var args []any
			var want string
			switch op := rng.IntN(20); {
			case op < 10:
				q := Request{
					ID: fmt.Sprintf("id%d", i), Channel: channel,
					Lease: 1 + rng.Int64N(4_000_000), Patience: 1 + rng.Int64N(3_000_000),
					Waiters: rng.Int64N(8), Metadata: []string{"-", "user=a%3Bb"}[rng.IntN(2)],
				}
				if i/500%2 == 1 && rng.IntN(2) == 0 { // others do without names for a while
					q.ID = fmt.Sprintf("n%d/%d", rng.IntN(3), i)
				}
				if rng.IntN(3) == 0 && len(ids) > 0 {
					q.ID = ids[rng.IntN(len(ids))]
				}
				if rng.IntN(50) == 0 {
					q.Lease *= 1_000_000 // days
				}
				q.Background = rng.IntN(3) == 0
				if rng.IntN(4) == 0 {
					q.Longest = 1 + rng.Int64N(9_000_000)
				}
				chain := chains[rng.IntN(len(chains))]
				if fast {
					chain = chains[0]
					q.Lease *= 2 // some are longer than Claim
				}
				for _, node := range chain {
					if limits[node] == 0 || rng.IntN(50) == 0 {
						limits[node] = 1 + rng.Int64N(6)
						if rng.IntN(20) == 0 { // for accounts in hundredths of the limit
							limits[node] = 1000
						}
					}
					l := Level{Node: node, Limit: limits[node], Weight: 1 + rng.Int64N(min(2, limits[node]))}
					if rng.IntN(3) == 0 {
						l.Share, l.Floor = 1+rng.Int64N(MaxShare), rng.Int64N(1+l.Limit/2)
					}
					q.Levels = append(q.Levels, l)
				}
				if r := model.records[q.ID]; r != nil { // a second request keeps its levels
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
				args = list("renew", []any{lease}, some)
				want = fmt.Sprint(model.Renew(now, lease, some))
			case op < 18:
				some := pick()
				model.Release(now, some)
				args, want = list("release", nil, some), "[]"
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
			model.check(t)
			operations, wants = append(operations, args), append(wants, want)
			if i%10 != 0 && len(operations) < 4 && rng.IntN(3) == 0 {
				continue
			}
			for j, reply := range x.runAll(t, now, operations...) {
				if got := fmt.Sprint(reply); got != wants[j] {
					t.Fatalf("step %d at %d: %v of %v\nredis: %s\nmodel: %s", i, now, j, operations, got, wants[j])
				}
			}
			operations, wants = nil, nil
			if i%10 == 0 {
				if got, want := x.state(t), model.state(); got != want {
					t.Fatalf("step %d at %d: %v\nredis:\n%s\nmodel:\n%s", i, now, args, got, want)
				}
				if srv.Real { // miniredis delivers messages later
					if got := received(t, sub); !slices.Equal(got, published) {
						t.Fatalf("step %d at %d: redis published %q, the model %q", i, now, got, published)
					}
				}
				published = nil
			}
		}
	})
}

func TestParseMessage(t *testing.T) {
	for text, want := range map[string]bool{
		"id 1763700000123456 5000000 3": true, "": false, "id": false, "!id": false,
		"id 1 2": false, "id 1 2 x": false, "id 1 2 3 4": false,
	} {
		m, ok := ParseMessage(text)
		if ok != want || want && m.String() != text {
			t.Errorf("ParseMessage(%q) = %+v, %v", text, m, ok)
		}
	}
}
