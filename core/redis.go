package core

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"io"
	"slices"
	"syscall"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/algorithm"
)

// store decides requests on the state it keeps. It either answers every request, or returns an error and answers none.
type store interface {
	decide(ctx context.Context, requests []request) error
	reset(ctx context.Context, name string) error
	source() Source
}

// redisStore keeps state in Redis. Every method ends when its context does.
type redisStore struct {
	client redis.UniversalClient
	// inline says that the client's calls end when their context's deadline passes. Calls of other clients are left
	// behind then; they end by the client's own timeouts.
	inline        bool
	tasks         *tasks // for calls of other clients
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
func newRedisStore(client redis.UniversalClient, t *tasks) *redisStore {
	s := &redisStore{client: client, tasks: t, script: decideScript, admit: admitScript}
	switch c := client.(type) {
	case *redis.Client:
		s.inline = c.Options().ContextTimeoutEnabled
	case *redis.ClusterClient:
		s.inline = c.Options().ContextTimeoutEnabled
	case *redis.Ring:
		s.inline = c.Options().ContextTimeoutEnabled
	}
	return s
}

func (s *redisStore) source() Source { return SourceRedis }

// once is a command that go-redis sends once only: by default it repeats one whose answer is late, which counts twice.
type once struct{ *redis.IntSliceCmd }

// NoRetry tells go-redis.
func (once) NoRetry() bool { return true }

func (s *redisStore) decide(ctx context.Context, requests []request) error {
	if s.inline {
		b := batches.Get().(*batch)
		defer b.free()
		return s.send(ctx, b, requests)
	}
	// The call may outlive this one, so it works on requests of its own.
	own := slices.Clone(requests)
	for i := range own {
		own[i].charges = slices.Clone(own[i].charges)
		if s := own[i].slot; s != nil {
			copied := *s
			own[i].slot = &copied
		}
	}
	err := s.bounded(ctx, func() error {
		b := batches.Get().(*batch)
		defer b.free()
		return s.send(ctx, b, own)
	})
	if err != nil {
		return err
	}
	for i := range own {
		requests[i].verdict = own[i].verdict
		copy(requests[i].charges, own[i].charges)
		if s := own[i].slot; s != nil {
			*requests[i].slot = *s
		}
	}
	return nil
}

// renewals is how often a request is sent again because the period of a calendar has ended meanwhile.
const renewals = 3

func (s *redisStore) send(ctx context.Context, b *batch, requests []request) error {
	script := &s.script
	if requests[0].slot != nil {
		script = &s.admit
	}
	for range renewals {
		b.encode(&script.sha, requests)
		if s.now != nil {
			b.args = append(b.args, s.now())
		}
		reply, err := s.call(ctx, b.args)
		if redis.HasErrorPrefix(err, "NOSCRIPT") {
			// Nothing ran, so sending it again counts once.
			b.args[0], b.args[1] = "eval", &script.source
			reply, err = s.call(ctx, b.args)
		}
		if err != nil {
			return err
		}
		if len(reply) == 2 && reply[0] == -1 {
			renew(requests, reply[1]) // nothing ran either
			continue
		}
		return b.decode(reply)
	}
	return errPeriod
}

// renew brings the limits that hold for a time only to the one that holds now.
func renew(requests []request, now int64) {
	for i := range requests {
		for j := range requests[i].charges {
			c := &requests[i].charges[j]
			if p, ok := c.limit.(algorithm.Periodic); ok {
				c.limit = p.At(now)
			}
		}
	}
}

func (s *redisStore) call(ctx context.Context, args []any) ([]int64, error) {
	cmd := redis.NewIntSliceCmd(ctx, args...)
	cmd.SetFirstKeyPos(3)
	_ = s.client.Process(ctx, once{cmd}) // the command keeps its error
	reply, err := cmd.Result()
	if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) {
		// To who gave no password Redis answers a short command, but may just hang up on a long one.
		short := redis.NewIntSliceCmd(ctx, "time")
		_ = s.client.Process(ctx, once{short})
		if redis.HasErrorPrefix(short.Err(), "NOAUTH") {
			err = short.Err()
		}
	}
	return reply, err
}

func (s *redisStore) reset(ctx context.Context, name string) error {
	return s.bounded(ctx, func() error { return s.client.Del(ctx, name).Err() })
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
