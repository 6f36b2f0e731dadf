package keeper

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/breaker"
)

// reply is an error reply of Redis, as go-redis returns it.
type reply string

func (r reply) Error() string { return string(r) }
func (reply) RedisError()     {}

// A waiter learns that it is subscribed when Redis confirms its own channel. An answer that matches
// no request closes the connection.
func TestAnswersConfirmSubscriptionsInOrder(t *testing.T) {
	confirmed := func(kind, channel string) any { return &redis.Subscription{Kind: kind, Channel: channel} }
	for _, test := range []struct {
		name       string
		answers    []any           // from Redis
		understood bool            // of the last answer
		hears      map[string]bool // channels not listed were given up
		woken      map[string]bool // their waiters ask again
	}{
		{"confirmed", []any{confirmed("ssubscribe", "a"), confirmed("ssubscribe", "b")}, true,
			map[string]bool{"a": true, "b": true}, map[string]bool{"a": true, "b": true}},
		{"first request rejected", []any{reply("MOVED 1 127.0.0.1:1"), confirmed("ssubscribe", "b")}, true,
			map[string]bool{"b": true}, map[string]bool{"b": true}},
		{"slot moves", []any{confirmed("ssubscribe", "a"), confirmed("ssubscribe", "b"), confirmed("sunsubscribe", "a")}, true,
			map[string]bool{"b": true}, map[string]bool{"a": true, "b": true}},
		{"slot moves before the second answer", []any{confirmed("ssubscribe", "a"), confirmed("sunsubscribe", "a"), confirmed("ssubscribe", "b")}, true,
			map[string]bool{"b": true}, map[string]bool{"a": true, "b": true}},
		{"answer about a channel never requested", []any{confirmed("ssubscribe", "c")}, false, map[string]bool{"a": false, "b": false}, nil},
		{"answers out of order", []any{confirmed("ssubscribe", "b")}, false, map[string]bool{"a": false, "b": false}, nil},
		{"answer after a reconnection", []any{reply("CROSSSLOT Keys in request don't hash to the same slot")}, false,
			map[string]bool{"a": false, "b": false}, nil},
		{"more answers than requests", []any{confirmed("ssubscribe", "a"), confirmed("ssubscribe", "b"), reply("ERR x")}, false,
			map[string]bool{"a": true, "b": true}, map[string]bool{"a": true, "b": true}},
	} {
		t.Run(test.name, func(t *testing.T) {
			client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}})
			node := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
			t.Cleanup(func() { _, _ = client.Close(), node.Close() })
			s := newShards(New(Config{Tasks: new(breaker.Tasks)}), client)
			n := newNode(s, node)
			waiters := make(map[string]*Waiter)
			for _, name := range []string{"a", "b"} {
				w := &Waiter{Woken: make(chan struct{}, 1)}
				s.join(w, name)
				c := s.all[name]
				c.node, n.channels[c] = n, struct{}{}
				n.asked = append(n.asked, order{c, false})
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
				c := s.of[w]
				if c.hears != hears || (c.node == n) != kept || (len(w.Woken) > 0) != test.woken[name] {
					t.Errorf("%s: hears %v, kept %v, woken %v", name, c.hears, c.node == n, len(w.Woken) > 0)
				}
			}
		})
	}
}

// Wake makes every waiter ask again, without a grant.
func TestWake(t *testing.T) {
	k := New(Config{Tasks: new(breaker.Tasks)})
	waiters := []*Waiter{k.Wait("s", "a", "{x}"), k.Wait("s", "b", "{y}")}
	k.Wake()
	for _, w := range waiters {
		<-w.Woken
		if m, closing := k.Heard(w); m.Token != 0 || closing {
			t.Errorf("heard %v, %v", m, closing)
		}
	}
}
