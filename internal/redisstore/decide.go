package redisstore

import (
	"context"
	"errors"
	"time"

	"github.com/headgate/headgate/internal/request"
)

// ErrPeriod is the error of a server whose clock went to another period of a calendar each time it
// was asked.
var ErrPeriod = errors.New("redisstore: Redis's clock leaps from period to period")

// attempts is how often a request is sent if a calendar's period ends on the way.
const attempts = 3

// Decide implements request.Store. Requests that take a slot share no script with others.
func (s *Store) Decide(ctx context.Context, requests []request.Request) error {
	d := s.NewDecision(requests)
	defer d.release()
	d.Bound(ctx, s.Timeout)
	return s.outcome(ctx, s.decide(ctx, d))
}

// Insist is Decide for a server that is known to fail, and for one whose connections are slow to
// begin.
func (s *Store) Insist(ctx context.Context, requests []request.Request) error {
	d := s.NewDecision(requests)
	defer d.release()
	d.Insists = true
	d.Turn = time.Now().Add(s.Servers.Patience())
	d.End = d.Turn
	return s.decide(ctx, d)
}

func (s *Store) decide(ctx context.Context, d *Decision) error {
	for range attempts {
		if now := s.serverTime.Load(); now != 0 {
			// One limit of a period that has passed would keep the whole batch from being decided.
			d.renew(now)
		}
		if err := s.Servers.Do(ctx, &d.Call); err != nil {
			return err
		}
		decided, err := d.Decode()
		if err != nil {
			return err
		}
		if decided {
			if slot := d.requests[0].Slot; slot != nil && slot.Answered && !slot.Grant.Lone {
				s.crowds.note(slot.Scope, true)
			}
			return nil
		}
	}
	return ErrPeriod
}
