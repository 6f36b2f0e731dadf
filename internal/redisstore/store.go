// Package redisstore decides requests on state in Redis, and keeps leases and filters there.
// Package trips takes them to Redis and back.
package redisstore

import (
	"context"
	"errors"

	"github.com/headgate/headgate/internal/redisstore/trips"
	"github.com/headgate/headgate/internal/request"
)

// Store is a request.Store on Redis. Each method ends when its context does. It is safe for
// concurrent use.
type Store struct {
	Config
	Servers *trips.Servers // to which its calls go

	*schema
}

// New returns a Store. It sends nothing.
func New(cfg Config) *Store {
	s := &Store{Config: cfg, schema: newSchema(&cfg)}
	s.Servers = trips.New(trips.Config{
		Client: cfg.Client, Cluster: cfg.Cluster, Timeout: cfg.Timeout, Tasks: cfg.Tasks,
		Probe: s.probe, Notify: cfg.Notify,
	})
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
