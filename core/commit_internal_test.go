package core

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// broken is a client's hook whose calls fail, after it has called a function.
type broken func()

func (b broken) DialHook(next redis.DialHook) redis.DialHook { return next }

func (b broken) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(context.Context, redis.Cmder) error { b(); return errors.New("broken") }
}

func (b broken) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// Who is told that the shared deadline has passed, and sees at the same time that its caller is gone, changes nothing any more:
// the leader may be looking at it.
func TestLeaveAfterSharedDeadline(t *testing.T) {
	d := &sharedDeadline{Context: context.Background()}
	c := new(commits)
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer client.Close()
	client.AddHook(broken(func() { c.expire(d) }))
	c.store = newRedisStore(client, "", new(tasks))
	c.store.inline = true
	p, err := NewPolicy(PolicyConfig{Name: "p", Algorithm: TokenBucket{Burst: 1}})
	if err != nil {
		t.Fatal(err)
	}
	made := func(name string, turn chan struct{}) *call {
		key, err := NewKey(name)
		if err != nil {
			t.Fatal(err)
		}
		laid := new(plan)
		if err := laid.lay(t.Context(), algorithmDecide, []Charge{{Policy: p, Key: key, Cost: 1}}); err != nil {
			t.Fatal(err)
		}
		return &call{requests: []request{{op: algorithmDecide, charges: laid.wire}}, words: 4, turn: turn}
	}
	leader, left, answered := made("a", nil), made("b", make(chan struct{}, 1)), made("c", make(chan struct{}))
	leader.state, left.shared = callLeads, d
	c.flying, c.waiting = 1, []*call{leader, left, answered}
	batch, led := c.take(leader), make(chan struct{})
	go func() { c.lead(t.Context(), leader, batch); close(led) }()
	for range 1000 { // until the leader has passed the one, and is about to tell the other
		c.mu.Lock()
		over := len(c.sent) == 0
		c.mu.Unlock()
		if over {
			break
		}
		time.Sleep(time.Millisecond)
	}
	c.leave(left)
	<-answered.turn
	<-led
	if left.state != callLeft || answered.err == nil {
		t.Errorf("states %d and %d, %v", left.state, answered.state, answered.err)
	}
}
