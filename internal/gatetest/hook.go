package gatetest

import (
	"context"
	"strings"

	"github.com/redis/go-redis/v9"
)

// OnCommands is a hook of a client that calls a func with each command, or with those of a pipeline.
// Nothing is sent unless the func calls send.
type OnCommands func(ctx context.Context, cmds []redis.Cmder, send func() error) error

// DialHook implements redis.Hook.
func (OnCommands) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements redis.Hook.
func (h OnCommands) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		return h(ctx, []redis.Cmder{cmd}, func() error { return next(ctx, cmd) })
	}
}

// ProcessPipelineHook implements redis.Hook.
func (h OnCommands) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		return h(ctx, cmds, func() error { return next(ctx, cmds) })
	}
}

// OnScripts is OnCommands for scripts alone.
func OnScripts(f OnCommands) OnCommands {
	return func(ctx context.Context, cmds []redis.Cmder, send func() error) error {
		if !strings.HasPrefix(cmds[0].Name(), "eval") {
			return send()
		}
		return f(ctx, cmds, send)
	}
}

// Fail ends commands with an error.
func Fail(cmds []redis.Cmder, err error) error {
	for _, cmd := range cmds {
		cmd.SetErr(err)
	}
	return err
}
