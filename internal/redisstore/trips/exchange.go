package trips

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"slices"

	"github.com/redis/go-redis/v9"
)

// command is a batch on its way.
type command struct {
	Command
	batch Batch
	calls []*Call
	sent  redis.Cmder // a once, or an onceAny if the reply may be anything but a list of integers
}

func newCommand(b Batch, calls []*Call) command {
	return command{Command: b.Command(), batch: b, calls: calls}
}

// redis returns the command as the client sends it.
func (c *command) redis(ctx context.Context) redis.Cmder {
	if c.Texts || c.Number {
		cmd := redis.NewCmd(ctx, c.Args...)
		cmd.SetFirstKeyPos(3)
		c.sent = onceAny{cmd}
		return c.sent
	}
	cmd := redis.NewIntSliceCmd(ctx, c.Args...)
	cmd.SetFirstKeyPos(3)
	c.sent = once{cmd}
	return c.sent
}

func (c *command) reply() (r Reply, err error) {
	switch sent := c.sent.(type) {
	case once:
		r.Numbers, err = sent.Result()
	case onceAny:
		if _, isList := sent.Val().([]any); c.Number && !isList {
			n, err := sent.Int64() // a script may reply a large one as a text
			return Reply{Numbers: []int64{n}}, err
		}
		if c.Number {
			r.Numbers, err = sent.Int64Slice()
		} else {
			r.Values, err = sent.Slice()
		}
	}
	return r, err
}

// isSilent reports whether the command has neither a reply nor an error.
func (c *command) isSilent() bool {
	if numbers, ok := c.sent.(once); ok {
		return numbers.Val() == nil && numbers.Err() == nil
	}
	return c.sent.(onceAny).Val() == nil && c.sent.Err() == nil
}

// Send sends a batch past the queues and returns the reply.
func (l *link) Send(ctx context.Context, client redis.UniversalClient, b Batch) (Reply, error) {
	commands := []command{newCommand(b, nil)}
	if err := l.exchange(ctx, client, commands); err != nil {
		return Reply{}, err
	}
	return commands[0].reply()
}

// exchange sends commands once each and reads the replies. Its error says that no command was
// answered.
func (l *link) exchange(
	ctx context.Context, client redis.UniversalClient, commands []command,
) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &panicError{p}
		}
	}()
	if process(ctx, client, commands) {
		return nil
	}
	return l.mend(ctx, client, commands)
}

// mend sends the commands again whose scripts the server did not know, and finds out why it hung up.
func (l *link) mend(ctx context.Context, client redis.UniversalClient, commands []command) error {
	var unknown []command
	var at []int
	for i := range commands {
		c := &commands[i]
		if err := c.sent.Err(); err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") { // only these did not run
			c.Args[0], c.Args[1] = "eval", &c.Script.source
			unknown, at = append(unknown, *c), append(at, i)
		}
	}
	if len(unknown) > 0 {
		l.notifyMissing(ctx, len(unknown))
		_ = process(ctx, client, unknown)
		for i, c := range unknown {
			commands[at[i]] = c
		}
	}
	fault := commands[0].sent.Err()
	for i := range commands { // those of a Ring, or that have moved, may go to several servers
		switch err := commands[i].sent.Err(); {
		case answered(err):
			return nil
		case !wroteNothing(err): // no call is told that it was not sent because another was not
			fault = err
		}
	}
	if hungUp(fault) {
		return askAgain(ctx, client, fault)
	}
	return fault
}

// process sends commands in one round trip, and reports whether all have a reply. They keep their
// errors.
func process(ctx context.Context, client redis.UniversalClient, commands []command) bool {
	if len(commands) == 1 {
		return client.Process(ctx, commands[0].redis(ctx)) == nil
	}
	return processAll(ctx, client, commands)
}

// processAll is process in a pipeline.
func processAll(ctx context.Context, client redis.UniversalClient, commands []command) bool {
	pipe := client.Pipeline()
	for i := range commands {
		_ = pipe.Process(ctx, commands[i].redis(ctx))
	}
	cmds, err := pipe.Exec(ctx)
	for i := range commands {
		if err != nil && commands[i].isSilent() { // a hook of the client let none through
			cmds[i].SetErr(err)
		}
	}
	return !slices.ContainsFunc(cmds, func(cmd redis.Cmder) bool { return cmd.Err() != nil })
}

// askAgain finds out why Redis hung up. To a client without a password it answers a short command
// with an error, and may close the connection at a long one.
func askAgain(ctx context.Context, client redis.UniversalClient, err error) error {
	short := redis.NewIntSliceCmd(ctx, "time")
	_ = client.Process(ctx, once{short})
	if redis.HasErrorPrefix(short.Err(), "NOAUTH") {
		return short.Err()
	}
	return err
}

// Script is a Lua script and the name by which EVALSHA knows it.
type Script struct{ source, sha string }

// NewScript returns the script of that text.
func NewScript(source string) *Script {
	sum := sha1.Sum([]byte(source))
	return &Script{source, hex.EncodeToString(sum[:])}
}

// Begin appends the arguments of a command that runs the script, up to the number of its keys.
func (s *Script) Begin(args []any) []any { return append(args, "evalsha", &s.sha) }

// once is a command that go-redis sends once. By default go-redis repeats a command whose answer is
// late, which counts twice.
type once struct{ *redis.IntSliceCmd }

// NoRetry is asked by go-redis.
func (once) NoRetry() bool { return true }

// onceAny is once with any reply.
type onceAny struct{ *redis.Cmd }

// NoRetry is asked by go-redis.
func (onceAny) NoRetry() bool { return true }
