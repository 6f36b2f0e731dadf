package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/redisstore"
	"github.com/headgate/headgate/internal/redisstore/trips"
	"github.com/headgate/headgate/internal/request"
)

// A store takes a brief or a full reply to a request with two charges, and no reply of another
// shape.
func TestReplyToTwoCharges(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		reply []int64
		fits  [2]bool
		err   error
	}{
		"brief, admitted":       {reply: []int64{-2, -12}, fits: [2]bool{true, true}},
		"brief, one denies":     {reply: []int64{-2, -13}, fits: [2]bool{true, false}},
		"full, admitted":        {reply: []int64{0, 0, 0, 1, 5, 0, 1}, fits: [2]bool{true, true}},
		"full, both deny":       {reply: []int64{3, 1, 0, 0, 5, 0, 0}},
		"brief, then a verdict": {reply: []int64{-2, 0}, err: trips.ErrReply},
		"brief, then -1":        {reply: []int64{-2, -1}, err: trips.ErrReply},
		"brief, one missing":    {reply: []int64{-2}, err: trips.ErrReply},
		"brief, one too many":   {reply: []int64{-2, -2, -2}, err: trips.ErrReply},
		"full, one missing":     {reply: []int64{0, 0, 0, 1, 5, 0}, err: trips.ErrReply},
		"empty":                 {reply: []int64{}, err: trips.ErrReply},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := newTestStore(t, func(_ context.Context, cmd redis.Cmder) error {
				setReply(cmd, tt.reply)
				return nil
			})
			asked := requests(t, "a")
			other := requests(t, "b")[0].Charges[0]
			asked[0].Charges = []*request.Charge{asked[0].Charges[0], other}
			if err := s.Decide(t.Context(), asked); !errors.Is(err, tt.err) {
				t.Fatalf("error %v, want %v", err, tt.err)
			}
			if tt.err != nil {
				return
			}
			gatetest.Equal(t, [2]bool{asked[0].Charges[0].Fits, other.Fits}, tt.fits, "fits")
			gatetest.Equal(t, asked[0].Admitted(), (tt.fits == [2]bool{true, true}), "admitted is")
		})
	}
}

// A call that was declined stays with the general script if the period of a limit beside it passes.
func TestDeclineBesideAPeriod(t *testing.T) {
	t.Parallel()
	replies, scripts := [][]int64{{-1}, {-1, 5}, {0, 0, 0, 1}}, []any{}
	s := newTestStore(t, func(_ context.Context, cmd redis.Cmder) error {
		setReply(cmd, replies[len(scripts)])
		scripts = append(scripts, cmd.Args()[1])
		return nil
	})
	asked := requests(t, "a")
	if err := s.Decide(t.Context(), asked); err != nil || !asked[0].Admitted() {
		t.Errorf("admitted %v, error %v", asked[0].Admitted(), err)
	}
	if len(scripts) != 3 || scripts[0] == scripts[1] || scripts[1] != scripts[2] {
		t.Errorf("scripts %v", scripts)
	}
}

// A reply to a request under a hold, of a limit with adjustments, tells of both.
func TestReplyBesideADecision(t *testing.T) {
	t.Parallel()
	for i, reply := range [][]int64{
		{0, 0, 0, 1, 0, 3}, {}, {0, 0, 0}, {0, 0, 0, 1}, {0, 0, 0, 1, -1}, {0, 0, 0, 1, 1, 5}, {0, 0, 0, 1, 0},
	} {
		s := newTestStore(t, func(_ context.Context, cmd redis.Cmder) error {
			setReply(cmd, reply)
			return nil
		})
		asked := requests(t, "a")
		c := asked[0].Charges[0]
		c.Kind.Adjusts, c.Kind.HoldFor = true, time.Minute.Microseconds()
		if err := s.Decide(t.Context(), asked); errors.Is(err, trips.ErrReply) != (i > 0) || i == 0 && c.Held != 3 {
			t.Errorf("%v: %d held, %v", reply, c.Held, err)
		}
	}
}

// An acquire takes a reply of one shape from the script for lone holders, and the replies of the other
// after that.
func TestReplyToLoneAcquire(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		replies [][]int64
		token   int64
		err     error
	}{
		"taken":        {replies: [][]int64{{7}}, token: 7},
		"taken later":  {replies: [][]int64{{0}, {8}}, token: 8},
		"refused":      {replies: [][]int64{{0}, {-1, 6, 0, 9, 0, 0, 1}}, token: 6},
		"empty":        {replies: [][]int64{{}}, err: trips.ErrReply},
		"one too many": {replies: [][]int64{{7, 1}}, err: trips.ErrReply},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var answers answering
			s := newTestStore(t, func(ctx context.Context, cmd redis.Cmder) error {
				return answers(ctx, cmd)
			})
			answers = func(_ context.Context, cmd redis.Cmder) error {
				setReply(cmd, []int64{1})
				return nil
			}
			warm(t, s)
			answers = func(_ context.Context, cmd redis.Cmder) error {
				setReply(cmd, tt.replies[0])
				tt.replies = tt.replies[1:]
				return nil
			}
			grant, err := redisstore.NewLeases(s).Acquire(t.Context(), "{a}:s", slotRequest("id"))
			if !errors.Is(err, tt.err) || grant.Token != tt.token || len(tt.replies) > 0 {
				t.Errorf("%+v, %v, and %d replies are left", grant, err, len(tt.replies))
			}
		})
	}
}

// Callers that share a script have an error each if its reply lacks a number.
func TestShortReplyIsAnErrorOfEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pass := make(chan struct{})
		s := newTestStore(t, func(_ context.Context, cmd redis.Cmder) error {
			<-pass
			setReply(cmd, []int64{-2}) // allowed, if it is to one caller
			return nil
		})
		var callers sync.WaitGroup
		var failed atomic.Int64
		for i := range 6 { // the first two are sent alone
			callers.Go(func() {
				if err := s.Decide(t.Context(), requests(t, fmt.Sprint("k", i))); errors.Is(err, trips.ErrReply) {
					failed.Add(1)
				} else if err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		close(pass)
		callers.Wait()
		gatetest.Equal(t, failed.Load(), 4, "callers of 4 have an error")
	})
}
