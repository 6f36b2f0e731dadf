package lease

import (
	"fmt"
	"slices"
	"testing"

	"github.com/headgate/headgate/internal/redistest"
)

// One short form takes and gives back slots of many scopes. It leaves everything to the other form
// but the slots of free scopes and the leases of lone holders, and changes nothing there.
func TestShortFormAnswersEach(t *testing.T) {
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
		tests := []struct {
			name     string
			before   func(t *testing.T, at int64)
			at       int64 // when before happened
			releases bool  // id, and otherwise acquires
			want     int64
			left     bool // the records are as before
		}{
			{name: "acquires a free scope", want: now},
			{name: "acquires after a release", before: free, at: now - 1, want: now},
			{name: "acquires before the last token", before: free, at: now, left: true},
			{name: "acquires beside a lone holder", before: hold("other"), at: now, left: true},
			{name: "acquires its own lease", before: hold("id"), at: now, left: true},
			{name: "acquires beside two holders", before: hold("other", "another"), at: now, left: true},
			{name: "acquires at a foreign value", before: foreign("1 2 3"), left: true},
			{name: "releases a lone lease", before: hold("id"), at: now, releases: true, want: 1},
			{name: "releases after a release", before: free, at: now - 1, releases: true, left: true},
			{name: "releases at a free scope", releases: true, left: true},
			{name: "releases another's lone lease", before: hold("other"), at: now, releases: true, left: true},
			{name: "releases beside another", before: hold("id", "other"), at: now, releases: true, left: true},
			{name: "releases an ended lease", before: hold("id"), at: now - 1_000_000, releases: true, left: true},
			{name: "releases before the grant", before: hold("id"), at: now + 1, releases: true, left: true},
			{name: "releases at a foreign value", before: foreign("1 2 3 id "), releases: true, left: true},
		}
		var keys []string
		var argv []any
		dumps := make([]string, len(tests))
		for i, tt := range tests {
			for k, part := range []string{"h", "m", "w", "p", "s"} {
				x.keys[k] = fmt.Sprintf("%s:{a}:%d:%s", srv.Prefix, i, part)
			}
			if tt.before != nil {
				tt.before(t, tt.at)
			}
			keys, dumps[i] = append(keys, x.keys[1]), x.client.Dump(ctx, x.keys[1]).Val()
			if tt.releases {
				argv = append(argv, "id")
			} else {
				q := ask("id")
				argv = append(argv, q.Lease/1000+301_000, q.Lone())
			}
		}
		reply, err := x.short.Run(ctx, x.client, keys, append(argv, now)...).Int64Slice()
		if err != nil || len(reply) != len(tests) {
			t.Fatal(reply, err)
		}
		for i, tt := range tests {
			if reply[i] != tt.want {
				t.Errorf("%s: %d", tt.name, reply[i])
			}
			if left := x.client.Dump(ctx, keys[i]).Val() == dumps[i]; left != tt.left {
				t.Errorf("%s: the records are as before: %v", tt.name, left)
			}
		}
	})
}

// Two acquires of one scope in one short form take it once, whether or not a token is known there.
func TestShortFormTakesOnce(t *testing.T) {
	t.Parallel()
	now := int64(1_763_700_000_123_456)
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		x, ctx := newScript(srv, t), t.Context()
		for _, before := range []string{"a free scope", "after a release"} {
			var argv []any
			for _, id := range []string{"one", "two"} {
				q := Request{
					ID: id, Channel: "c", Lease: 1_000_000, Metadata: "-",
					Levels: []Level{{Node: "{a}", Limit: 1, Weight: 1}},
				}
				argv = append(argv, q.Lease/1000+301_000, q.Lone())
			}
			now++
			keys := []string{x.keys[1], x.keys[1]}
			reply, err := x.short.Run(ctx, x.client, keys, append(argv, now)...).Int64Slice()
			if err != nil || !slices.Equal(reply, []int64{now, 0}) {
				t.Fatal(before, reply, err)
			}
			x.run(t, now, "release", "one")
		}
	})
}
