package decisions

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
)

// sending sends what a Gate sends for a TokenBucket, through go-redis alone.
func sending(b *bed, q quota) (decide, error) {
	client := redis.NewClient(&redis.Options{Addr: b.addr})
	defer func() { _ = client.Close() }()
	var sent recorder
	client.AddHook(&sent)
	gate, err := core.NewRedis(client, core.Config{})
	if err != nil {
		return nil, fmt.Errorf("make the gate: %w", err)
	}
	defer func() { _ = gate.Close(context.Background()) }() // nothing is under way any more
	p, err := core.NewPolicy(core.PolicyConfig{
		Name: b.prefix + "sent", Algorithm: core.TokenBucket{Rate: q.limit, Per: q.slow(), Burst: q.limit},
	})
	if err != nil {
		return nil, fmt.Errorf("make the policy: %w", err)
	}
	// The second time the server knows the script.
	for range 2 {
		if _, err := outcome(gate.Decide(context.Background(), core.Charge{Policy: p, Key: b.keys[0]})); err != nil {
			return nil, fmt.Errorf("decide once: %w", err)
		}
	}
	const key = 3 // of EVALSHA's arguments
	before, after, _ := strings.Cut(fmt.Sprint(sent[key]), b.names[0])
	names := prefixed(b.names, before)
	send := func(ctx context.Context, k int) (bool, error) {
		args := slices.Clone(sent)
		args[key] = names[k] + after
		cmd := redis.NewCmd(ctx, args...) // a lone number is no list
		err := b.client.Process(ctx, cmd)
		return err == nil, err
	}
	if _, err := send(context.Background(), 0); err != nil {
		return nil, fmt.Errorf("send what a gate sent: %w", err)
	}
	return send, nil
}

// recorder is a hook that keeps the arguments of the last command.
type recorder []any

// DialHook implements redis.Hook.
func (r *recorder) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessPipelineHook implements redis.Hook.
func (r *recorder) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// ProcessHook implements redis.Hook.
func (r *recorder) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		*r = nil
		for _, arg := range cmd.Args() {
			*r = append(*r, kept(arg))
		}
		return next(ctx, cmd)
	}
}

// kept returns an argument that outlives its command.
func kept(arg any) any {
	switch arg := arg.(type) {
	case *int64:
		return *arg
	case *string:
		return strings.Clone(*arg)
	case string:
		return strings.Clone(arg)
	}
	return arg
}
