package lease

import (
	"fmt"
	"slices"
	"testing"

	"github.com/headgate/headgate/internal/redistest"
)

// pair is a scope in Redis and its model, driven by the same operations at equal times.
type pair struct {
	*script
	t         *testing.T
	now       int64
	model     *Scope
	published []string // by the model
}

func eachScope(t *testing.T, f func(t *testing.T, p *pair)) {
	t.Helper()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		p := &pair{script: newScript(srv, t), t: t, now: 1_763_700_000_123_456}
		redistest.ReplayUnderLua54(t, p.client)
		p.model = &Scope{Tell: func(_, message string) { p.published = append(p.published, message) }}
		f(t, p)
	})
}

func (p *pair) compare(got []any, want string) {
	p.t.Helper()
	if got := fmt.Sprint(got); got != want {
		p.t.Fatalf("redis: %s, model: %s", got, want)
	}
	if got, want := p.script.state(p.t), p.model.state(); got != want {
		p.t.Fatalf("redis:\n%s\nmodel:\n%s", got, want)
	}
}

func (p *pair) acquire(id string, waiters int64, levels ...Level) Grant {
	p.t.Helper()
	q := Request{
		ID: id, Channel: "c", Lease: 1_000_000, Patience: 1_000_000, Waiters: waiters, Metadata: "-",
		Levels: levels,
	}
	g := p.model.Acquire(p.now, q)
	p.compare(p.run(p.t, p.now, acquireArgs(q)...), g.reply())
	return g
}

func (p *pair) each(op string, f func(now int64, ids []string) []int64, ids ...string) []int64 {
	p.t.Helper()
	args := []any{op}
	if op == "renew" {
		args = append(args, 1_000_000)
	}
	for _, id := range ids {
		args = append(args, id)
	}
	all := f(p.now, ids)
	p.compare(p.run(p.t, p.now, args...), fmt.Sprint(all))
	return all
}

func (p *pair) renew(ids ...string) []int64 {
	p.t.Helper()
	renew := func(now int64, ids []string) []int64 { return p.model.Renew(now, 1_000_000, ids) }
	return p.each("renew", renew, ids...)
}

func (p *pair) release(ids ...string) {
	p.t.Helper()
	release := func(now int64, ids []string) []int64 {
		p.model.Release(now, ids)
		return nil
	}
	p.each("release", release, ids...)
}

func (p *pair) force(ids ...string) []int64 {
	p.t.Helper()
	return p.each("force", p.model.Force, ids...)
}

// An evicted id is refused until its lease and one more lease length have passed, or until it is
// released.
func TestForceRefusesID(t *testing.T) {
	t.Parallel()
	eachScope(t, func(t *testing.T, p *pair) {
		one := Level{Node: "{a}", Limit: 1, Weight: 1}
		p.acquire("held", 0, one)
		p.acquire("waits", 9, one)
		got := p.force("held", "waits", "held", "scope", "u:{a}", "!held", "")
		if !slices.Equal(got, []int64{1, 2, 0, 0, 0, 0, 0}) {
			t.Fatal(got)
		}
		got = p.renew("held", "waits", "unknown", "!held")
		if !slices.Equal(got, []int64{-1, -1, 0, 0}) {
			t.Fatal(got)
		}
		for _, id := range []string{"held", "waits"} {
			if g := p.acquire(id, 9, one); g.Status != Evicted {
				t.Fatalf("%s: %+v", id, g)
			}
		}
		p.release("waits")
		if g := p.acquire("waits", 9, one); g.Status != Held {
			t.Fatalf("%+v", g)
		}
		p.now += 1_999_999
		if got := p.renew("held", "waits"); !slices.Equal(got, []int64{-1, 0}) {
			t.Fatal(got)
		}
		p.now++
		if got := p.renew("held"); got[0] != 0 || !p.model.Idle() {
			t.Fatal(got, p.model.Idle())
		}
	})
}

