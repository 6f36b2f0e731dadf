package core

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headgate/headgate/internal/algorithm"
	"github.com/headgate/headgate/internal/deadline"
	"github.com/headgate/headgate/internal/redisstore"
	"github.com/headgate/headgate/internal/redisstore/trips"
	"github.com/headgate/headgate/internal/request"
)

// probeRequest returns what asks whether a server decides: a request on the key "ping" below an
// outermost part, under a policy that no other key has.
func probeRequest() (func(outermost string) request.Request, error) {
	// A rate with a fraction of a microsecond for each unit: the general script decides it, which servers
	// know. One that a server lacks would be sent twice, and a starved process has no time for that.
	limit, err := algorithm.NewTokenBucket(999_983, time.Second, 1)
	if err != nil {
		return nil, err
	}
	kind := request.KindOf(":probe", limit)
	return func(outermost string) request.Request {
		return request.Request{Terms: algorithm.Terms{Op: algorithm.Decide}, Charges: []*request.Charge{{
			Kind: kind, Key: request.Key{Path: outermost + ":ping", Outer: len(outermost)},
			Limit: limit, Units: 1, Cost: limit.Cost(1),
		}}}
	}, nil
}

// pingCharges returns charges that use every command that a decision needs. They have two hash slots
// if one script may have: a proxy that hides a cluster rejects that.
func pingCharges(oneServer bool) (charges []Charge) {
	keys := [2]string{"ping", "ping"}
	if oneServer {
		keys[1] = "pong"
	}
	for i, cfg := range []PolicyConfig{
		{Name: "ping", Algorithm: TokenBucket{Rate: 1_000_000, Per: time.Second, Burst: 1}},
		{Name: "ping-log", Algorithm: SlidingLog{[]Window{{Limit: 1000, Width: 500 * time.Millisecond}}}},
	} {
		policy, _ := NewPolicy(cfg) // a missing policy or key is an error of the decision
		key, _ := NewKey(keys[i])
		charges = append(charges, Charge{Policy: policy, Key: key, Cost: 1})
	}
	return charges
}

func tryPing(ctx context.Context, store *redisstore.Store) error {
	p := newInquiry(algorithm.Decide, 0, moment{})
	defer p.release()
	if err := p.lay(pingCharges(!store.Cluster)); err != nil {
		return err
	}
	return store.Insist(ctx, p.whole[:])
}

// Ping checks that the Gate can decide: that Redis answers, is new enough, permits the commands
// that a Gate needs, and is a cluster only if the client or Config.Topology says so. It also finds
// a cluster behind a proxy. The error says in words what is wrong, and wraps ErrMisconfigured if
// waiting will not help. Ping writes two keys that live for ten seconds at most. In memory there is
// nothing to check.
func (g *Gate) Ping(ctx context.Context) error {
	if g.isClosed() {
		return ErrClosed
	}
	return g.ping(ctx)
}

// pingRedis is Ping of a Gate on Redis.
func pingRedis(ctx context.Context, store *redisstore.Store, timeout time.Duration) error {
	// It connects first, and makes some round trips.
	ctx, cancel := context.WithTimeout(ctx, 2*deadline.Patience(timeout))
	defer cancel()
	err := store.Servers.Check(ctx)
	if errors.Is(err, trips.ErrServer) {
		return fmt.Errorf("%w: %w", ErrMisconfigured, err)
	}
	for range 2 { // the second time on keys that exist
		if err != nil {
			break
		}
		err = tryPing(ctx, store)
	}
	switch {
	case err == nil:
		return nil
	case trips.Classify(err) == trips.Misconfigured:
		return fmt.Errorf("%w: %s: %w", ErrMisconfigured, trips.Explain(err), err)
	}
	return fmt.Errorf("core: %s: %w", trips.Explain(err), err)
}
