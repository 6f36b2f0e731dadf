// Package redisstore decides requests on state in Redis, and keeps leases and filters there.
// Package trips takes them to Redis and back.
package redisstore

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/headgate/headgate/internal/redisstore/trips"
	"github.com/headgate/headgate/internal/request"
)

// Store is a request.Store on Redis. Each method ends when its context does. It is safe for
// concurrent use.
type Store struct {
	Config
	Servers *trips.Servers // to which its calls go

	scripts
	// Of calls to be used again. A call has a channel, and one of a synctest bubble stays there.
	decisions, operations, questions sync.Pool

	serverTime atomic.Int64 // when a calendar's period was last found to have passed
	declines   declines
}

// New returns a Store. It sends nothing.
func New(cfg Config) *Store {
	s := &Store{Config: cfg}
	if cfg.Script == nil {
		s.scripts = ownScripts()
	} else {
		s.scripts = newScripts(cfg.Script)
	}
	s.decisions.New = func() any {
		d := &Decision{store: s}
		d.Call = trips.NewCall(d)
		return d
	}
	s.operations.New = func() any {
		o := &operation{store: s}
		o.Call = trips.NewCall(o)
		return o
	}
	s.questions.New = func() any {
		k := &question{store: s}
		k.Call = trips.NewCall(k)
		return k
	}
	cfg.Config.Probe = s.probe
	s.Servers = trips.New(cfg.Config)
	return s
}

// probe returns a decision that tells whether a server decides.
func (s *Store) probe(outermost string) trips.Parcel {
	return s.NewDecision([]request.Request{s.Probe(outermost)})
}

// outcome returns the error that the caller of an operation sees.
func (s *Store) outcome(ctx context.Context, err error) error {
	switch {
	case err == nil || s.Reword == nil:
		return err
	case errors.As(err, new(request.Unsent)):
		return request.Unsent{Err: s.Reword(ctx, err)}
	}
	return s.Reword(ctx, err)
}

// clocked appends the time to the arguments of a script on a clock other than Redis's.
func (s *Store) clocked(args []any) []any {
	if s.Clock != nil {
		args = append(args, s.Clock())
	}
	return args
}

// Reset implements request.Store.
func (s *Store) Reset(ctx context.Context, c *request.Charge) error {
	name, holds := s.Prefix+c.Path+c.Stored, s.Prefix+c.Path+c.Suffix+request.HoldsSuffix
	answer := answerName(s.Prefix, c)
	args := s.clocked([]any{c.Label})
	return s.outcome(ctx, s.Servers.Within(ctx, func(ctx context.Context) error {
		if c.Label == "" {
			return s.Client.Del(ctx, name, holds, answer).Err()
		}
		return s.reset.Run(ctx, s.Client, []string{name, holds}, args...).Err()
	}))
}

// answerName returns the name of the answer that is kept beside the state of a charge.
func answerName(prefix string, c *request.Charge) string {
	return prefix + c.Path + c.Suffix + request.AnswerSuffix
}

// Answer implements request.Store. A script asks, because a client may read from replicas, which may
// not have the answer yet.
func (s *Store) Answer(ctx context.Context, c *request.Charge) ([]byte, error) {
	k := s.newSingle(s.answer, c.Outermost())
	k.texts = true
	k.Bound(ctx, s.Timeout)
	k.int(1)
	k.name(answerName(s.Prefix, c))
	if err := s.Servers.Do(ctx, &k.Call); err != nil {
		return nil, s.outcome(ctx, err)
	}
	if len(k.reply.Values) == 0 {
		return nil, nil
	}
	text, _ := k.reply.Values[0].(string)
	return []byte(text), nil
}
