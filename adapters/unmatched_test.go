package adapters_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/internal/stated"
)

// 10,000 paths that no route matches make one key for each rule.
func TestUnmatchedPathsShareAKey(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	each(t, func(t *testing.T, fw framework) {
		client := redis.NewClient(&redis.Options{Addr: server.Addr})
		defer client.Close()
		ctx := context.Background()
		gatetest.NoError(t, client.FlushAll(ctx).Err())
		f := newFixture(t)
		f.gate = core.Must(core.NewRedis(client, core.Config{Timeout: 10 * time.Second}))
		cfg := f.perRoute()
		for i := range cfg.Rules { // wide limits, so that every request reaches Redis
			cfg.Rules[i].Policy = f.policy(core.PolicyConfig{Name: fmt.Sprint("rule", i), Algorithm: core.TokenBucket{Burst: 1_000_000}, OnFailure: core.FailClosed})
		}
		h := fw.build(&app{root: f.guard(cfg), routes: routes, log: &f.logs})
		paths := make(chan string)
		var workers sync.WaitGroup
		for range 16 {
			workers.Go(func() {
				for p := range paths {
					if w := send(h, "GET", p); w.Code != 404 {
						t.Errorf("%s: status %d", p, w.Code)
					}
				}
			})
		}
		for i := range 10_000 {
			switch i % 3 {
			case 0:
				paths <- fmt.Sprintf("/nope/%d", i)
			case 1:
				paths <- fmt.Sprintf("/%d", i)
			case 2:
				paths <- fmt.Sprintf("/t/%d/nope?%d", i, i)
			}
		}
		close(paths)
		workers.Wait()
		keys, err := client.Keys(ctx, "*").Result()
		keys = slices.DeleteFunc(keys, func(k string) bool { return strings.Contains(k, stated.Key) })
		if err != nil || len(keys) != len(cfg.Rules) {
			t.Errorf("%d keys for %d rules: %.10q, %v", len(keys), len(cfg.Rules), keys, err)
		}
		d, err := f.gate.Peek(ctx, core.Charge{Policy: cfg.Rules[1].Policy, Key: gatetest.Key(t, "unmatched"), Cost: 1})
		if used := d.At(0).Used; err != nil || used != 10_000 {
			t.Errorf("counted %d, %v", used, err)
		}
	})
}
