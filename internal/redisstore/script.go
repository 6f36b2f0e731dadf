package redisstore

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"io"
	"syscall"

	"github.com/redis/go-redis/v9"
)

// script is a Lua script and the name by which EVALSHA knows it.
type script struct{ source, sha string }

func newScript(source string) script {
	sum := sha1.Sum([]byte(source))
	return script{source, hex.EncodeToString(sum[:])}
}

// once is a command that go-redis sends once. By default go-redis repeats a command whose answer is late, which counts twice.
type once struct{ *redis.IntSliceCmd }

// NoRetry is asked by go-redis.
func (once) NoRetry() bool { return true }

// onceAny is once with any reply.
type onceAny struct{ *redis.Cmd }

// NoRetry is asked by go-redis.
func (onceAny) NoRetry() bool { return true }

// evaluate calls the batch's script, and ends when its context does.
func (s *Store) evaluate(ctx context.Context, b *batch) ([]int64, error) {
	if s.inline {
		return s.evalsha(ctx, b)
	}
	var reply []int64 // a call that is left behind writes it at any time
	if err := s.bounded(ctx, func() (err error) {
		reply, err = s.evalsha(ctx, b)
		return err
	}); err != nil {
		return nil, err
	}
	return reply, nil
}

func (s *Store) evalsha(ctx context.Context, b *batch) ([]int64, error) {
	reply, err := s.process(ctx, b.args)
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		b.withSource() // nothing ran, so the second command counts once
		s.ScriptMissing()
		return s.process(ctx, b.args)
	}
	return reply, err
}

func (s *Store) process(ctx context.Context, args []any) ([]int64, error) {
	cmd := redis.NewIntSliceCmd(ctx, args...)
	cmd.SetFirstKeyPos(3)
	_ = s.Client.Process(ctx, once{cmd}) // the command keeps its error
	reply, err := cmd.Result()
	if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) {
		err = s.askAgain(ctx, err)
	}
	return reply, err
}

// askAgain finds out why Redis hung up. To a client without a password it answers a short command with an error, and may
// close the connection at a long one.
func (s *Store) askAgain(ctx context.Context, err error) error {
	short := redis.NewIntSliceCmd(ctx, "time")
	_ = s.Client.Process(ctx, once{short})
	if redis.HasErrorPrefix(short.Err(), "NOAUTH") {
		return short.Err()
	}
	return err
}
