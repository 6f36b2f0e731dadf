package core

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// Oldest Redis whose scripts a Gate relies on.
const (
	oldestMajor = 6
	oldestMinor = 2
)

// probe decides as others do, on a key of its own: a Redis may answer a PING and still refuse to write.
func (g *Gate) probe(ctx context.Context) error {
	key, err := NewKey("ping")
	if err != nil {
		return err
	}
	policy, err := NewPolicy(PolicyConfig{Name: "probe", Algorithm: TokenBucket{Rate: 1_000_000, Per: time.Second, Burst: 1}})
	if err != nil {
		return err
	}
	var p plan
	if err := p.lay(ctx, algorithmDecide, []Charge{{policy, key, 1}}); err != nil {
		return err
	}
	err = g.store.decide(ctx, []request{{op: p.op, charges: p.wire}})
	if misconfigured(err) {
		return nil // that is for every caller to hear
	}
	return err
}

// Ping checks that the Gate can decide: that Redis answers, is new enough, lets this user run what is needed, and is
// what the client takes it for. The error says in words what is wrong, and wraps ErrMisconfigured where
// waiting will not mend it. It writes two keys that live for ten seconds at most. In memory there is nothing to check.
func (g *Gate) Ping(ctx context.Context) error {
	if g.store == nil || g.closed.Load() {
		return ErrClosed
	}
	s, ok := g.store.(*redisStore)
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, max(g.deadlines.timeout, time.Second)) // a first connection takes longer than a decision
	defer cancel()
	err := s.bounded(ctx, func() error { return s.client.Ping(ctx).Err() })
	if err != nil {
		return explain(err)
	}
	var info string
	if err := s.bounded(ctx, func() (err error) { info, err = s.client.Info(ctx).Result(); return err }); err == nil {
		if err := g.checkServer(info); err != nil {
			return err
		}
	} // INFO may be forbidden, which is no harm

	key, err := NewKey("ping")
	if err != nil {
		return err
	}
	// Together these use every command that a Gate needs.
	var charges []Charge
	for name, a := range map[string]Algorithm{
		"ping":     TokenBucket{Rate: 1_000_000, Per: time.Second, Burst: 1},
		"ping-log": SlidingLog{[]Window{{Limit: 1000, Width: 500 * time.Millisecond}}},
	} {
		policy, err := NewPolicy(PolicyConfig{Name: name, Algorithm: a})
		if err != nil {
			return err
		}
		charges = append(charges, Charge{policy, key, 1})
	}
	for range 2 { // the second time on keys that exist
		var p plan
		if err := p.lay(ctx, algorithmDecide, charges); err != nil {
			return err
		}
		if err := s.decide(ctx, []request{{op: p.op, charges: p.wire}}); err != nil {
			return explain(err)
		}
	}
	return nil
}

func (g *Gate) checkServer(info string) error {
	version := field(info, "redis_version")
	major, rest, _ := strings.Cut(version, ".")
	minor, _, _ := strings.Cut(rest, ".")
	a, err1 := strconv.Atoi(major)
	b, err2 := strconv.Atoi(minor)
	if err1 == nil && err2 == nil && (a < oldestMajor || a == oldestMajor && b < oldestMinor) {
		return fmt.Errorf("%w: it is version %s, and %d.%d is needed", ErrMisconfigured, version, oldestMajor, oldestMinor)
	}
	if field(info, "cluster_enabled") == "1" && !g.perSlot {
		return fmt.Errorf("%w: the server is part of a cluster, but the client is taken for one of a single server: "+
			"use redis.NewClusterClient", ErrMisconfigured)
	}
	return nil
}

func field(info, name string) string {
	for line := range strings.Lines(info) {
		if v, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// causes explains the replies of Redis by how they begin.
var causes = []struct{ prefix, words string }{
	{"NOAUTH", "it wants a password, and the client has none"},
	{"WRONGPASS", "it does not accept the user name or password"},
	{"NOPERM", "the user may not do what a Gate does: it needs +ping +eval +evalsha +time +get +mget +set +incrby +del on its keys"},
	{"The user executing the script", "the user may not do what a Gate does: it needs +ping +eval +evalsha +time +get +mget +set +incrby +del on its keys"},
	{"WRONGTYPE", "a key of the Gate holds something else: choose another Config.Prefix"},
	{"READONLY", "it is a replica: the client must lead to the primary"},
	{"LOADING", "it is still loading its data"},
	{"MASTERDOWN", "it is a replica that has lost its primary"},
	{"CLUSTERDOWN", "the cluster does not serve all slots"},
	{"OOM", "it is out of memory (maxmemory)"},
	{"NOREPLICAS", "too few replicas are connected (min-replicas-to-write)"},
	{"MISCONF", "it cannot save to disk and refuses to write"},
	{"CROSSSLOT", "it is a cluster, but Config.Topology says OneServer"},
}

// explain says in words what an error of Redis means.
func explain(err error) error {
	words := ""
	var reply redis.Error
	var network net.Error
	switch {
	case errors.As(err, &reply):
		words = "it refuses"
		for _, c := range causes {
			if strings.Contains(reply.Error(), c.prefix) {
				words = c.words
				break
			}
		}
	case errors.Is(err, syscall.ECONNREFUSED):
		words = "nothing listens at its address"
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &network) && network.Timeout():
		words = "it does not answer in time"
	case errors.Is(err, redis.ErrClosed):
		words = "the client is closed"
	default:
		words = "it cannot be reached"
	}
	if misconfigured(err) {
		return fmt.Errorf("%w: %s: %w", ErrMisconfigured, words, err)
	}
	return fmt.Errorf("core: redis: %s: %w", words, err)
}