// A request that places a node below another parent than others did cannot exceed any cap.
func TestNodeWithTwoParents(t *testing.T) {
	t.Parallel()
	eachScope(t, func(t *testing.T, p *pair) {
		root, tenant, user := Level{Node: "{a}", Limit: 9, Weight: 1}, Level{Node: "{a}:t", Limit: 1, Weight: 1}, Level{Node: "{a}:u", Limit: 1, Weight: 1}
		p.acquire("tenant", 0, root, tenant)
		p.acquire("user", 0, root, user)
		p.acquire("waits", 9, root, tenant, user)
		p.release("user")
		if n := p.model.used[tenant.Node]; n != 1 {
			t.Fatalf("%d of 1 in use", n)
		}
		p.release("tenant")
		if g := p.acquire("waits", 9, root, tenant, user); g.Status != Held {
			t.Fatalf("%+v", g)
		}
		root.Limit = 1
		one, two, both := Level{"{a}:1", 1, 1, 0, 0}, Level{"{a}:2", 1, 1, 0, 0}, Level{"{a}:b", 1, 1, 0, 0}
		p.acquire("first", 9, root, one, both)
		p.acquire("second", 9, root, two, both)
		p.acquire("third", 9, root)
		p.release("first", "second")
		p.release("waits")
		if g := p.acquire("third", 9, root); g.Status != Held {
			t.Fatalf("%+v", g)
		}
	})
}

// Requests that place two nodes below one another end no search for a waiter.
func TestNodesInCircle(t *testing.T) {
	t.Parallel()
	eachScope(t, func(t *testing.T, p *pair) {
		a, u, v := Level{Node: "{a}", Limit: 1, Weight: 1}, Level{Node: "{a}:u", Limit: 5, Weight: 1}, Level{Node: "{a}:v", Limit: 5, Weight: 1}
		p.acquire("h", 0, a)
		p.acquire("w1", 9, a, u, v)
		p.acquire("w2", 9, a, v, u)
		p.acquire("w3", 9, a, u, v)
		p.acquire("w4", 9, a, v, u)
		for _, id := range []string{"w1", "h", "w2", "w3", "w4"} {
			p.now++
			p.release(id)
		}
	})
}

// Redis may lose the holders alone. They can be evicted all the same.
func TestEvictionWithoutHolders(t *testing.T) {
	t.Parallel()
	eachScope(t, func(t *testing.T, p *pair) {
		one := Level{Node: "{a}", Limit: 5, Weight: 1}
		p.acquire("x", 0, one)
		p.acquire("y", 0, one)
		if err := p.client.Del(t.Context(), p.keys[0]).Err(); err != nil {
			t.Fatal(err)
		}
		if got := p.run(t, p.now, "force", "x", "unknown"); got[0] != int64(1) || got[1] != int64(0) {
			t.Error(got)
		}
		if got := p.run(t, p.now, "renew", 1_000_000, "x", "y"); got[0] != int64(-1) || got[1] == int64(0) {
			t.Error(got)
		}
	})
}

// One script grants at most 64 leases. The next waiter is told to acquire again, and its acquire
// grants the following ones.
func TestGrantsAreBounded(t *testing.T) {
	t.Parallel()
	eachScope(t, func(t *testing.T, p *pair) {
		one := Level{Node: "{a}", Limit: 150, Weight: 1}
		p.acquire("all", 0, Level{Node: "{a}", Limit: 150, Weight: 150})
		for i := range 150 {
			p.acquire(fmt.Sprint("w", i), 1000, one)
		}
		p.published = nil
		p.release("all")
		for _, want := range []string{"w64 0 0 0", "w128 0 0 0", ""} {
			last := ""
			if n := len(p.published) - 1; n >= 0 {
				last = p.published[n]
			}
			m, ok := ParseMessage(last)
			if want == "" {
				if m.Token == 0 || len(p.model.waiters) > 0 {
					t.Errorf("published %q, and %d nodes have waiters", last, len(p.model.waiters))
				}
				continue
			}
			if !ok || last != want {
				t.Fatalf("published %q, want %q", last, want)
			}
			if g := p.acquire(m.ID, 1000, one); g.Status != Held {
				t.Fatalf("%s: %+v", m.ID, g)
			}
		}
	})
}

