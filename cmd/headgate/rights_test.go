package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/redistest"
)

// The rights that docs/command.md states for each command suffice for it.
func TestRightsSuffice(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	a := newApplication(t, srv.Client(t))
	file := write(t, "plans.yaml", changedPlans)
	buckets := write(t, "buckets.yaml", "default: free\nplans: {free: {limits: {api: {rate: 1, per: 1h, burst: 3}}}}\n")
	streams := core.Must(semaphore.New(a.gate, semaphore.Config{Name: "streams", TTL: time.Hour}))
	lease := gatetest.Must(streams.Acquire(t.Context(), semaphore.Request{Caps: []semaphore.Cap{{Key: a.key, Limit: 4}}}))(t)
	defer func() { _ = lease.Release(context.Background()) }()
	a.spend(tokensPolicy, 10)
	a.spend(apiPolicy, 1)
	other := core.Must(core.NewKey("other"))
	gatetest.Must(a.gate.Decide(t.Context(), core.Charge{Policy: apiPolicy, Key: other}))(t)
	a.states(apiPolicy, tokensPolicy, loginsPolicy)
	for _, c := range []struct {
		lines []int // of docs/redis.md, from 1
		args  []string
	}{
		{[]int{8}, []string{"show", "acme/user-1"}},
		{[]int{1, 2, 8}, []string{"why", "other", "--policies", buckets}},
		{[]int{1, 2, 8}, []string{"why", "acme/user-1", "--policies", file}},
		{[]int{1}, []string{"adjust", "other", "api", "--policies", buckets, "--give", "1"}},
		{[]int{1, 2, 6}, []string{"adjust", "acme/user-1", "tokens", "--policies", file, "--raise", "5", "--until", "1h"}},
		{[]int{1, 2, 6, 8}, []string{"why", "acme/user-1", "--policies", file}},
		{[]int{1, 8}, []string{"reset", "acme/user-1"}},
		{[]int{1}, []string{"block", "acme/user-1", "logins", "--for", "1h"}},
		{[]int{1, 5}, []string{"block", "--list", "logins"}},
		{[]int{1}, []string{"block", "acme/user-1", "logins", "--lift"}},
		{[]int{1, 2}, []string{"evict", "acme/user-1", "streams", "--all"}},
		{[]int{1}, []string{"ping"}},
	} {
		words := []any{"ACL", "SETUSER", "app", "reset", "on", ">secret", "~hg:*", "&hg:*"}
		for _, line := range c.lines {
			for command := range strings.FieldsSeq(features[line-1].commands) {
				words = append(words, "+"+command)
			}
		}
		gatetest.NoError(t, srv.Client(t).Do(t.Context(), words...).Err())
		start := time.Now()
		r := headgate(t, append(c.args, "--redis", "redis://app:secret@"+srv.Addr)...)
		if r.code != exitOK || strings.Contains(r.err, "NOPERM") {
			t.Errorf("%v with lines %v: exit code %d after %v: %s%s", c.args, c.lines, r.code, time.Since(start), r.out, r.err)
		}
	}
}
