package lease

import (
	"fmt"
	"slices"
	"testing"

	"github.com/headgate/headgate/internal/redistest"
)

// both is a scope in Redis and its model, at equal times.
type both struct {
	*script
	t     *testing.T
	now   int64
	model *Scope
	told  []string // of the model
}

func eachScope(t *testing.T, f func(t *testing.T, b *both)) {
	t.Helper()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		b := &both{script: newScript(srv, t), t: t, now: 1_763_700_000_123_456}
		b.model = &Scope{Tell: func(_, message string) { b.told = append(b.told, message) }}
		f(t, b)
	})
}

func (b *both) same(got []any, want string) {
	b.t.Helper()
	if got := fmt.Sprint(got); got != want {
		b.t.Fatalf("redis: %s, model: %s", got, want)
	}
	if got, want := b.script.state(b.t), b.model.state(); got != want {
		b.t.Fatalf("redis:\n%s\nmodel:\n%s", got, want)
	}
}

func (b *both) acquire(id string, waiters int64, levels ...Level) Grant {
	b.t.Helper()
	q := Request{ID: id, Channel: "c", Lease: 1_000_000, Patience: 1_000_000, Waiters: waiters, Metadata: "-", Levels: levels}
	g := b.model.Acquire(b.now, q)
	b.same(b.run(b.t, b.now, acquireArgs(q)...), g.reply())
	return g
}

func (b *both) each(op string, f func(now int64, ids []string) []int64, ids ...string) []int64 {
	b.t.Helper()
	args := []any{op}
	if op == "renew" {
		args = append(args, 1_000_000)
	}
	for _, id := range ids {
		args = append(args, id)
	}
	all := f(b.now, ids)
	b.same(b.run(b.t, b.now, args...), fmt.Sprint(all))
	return all
}

func (b *both) renew(ids ...string) []int64 {
	b.t.Helper()
	return b.each("renew", func(now int64, ids []string) []int64 { return b.model.Renew(now, 1_000_000, ids) }, ids...)
}

func (b *both) release(ids ...string) []int64 {
	b.t.Helper()
	return b.each("release", b.model.Release, ids...)
}

func (b *both) force(ids ...string) []int64 {
	b.t.Helper()
	return b.each("force", b.model.Force, ids...)
}

// Who was forced out stays out until his lease would be over and one more, or he has given it up.
func TestForcedOut(t *testing.T) {
	eachScope(t, func(t *testing.T, b *both) {
		one := Level{"{a}", 1, 1}
		b.acquire("held", 0, one)
		b.acquire("waits", 9, one)
		if got := b.force("held", "waits", "held", "scope", "u:{a}", "!held", ""); !slices.Equal(got, []int64{1, 2, 0, 0, 0, 0, 0}) {
			t.Fatal(got)
		}
		if got := b.renew("held", "waits", "unknown", "!held"); !slices.Equal(got, []int64{-1, -1, 0, 0}) {
			t.Fatal(got)
		}
		for _, id := range []string{"held", "waits"} {
			if g := b.acquire(id, 9, one); g.Status != Evicted {
				t.Fatalf("%s: %+v", id, g)
			}
		}
		if got := b.release("waits"); got[0] != 0 {
			t.Fatal(got)
		}
		if g := b.acquire("waits", 9, one); g.Status != Held {
			t.Fatalf("%+v", g)
		}
		b.now += 1_999_999
		if got := b.renew("held", "waits"); !slices.Equal(got, []int64{-1, 0}) {
			t.Fatal(got)
		}
		b.now++
		if got := b.renew("held"); got[0] != 0 || !b.model.Idle() {
			t.Fatal(got, b.model.Idle())
		}
	})
}

// A node that stands below others in another request lets nobody past the caps of his own.
func TestNodeBelowOthers(t *testing.T) {
	eachScope(t, func(t *testing.T, b *both) {
		root, tenant, user := Level{"{a}", 9, 1}, Level{"{a}:t", 1, 1}, Level{"{a}:u", 1, 1}
		b.acquire("tenant", 0, root, tenant)
		b.acquire("user", 0, root, user)
		b.acquire("waits", 9, root, tenant, user)
		b.release("user")
		if n := b.model.used[tenant.Node]; n != 1 {
			t.Fatalf("%d of 1 in use", n)
		}
		b.release("tenant")
		if g := b.acquire("waits", 9, root, tenant, user); g.Status != Held {
			t.Fatalf("%+v", g)
		}
	})
}

// Who is let in after many others is told to ask, and lets the next in.
func TestManyGrantsAtOnce(t *testing.T) {
	eachScope(t, func(t *testing.T, b *both) {
		one := Level{"{a}", 150, 1}
		b.acquire("all", 0, Level{"{a}", 150, 150})
		for i := range 150 {
			b.acquire(fmt.Sprint("w", i), 1000, one)
		}
		b.told = nil
		b.release("all")
		for _, want := range []string{"w64 0 0 0", "w128 0 0 0", ""} {
			last := ""
			if n := len(b.told) - 1; n >= 0 {
				last = b.told[n]
			}
			m, ok := ParseMessage(last)
			if want == "" {
				if m.Token == 0 || len(b.model.waiters) > 0 {
					t.Errorf("told %q, and %d nodes have waiters", last, len(b.model.waiters))
				}
				continue
			}
			if !ok || last != want {
				t.Fatalf("told %q, want %q", last, want)
			}
			if g := b.acquire(m.ID, 1000, one); g.Status != Held {
				t.Fatalf("%s: %+v", m.ID, g)
			}
		}
	})
}

// Of those who have died but were not yet let go nothing is said to be below zero.
func TestManyDeadHolders(t *testing.T) {
	eachScope(t, func(t *testing.T, b *both) {
		one := Level{"{a}", 100, 1}
		for i := range 80 {
			b.acquire(fmt.Sprint("h", i), 0, one)
		}
		b.now += 5_000_000
		if g := b.acquire("newest", 0, Level{"{a}", 10, 1}); g.Next != 0 {
			t.Errorf("%+v", g)
		}
		at, all := b.model.List(b.now)
		entries := []any{at}
		for _, e := range all {
			if e.Left < 0 {
				t.Errorf("%+v", e)
			}
			entries = append(entries, e.ID, e.Left, e.Record)
		}
		b.same(b.run(t, b.now, "list"), fmt.Sprint(entries))
	})
}