// One script drops at most 32 expired leases. The others have 0 left, never less.
func TestManyExpiredLeases(t *testing.T) {
	t.Parallel()
	eachScope(t, func(t *testing.T, p *pair) {
		one := Level{Node: "{a}", Limit: 100, Weight: 1}
		for i := range 80 {
			p.acquire(fmt.Sprint("h", i), 0, one)
		}
		p.now += 5_000_000
		if g := p.acquire("newest", 0, Level{Node: "{a}", Limit: 10, Weight: 1}); g.Next != 0 {
			t.Errorf("%+v", g)
		}
		at, all := p.model.List(p.now)
		entries := []any{at}
		for _, e := range all {
			if e.Left < 0 {
				t.Errorf("%+v", e)
			}
			entries = append(entries, e.ID, e.Left, e.Record)
		}
		p.compare(p.run(t, p.now, "list"), fmt.Sprint(entries))
	})
}

// Redis may lose the holders alone, as to an eviction. Renewals put them back, with a time to live,
// and the last release leaves nothing.
func TestLostHoldersComeBack(t *testing.T) {
	t.Parallel()
	eachScope(t, func(t *testing.T, p *pair) {
		level := Level{Node: "{a}", Limit: 5, Weight: 1}
		for _, id := range []string{"x", "y"} {
			p.acquire(id, 0, level)
		}
		if err := p.client.Del(t.Context(), p.keys[0]).Err(); err != nil {
			t.Fatal(err)
		}
		p.each("renew", func(now int64, ids []string) []int64 { return p.model.Renew(now, 1_000_000, ids) }, "x", "y")
		p.release("x", "y")
		if n := p.client.Exists(t.Context(), p.keys...).Val(); n != 1 { // the last token
			t.Errorf("%d keys remain", n)
		}
	})
}

// The limit of the newest request that names a node holds for all that wait there, also at a parent
// and also if the newest does not wait.
func TestNewestLimitHoldsForWaiters(t *testing.T) {
	t.Parallel()
	root := func(limit int64) Level { return Level{Node: "{a}", Limit: limit, Weight: 1} }
	user := func(name string) Level { return Level{Node: "{a}:" + name, Limit: 9, Weight: 1} }
	for name, levelsOf := range map[string]func(limit int64, user string) []Level{
		"one key":  func(limit int64, _ string) []Level { return []Level{root(limit)} },
		"a parent": func(limit int64, name string) []Level { return []Level{root(limit), user(name)} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eachScope(t, func(t *testing.T, p *pair) {
				p.acquire("held", 0, levelsOf(1, "u")...)
				p.acquire("old1", 9, levelsOf(1, "u")...)
				p.acquire("old2", 9, levelsOf(1, "w")...)
				p.published = nil
				if g := p.acquire("new", 9, levelsOf(4, "v")...); g.Status != Held {
					t.Errorf("raised: %+v", g)
				}
				if len(p.published) != 2 {
					t.Errorf("raised: published %q", p.published)
				}
				p.acquire("old3", 9, levelsOf(4, "u")...)
				if g := p.acquire("low", 0, levelsOf(2, "v")...); g.Status != Full {
					t.Errorf("lowered: %+v", g)
				}
				p.published = nil
				p.release("held")
				p.release("old1")
				if len(p.published) > 0 {
					t.Errorf("lowered: published %q", p.published)
				}
				p.release("old2")
				if len(p.published) != 1 {
					t.Errorf("room under the lowered limit: published %q", p.published)
				}
				p.release("new", "old3")
			})
		})
	}
}

// A waiter whose weight is above a lowered limit runs alone, and does not block the queue for ever.
func TestHeavyWaiterRunsAlone(t *testing.T) {
	t.Parallel()
	eachScope(t, func(t *testing.T, p *pair) {
		p.acquire("held", 0, Level{Node: "{a}", Limit: 3, Weight: 1})
		p.acquire("heavy", 9, Level{Node: "{a}", Limit: 3, Weight: 3})
		p.acquire("light", 9, Level{Node: "{a}", Limit: 2, Weight: 1})
		p.published = nil
		p.release("held")
		if _, held := p.model.holders.at("heavy"); !held || len(p.published) != 1 {
			t.Errorf("published %q", p.published)
		}
		p.release("heavy")
		if len(p.published) != 2 {
			t.Errorf("published %q", p.published)
		}
		p.release("light")
	})
}

