package memstore_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/algorithm"
	"github.com/headgate/headgate/internal/lease"
	"github.com/headgate/headgate/internal/memstore"
	"github.com/headgate/headgate/internal/request"
)

func limit(t *testing.T, n int64) algorithm.Limit {
	t.Helper()
	l, err := algorithm.NewTokenBucket(0, 0, n)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// on returns a charge of one unit on a key, whose hash is the key's number.
func on(l algorithm.Limit, hash uint64) *request.Charge {
	key := fmt.Sprintf("{%d}", hash)
	return &request.Charge{
		Kind: &request.Kind{Suffix: ":p"}, Key: key, Outer: len(key), KeyHash: hash, Hash: hash, Limit: l, Units: 1, Cost: l.Cost(1),
	}
}

func decide(t *testing.T, s *memstore.Store, charges ...*request.Charge) bool {
	t.Helper()
	requests := []request.Request{{Op: algorithm.Decide, Charges: charges}}
	if err := s.Decide(t.Context(), requests); err != nil {
		t.Fatal(err)
	}
	return requests[0].Admitted()
}

// Requests that lock the same shards in another order do not wait for each other.
func TestRequestsOnTheSameShards(t *testing.T) {
	const callers, rounds = 8, 500
	s := memstore.New(1000, func() int64 { return 1 })
	l := limit(t, callers*rounds)
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			for range rounds {
				a, b := on(l, 1), on(l, 2)
				if i%2 == 0 {
					a, b = b, a
				}
				requests := []request.Request{{Op: algorithm.Decide, Charges: []*request.Charge{a, b}}}
				if err := s.Decide(context.Background(), requests); err != nil || !requests[0].Admitted() {
					t.Error("denied below the limit")
				}
			}
		})
	}
	wg.Wait()
	if decide(t, s, on(l, 1)) || decide(t, s, on(l, 2)) {
		t.Error("a key admits more than its limit")
	}
}

// Keys of equal hashes have states of their own.
func TestKeysOfEqualHashes(t *testing.T) {
	s := memstore.New(1000, func() int64 { return 1 })
	l := limit(t, 1)
	one, other := on(l, 7), on(l, 7)
	other.Key, other.Outer = "{other}", len("{other}")
	for _, c := range []*request.Charge{one, other} {
		if !decide(t, s, c) || decide(t, s, c) {
			t.Errorf("%s does not admit once", c.Key)
		}
	}
	if err := s.Reset(t.Context(), one); err != nil {
		t.Fatal(err)
	}
	if !decide(t, s, one) || decide(t, s, other) {
		t.Error("a reset forgets another key")
	}
}

// A full shard evicts the key with the least part of its limit spent.
func TestEvictsTheKeyWithTheLeastSpent(t *testing.T) {
	s := memstore.New(2*64, func() int64 { return 1 }) // two keys a shard
	exhausted, wide := on(limit(t, 1), 0), limit(t, 1000)
	decide(t, s, exhausted)
	for i := range uint64(100) {
		decide(t, s, on(wide, 64*(i+1)))
		if decide(t, s, exhausted) {
			t.Fatalf("after %d other keys the exhausted one was evicted", i+1)
		}
	}
	n := 0
	s.Each(func(string, string, algorithm.State, *algorithm.Kept) { n++ })
	if n != 2 {
		t.Errorf("%d keys in one shard", n)
	}
}

func TestLeasesForgetIdleScopes(t *testing.T) {
	now := int64(1)
	var told []string
	l := memstore.NewLeases(func() int64 { return now }, func(m string) { told = append(told, m) })
	ask := func(id string, waiters int64) lease.Grant {
		g, err := l.Acquire(t.Context(), "scope", lease.Request{
			ID: id, Channel: "c", Lease: int64(time.Second / time.Microsecond), Patience: 1_000_000, Waiters: waiters,
			Metadata: "-", Levels: []lease.Level{{Node: "{k}", Limit: 1, Weight: 1}},
		})
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	if g := ask("a", 0); g.Status != lease.Held {
		t.Fatalf("%+v", g)
	}
	if g := ask("b", 10); g.Status != lease.Waiting {
		t.Fatalf("%+v", g)
	}
	if _, err := l.Release(t.Context(), "scope", []string{"a"}); err != nil || len(told) != 1 {
		t.Fatalf("the waiter was told %q: %v", told, err)
	}
	if _, err := l.Release(t.Context(), "scope", []string{"b"}); err != nil {
		t.Fatal(err)
	}
	if _, entries, err := l.List(t.Context(), "scope"); err != nil || len(entries) != 0 {
		t.Errorf("entries %v: %v", entries, err)
	}
}
