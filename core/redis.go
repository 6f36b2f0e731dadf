package core

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/algorithm"
)

// store decides requests on the state it keeps. It either answers every request, or returns an error and answers none.
type store interface {
	decide(ctx context.Context, requests []request) error
	reset(ctx context.Context, c *charge) error
	source() Source
}

// redisStore keeps state in Redis. Every method ends when its context does.
type redisStore struct {
	client redis.UniversalClient
	prefix string // of all names
	// inline says that the client's calls end when their context's deadline passes. Calls of other clients are left
	// behind then; they end by the client's own timeouts.
	inline        bool
	tasks         *tasks   // for calls of other clients
	perSlot       bool     // a script for each outermost part
	all           commits  // where it is not
	nodes         sync.Map // else of commits, by the address of a cluster's node
	script, admit script

	// now is the injected clock of a test, else nil.
	now func() int64
}

type script struct{ source, sha string }

func newScript(source string) script {
	sum := sha1.Sum([]byte(source)) // the name by which EVALSHA knows a script
	return script{source, hex.EncodeToString(sum[:])}
}

var decideScript, admitScript = newScript(headgate.DecideScript()), newScript(headgate.AdmitScript())

// newRedisStore sees whether the client's calls end at their context's deadline. There is no way to make them do so that
// keeps the client's hooks.
func newRedisStore(client redis.UniversalClient, prefix string, t *tasks) *redisStore {
	s := &redisStore{client: client, prefix: prefix, tasks: t, script: decideScript, admit: admitScript}
	switch c := client.(type) {
	case *redis.Client:
		s.inline = c.Options().ContextTimeoutEnabled
	case *redis.ClusterClient:
		s.inline = c.Options().ContextTimeoutEnabled
	case *redis.Ring:
		s.inline = c.Options().ContextTimeoutEnabled
	}
	s.all.store = s
	return s
}

func (s *redisStore) source() Source { return SourceRedis }

// once is a command that go-redis sends once only: by default it repeats one whose answer is late, which counts twice.
type once struct{ *redis.IntSliceCmd }

// NoRetry tells go-redis.
func (once) NoRetry() bool { return true }

// renewals is how often a request is sent again because the period of a calendar has ended meanwhile.
const renewals = 3

// decide joins requests with others that wait for a round trip, unless they take a slot.
func (s *redisStore) decide(ctx context.Context, requests []request) error {
	for i := range requests {
		requests[i].merges = len(requests) == 1 && requests[i].mergeable()
	}
	for range renewals {
		var reply []int64
		var err error
		alone := requests[0].slot != nil
		if !alone {
			reply, err = s.commitsFor(ctx, requests).do(ctx, requests)
			alone = err != nil && errors.As(err, new(apart))
		}
		if alone {
			reply, err = s.alone(ctx, requests)
		}
		if err != nil {
			return err
		}
		if otherPeriod(reply) {
			renew(requests, reply[1]) // nothing ran
			continue
		}
		return decode(requests, reply)
	}
	return errPeriod
}

// otherPeriod says whether nothing ran, because the limits are not those of the server's time.
func otherPeriod(reply []int64) bool { return len(reply) == 2 && reply[0] == -1 }

// decode hands the reply to the requests.
func decode(requests []request, reply []int64) error {
	for i := range requests {
		r := &requests[i]
		if len(reply) == 0 {
			return errReply
		}
		if r.brief() && isBrief(reply[0]) {
			reply = r.unfold(reply[0])
		}
		r.verdict, reply = reply[0], reply[1:]
		if r.op == algorithmGive {
			continue
		}
		for i := range r.charges {
			n := r.charges[i].limit.Fields()
			if len(reply) < n {
				return errReply
			}
			r.charges[i].reply, reply = reply[:n:n], reply[n:]
		}
		r.settle()
	}
	if s := requests[0].slot; s != nil && len(reply) > 0 {
		var err error
		s.grant, err = granted(reply, s.ask)
		s.answered = err == nil
		return err
	}
	if len(reply) > 0 {
		return errReply
	}
	return nil
}

// renew brings the limits that hold for a time only to the one that holds now.
func renew(requests []request, now int64) {
	for i := range requests {
		for j := range requests[i].charges {
			c := &requests[i].charges[j]
			if p, ok := c.limit.(algorithm.Periodic); ok {
				if from, until := p.Period(); now < from || until <= now {
					c.limit = p.At(now)
				}
			}
		}
	}
}

// name is that of the charge's key in Redis.
func (s *redisStore) name(c *charge) string { return s.prefix + c.key.path + c.from.suffix }

func (s *redisStore) reset(ctx context.Context, c *charge) error {
	return s.bounded(ctx, func() error { return s.client.Del(ctx, s.name(c)).Err() })
}

// bounded ends a call when its context does, also where the client would not. What is left behind then ends by the
// client's own time-outs.
func (s *redisStore) bounded(ctx context.Context, call func() error) error {
	if s.inline {
		return call()
	}
	done := make(chan error, 1)
	s.tasks.run(func() { done <- call() })
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}