// The scripts for lone holders take and give back slots of many scopes. They leave everything to the
// other but the slots of free scopes and the leases of lone holders, and change nothing there.
func TestLoneAnswersEach(t *testing.T) {
	t.Parallel()
	const now = int64(1_763_700_000_123_456)
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		x, ctx := newScript(srv, t), t.Context()
		level := Level{Node: "{a}", Limit: 5, Weight: 1}
		ask := func(id string) Request {
			return Request{ID: id, Channel: "c", Lease: 1_000_000, Patience: 1, Metadata: "-", Levels: []Level{level}}
		}
		hold := func(ids ...string) func(t *testing.T, at int64) {
			return func(t *testing.T, at int64) {
				for _, id := range ids {
					x.run(t, at, acquireArgs(ask(id))...)
				}
			}
		}
		free := func(t *testing.T, at int64) {
			hold("id")(t, at)
			x.run(t, at, "release", "id")
		}
		foreign := func(value string) func(*testing.T, int64) {
			return func(t *testing.T, _ int64) {
				if err := x.client.Set(ctx, x.keys[1], value, 0).Err(); err != nil {
					t.Fatal(err)
				}
			}
		}
		for name, tests := range map[string][]struct {
			name   string
			before func(t *testing.T, at int64)
			at     int64 // when before happened
			want   int64
			left   bool // the records are as before
		}{
			"take": {
				{name: "a free scope", want: now},
				{name: "after a release", before: free, at: now - 1, want: now},
				{name: "before the last token", before: free, at: now, left: true},
				{name: "beside a lone holder", before: hold("other"), at: now, left: true},
				{name: "its own lease", before: hold("id"), at: now, left: true},
				{name: "beside two holders", before: hold("other", "another"), at: now, left: true},
				{name: "at a foreign value", before: foreign("1 2 3, and more than 16 bytes"), left: true},
				{name: "at a foreign number", before: foreign("17000000000000000000"), left: true},
				{name: "the scope taken before", want: 0},
			},
			"leave": {
				{name: "a lone lease", before: hold("id"), at: now, want: 1},
				{name: "after a release", before: free, at: now - 1, left: true},
				{name: "at a free scope", left: true},
				{name: "another's lone lease", before: hold("other"), at: now, left: true},
				{name: "beside another", before: hold("id", "other"), at: now, left: true},
				{name: "an ended lease", before: hold("id"), at: now - 1_000_000, want: 1},
				{name: "before the grant", before: hold("id"), at: now + 1, want: 1},
				{name: "at a foreign value", before: foreign("1 2 3 of 16 bytes id"), left: true},
			},
		} {
			var keys []string
			var argv []any
			dumps := make([]string, len(tests))
			for i, tt := range tests {
				for k, part := range []string{"h", "m", "w", "p", "s"} {
					x.keys[k] = fmt.Sprintf("%s:{a}:%s%d:%s", srv.Prefix, name, i, part)
				}
				if tt.before != nil {
					tt.before(t, tt.at)
				}
				keys, dumps[i] = append(keys, x.keys[1]), x.client.Dump(ctx, x.keys[1]).Val()
				if q := ask("id"); name == "take" {
					argv = append(argv, q.Lease/1000+301_000, q.Lone())
				} else {
					argv = append(argv, " id ")
				}
			}
			script := x.leave
			if name == "take" {
				script, argv = x.take, append(argv, now)
				last := len(keys) - 1
				keys[last], dumps[last] = keys[0], dumps[0]
			}
			reply, err := script.Run(ctx, x.client, keys, argv...).Int64Slice()
			if err != nil || len(reply) != len(tests) {
				t.Fatal(name, reply, err)
			}
			for i, tt := range tests {
				if reply[i] != tt.want {
					t.Errorf("%s %s: %d", name, tt.name, reply[i])
				}
				if left := x.client.Dump(ctx, keys[i]).Val() == dumps[i]; left != tt.left {
					t.Errorf("%s %s: the records are as before: %v", name, tt.name, left)
				}
			}
		}
	})
}
