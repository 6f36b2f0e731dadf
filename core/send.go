package core

import (
	"context"
	"errors"
	"io"
	"strings"
	"syscall"

	"github.com/redis/go-redis/v9"
)

// commitsFor is where requests wait for others on their way to the same server: of a cluster, the node of their slot, so that a
// node which stands still holds up nobody else's.
func (s *redisStore) commitsFor(ctx context.Context, requests []request) *commits {
	if !s.perSlot {
		return &s.all
	}
	node := ""
	if c, ok := s.client.(*redis.ClusterClient); ok {
		key := s.name(&requests[0].charges[0])
		found := "" // of a call that was left behind it is written at any time
		if s.bounded(ctx, func() error {
			master, err := c.MasterForKey(ctx, key)
			if err == nil {
				found = master.Options().Addr
			}
			return err
		}) == nil {
			node = found
		}
	}
	if c, ok := s.nodes.Load(node); ok {
		return c.(*commits)
	}
	c, _ := s.nodes.LoadOrStore(node, &commits{store: s})
	return c.(*commits)
}

// expire takes back what waits until a deadline that has passed.
func (s *redisStore) expire(d *sharedDeadline) { s.each(func(c *commits) { c.expire(d) }) }

// each is called with wherever requests wait.
func (s *redisStore) each(f func(*commits)) {
	f(&s.all)
	s.nodes.Range(func(_, c any) bool {
		f(c.(*commits))
		return true
	})
}

// alone decides requests that share their script with no others.
func (s *redisStore) alone(ctx context.Context, requests []request) ([]int64, error) {
	k := call{requests: requests, words: -1}
	err := s.sendOne(ctx, nil, []*call{&k})
	return k.reply, err
}

// send decides a batch of calls in one round trip, by one script or one for each slot. It tells c when it needs their requests no
// more, and leaves each one's part of the reply, or its error, in it. An error that it returns is that of all.
func (s *redisStore) send(ctx context.Context, c *commits, calls []*call) error {
	if s.perSlot && len(calls) > 1 {
		return s.sendSlots(ctx, c, calls)
	}
	return s.sendOne(ctx, c, calls)
}

// apart is the error of calls that shared a script, which wrote nothing and may run where they do not: one of them asked for a
// key that is not of this project, or, while its slot moves, for one of another node than the others.
type apart struct{ error }

func ofAll(err error, calls []*call) error {
	if len(calls) == 1 {
		return err
	}
	for _, prefix := range []string{"WRONGTYPE", "TRYAGAIN"} {
		if redis.HasErrorPrefix(err, prefix) {
			return apart{err}
		}
	}
	if text := err.Error(); strings.HasPrefix(text, "ERR ") && strings.Contains(text, "script") { // it read what is no state
		return apart{err}
	}
	return err
}

func (s *redisStore) sendOne(ctx context.Context, c *commits, calls []*call) error {
	b := batches.Get().(*batch)
	script := s.encode(b, calls)
	if c != nil {
		c.free(calls)
	}
	reply, err := s.evaluate(ctx, b, script)
	if err != nil {
		return ofAll(err, calls) // and the call may still go on, with the batch
	}
	defer b.free()
	return b.distribute(reply)
}

// evaluate ends when its context does, also where the client would not.
func (s *redisStore) evaluate(ctx context.Context, b *batch, script *script) ([]int64, error) {
	if s.inline {
		return s.evalsha(ctx, b, script)
	}
	var reply []int64 // of a call that was left behind it is written at any time
	if err := s.bounded(ctx, func() (err error) {
		reply, err = s.evalsha(ctx, b, script)
		return err
	}); err != nil {
		return nil, err
	}
	return reply, nil
}

func (s *redisStore) evalsha(ctx context.Context, b *batch, script *script) ([]int64, error) {
	reply, err := s.call(ctx, b.args)
	if err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") {
		// Nothing ran, so sending it again counts once.
		b.args[0], b.args[1] = "eval", &script.source
		return s.call(ctx, b.args)
	}
	return reply, err
}

// encode writes the arguments of the calls' script, which it returns.
func (s *redisStore) encode(b *batch, calls []*call) *script {
	script := &s.script
	if calls[0].requests[0].slot != nil {
		script = &s.admit
	}
	b.encode(calls, script, s.prefix)
	if s.now != nil {
		b.args = append(b.args, s.now())
	}
	return script
}

// sendSlots sends a script for each slot, in one pipeline.
func (s *redisStore) sendSlots(ctx context.Context, c *commits, calls []*call) error {
	slots := make(map[string][]*call)
	for _, k := range calls {
		slot := k.requests[0].charges[0].key.outermost()
		slots[slot] = append(slots[slot], k)
	}
	parts := make([]*batch, 0, len(slots))
	for _, calls := range slots {
		b := batches.Get().(*batch)
		s.encode(b, calls)
		parts = append(parts, b)
	}
	c.free(calls)
	var replies []*redis.IntSliceCmd
	err := s.bounded(ctx, func() error {
		cmds := s.pipeline(ctx, parts)
		var unknown []*batch
		var at []int
		for i, cmd := range cmds {
			if redis.HasErrorPrefix(cmd.Err(), "NOSCRIPT") { // only these ran not at all
				parts[i].args[0], parts[i].args[1] = "eval", &s.script.source
				unknown, at = append(unknown, parts[i]), append(at, i)
			}
		}
		if len(unknown) > 0 {
			for i, cmd := range s.pipeline(ctx, unknown) {
				cmds[at[i]] = cmd
			}
		}
		replies = cmds
		return nil
	})
	if err != nil {
		return err // and the pipeline may still go on, with the batches
	}
	for i, b := range parts {
		reply, err := replies[i].Result()
		if err == nil {
			err = b.distribute(reply)
		}
		if err != nil {
			for _, k := range b.calls {
				k.err = ofAll(err, b.calls)
			}
		}
		b.free()
	}
	return nil
}

// pipeline sends a script call for each batch. Its commands keep their errors.
func (s *redisStore) pipeline(ctx context.Context, parts []*batch) []*redis.IntSliceCmd {
	pipe := s.client.Pipeline()
	cmds := make([]*redis.IntSliceCmd, len(parts))
	for i, b := range parts {
		cmds[i] = redis.NewIntSliceCmd(ctx, b.args...)
		cmds[i].SetFirstKeyPos(3)
		_ = pipe.Process(ctx, once{cmds[i]})
	}
	if _, err := pipe.Exec(ctx); err != nil {
		for _, cmd := range cmds {
			if cmd.Err() == nil && cmd.Val() == nil { // a hook of the client let none through
				cmd.SetErr(err)
			}
		}
	}
	return cmds
}

func (s *redisStore) call(ctx context.Context, args []any) ([]int64, error) {
	cmd := redis.NewIntSliceCmd(ctx, args...)
	cmd.SetFirstKeyPos(3)
	_ = s.client.Process(ctx, once{cmd}) // the command keeps its error
	reply, err := cmd.Result()
	if err == nil {
		return reply, nil
	}
	if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) {
		// To who gave no password Redis answers a short command, but may just hang up on a long one.
		short := redis.NewIntSliceCmd(ctx, "time")
		_ = s.client.Process(ctx, once{short})
		if redis.HasErrorPrefix(short.Err(), "NOAUTH") {
			err = short.Err()
		}
	}
	return reply, err
}
