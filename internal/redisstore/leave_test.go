package redisstore

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/algorithm"
	"github.com/headgate/headgate/internal/deadline"
	"github.com/headgate/headgate/internal/request"
)

func tokenBucket(t *testing.T) algorithm.Limit {
	t.Helper()
	limit, err := algorithm.NewTokenBucket(1, time.Second, 1)
	if err != nil {
		t.Fatal(err)
	}
	return limit
}

// failing is a hook that calls a function and then fails the command.
type failing func()

func (b failing) DialHook(next redis.DialHook) redis.DialHook { return next }

func (b failing) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(context.Context, redis.Cmder) error { b(); return errors.New("broken") }
}

func (b failing) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// A caller that leaves when its shared deadline passes changes nothing in its call, because the
// leader may read it.
func TestLeaveAfterSharedDeadline(t *testing.T) {
	var d deadline.Shared
	q := new(queue)
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", ContextTimeoutEnabled: true})
	defer client.Close()
	client.AddHook(failing(func() { q.expire(&d) }))
	q.store = New(Config{Client: client})
	newCall := func(name string, turn chan struct{}) *call {
		limit := tokenBucket(t)
		c := &request.Charge{Key: name, Outer: 1, Suffix: ":p", Limit: limit, Units: 1, Cost: limit.Cost(1)}
		return &call{requests: []request.Request{{Op: algorithm.Decide, Charges: []*request.Charge{c}}}, words: 4, turn: turn}
	}
	leader, left, answered := newCall("a", nil), newCall("b", make(chan struct{}, 1)), newCall("c", make(chan struct{}))
	leader.state, left.shared = callLeads, &d
	q.inFlight, q.waiting = 1, []*call{leader, left, answered}
	batch, led := q.take(leader), make(chan struct{})
	go func() { q.lead(t.Context(), leader, batch); close(led) }()
	for range 1000 { // until the leader has passed left's call, and is about to answer the other
		q.mu.Lock()
		over := len(q.sent) == 0
		q.mu.Unlock()
		if over {
			break
		}
		time.Sleep(time.Millisecond)
	}
	q.leave(left)
	<-answered.turn
	<-led
	if left.state != callLeft || answered.err == nil {
		t.Errorf("states %d and %d, %v", left.state, answered.state, answered.err)
	}
}

// A batch of refunds is bounded like any other, although each refund is answered by one number.
func TestBatchOfRefundsIsBounded(t *testing.T) {
	limit := tokenBucket(t)
	var charges []*request.Charge
	for range algorithm.MaxCharges {
		charges = append(charges, &request.Charge{Key: "k", Outer: 1, Limit: limit, Reply: []int64{0, 0, 1}})
	}
	q := new(queue)
	for range maxBatchCalls {
		q.waiting = append(q.waiting, acquireCall(t.Context(), []request.Request{{Op: algorithm.Give, Charges: charges}}))
	}
	k := q.waiting[0]
	k.state = callLeads
	n := 0
	for _, w := range q.take(k) {
		n += len(w.requests[0].Charges)
	}
	if n > maxBatchWeight {
		t.Errorf("a batch refunds %d charges", n)
	}
}
