package keeper

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/breaker"
)

// reply is an error reply of Redis, as go-redis hands it out.
type reply string

func (r reply) Error() string { return string(r) }
func (reply) RedisError()     {}

// Who waits is told that it hears when Redis has said so of its own channel, and an answer to
// nothing ends the connection.
func TestListenerAnswers(t *testing.T) {
	said := func(kind, channel string) any { return &redis.Subscription{Kind: kind, Channel: channel} }
	for _, test := range []struct {
		name       string
		answers    []any           // what Redis sends
		understood bool            // the last one
		hears      map[string]bool // a channel that is missing was given up
		woken      map[string]bool // whose waiters ask again
	}{
		{"confirmed", []any{said("ssubscribe", "a"), said("ssubscribe", "b")}, true,
			map[string]bool{"a": true, "b": true}, map[string]bool{"a": true, "b": true}},
		{"the first is refused", []any{reply("MOVED 1 127.0.0.1:1"), said("ssubscribe", "b")}, true,
			map[string]bool{"b": true}, map[string]bool{"b": true}},
		{"slot moves", []any{said("ssubscribe", "a"), said("ssubscribe", "b"), said("sunsubscribe", "a")}, true,
			map[string]bool{"b": true}, map[string]bool{"a": true, "b": true}},
		{"slot moves before the answer", []any{said("ssubscribe", "a"), said("sunsubscribe", "a"), said("ssubscribe", "b")}, true,
			map[string]bool{"b": true}, map[string]bool{"a": true, "b": true}},
		{"of what was never asked", []any{said("ssubscribe", "c")}, false, map[string]bool{"a": false, "b": false}, nil},
		{"in another order", []any{said("ssubscribe", "b")}, false, map[string]bool{"a": false, "b": false}, nil},
		{"of a client that has connected again", []any{reply("CROSSSLOT Keys in request don't hash to the same slot")}, false,
			map[string]bool{"a": false, "b": false}, nil},
		{"more than was asked", []any{said("ssubscribe", "a"), said("ssubscribe", "b"), reply("ERR x")}, false,
			map[string]bool{"a": true, "b": true}, map[string]bool{"a": true, "b": true}},
	} {
		t.Run(test.name, func(t *testing.T) {
			client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}})
			node := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
			t.Cleanup(func() { _, _ = client.Close(), node.Close() })
			s := New(Config{Client: client, Tasks: new(breaker.Tasks)}).shards
			n := newNode(s, node)
			waiters := make(map[string]*Waiter)
			for _, name := range []string{"a", "b"} {
				w := &Waiter{Woken: make(chan struct{}, 1)}
				s.join(w, name)
				w.shard.node, n.channels[w.shard] = n, struct{}{}
				n.asked = append(n.asked, order{w.shard, false})
				waiters[name] = w
			}
			understood := true
			for _, a := range test.answers {
				if err, ok := a.(error); ok {
					understood = n.rejected(err)
				} else {
					understood = n.hear(a)
				}
			}
			if understood != test.understood {
				t.Errorf("understood %v", understood)
			}
			for name, w := range waiters {
				hears, kept := test.hears[name]
				if w.shard.hears != hears || (w.shard.node == n) != kept || (len(w.Woken) > 0) != test.woken[name] {
					t.Errorf("%s: hears %v, kept %v, woken %v", name, w.shard.hears, w.shard.node == n, len(w.Woken) > 0)
				}
			}
		})
	}
}
