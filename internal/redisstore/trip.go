package redisstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// trip is a batch of calls on their way, and the commands that carry them.
type trip struct {
	calls    []*call
	shared   []*call // decisions that share scripts
	leases   []*call // operations on leases that do
	commands []command
	sent     time.Time
	panicked any // the value of a panic in a hook of the client
}

// command is a script for calls that share it, on a cluster those of one hash slot, or for one
// operation.
type command struct {
	script *script
	parcel parcel
	call   *call
	args   []any

	numbers *redis.IntSliceCmd // or nil, if the reply is mixed
	values  *redis.Cmd
}

// parcel is calls that share a script.
type parcel interface {
	members() []*call
	// distribute gives each call its part of the script's reply.
	distribute(reply []int64) error
	release()
}

// ErrPanicked is the error of a round trip that did not return, because a hook of the client
// panicked.
var ErrPanicked = errors.New("redisstore: the call panicked")

// reset forgets the calls.
func (t *trip) reset() {
	clear(t.calls)
	clear(t.shared)
	clear(t.leases)
	clear(t.commands)
	t.calls, t.shared, t.leases = t.calls[:0], t.shared[:0], t.leases[:0]
	t.commands, t.panicked = t.commands[:0], nil
}

// pack writes the commands.
func (s *Store) pack(t *trip) {
	var filters []*call
	for _, k := range t.calls {
		switch {
		case (k.script == &s.leases || k.script == &s.slots) && !k.mixed:
			t.leases = append(t.leases, k)
		case k.isOwn():
			t.commands = append(t.commands, command{script: k.script, call: k, args: k.args})
		case k.filter.items != nil:
			filters = append(filters, k)
		case k.alone:
			t.add(s.encode([]*call{k}))
		default:
			t.shared = append(t.shared, k)
		}
	}
	s.packFilters(t, filters)
	s.packLeases(t, t.leases)
	switch {
	case len(t.shared) == 0:
	case !s.Cluster || len(t.shared) == 1:
		t.add(s.encode(t.shared))
	default:
		slots := make(map[string][]*call)
		for _, k := range t.shared {
			slots[k.outermost] = append(slots[k.outermost], k)
		}
		for _, calls := range slots {
			t.add(s.encode(calls))
		}
	}
}

// shareWithFirst appends to some the first of calls and those that may share its script, and returns
// these and the others.
func shareWithFirst(some, calls []*call, may func(*call) bool) (_, others []*call) {
	first := calls[0]
	some = append(some, first)
	for _, k := range calls[1:] {
		if !first.alone && !k.alone && may(k) {
			some = append(some, k)
		} else {
			others = append(others, k)
		}
	}
	return some, others
}

func (t *trip) add(b *batch) {
	t.commands = append(t.commands, command{script: b.script, parcel: b, args: b.args})
}

// travel sends a batch and leaves in each call its part of the answer, or its error. An error that
// it returns is that of all calls: the server did not answer.
func (n *node) travel(ctx context.Context, t *trip) error {
	s := n.store
	s.pack(t)
	n.queue.encoded(t)
	commands := t.commands
	var err error
	if s.inline { // as bounded does, without a closure
		err = s.exchange(ctx, s.Client, commands)
	} else if err = s.bounded(ctx, func() error { return s.exchange(ctx, s.Client, commands) }); ctx.Err() != nil {
		t.commands = nil // the client may still use them
	}
	if err != nil {
		if p := (*panicError)(nil); errors.As(err, &p) {
			t.panicked = p.value
			return err
		}
		if timedOut(err) {
			n.stale.Store(true)
		}
		n.judge(err, t.calls[0].outermost)
		return err
	}
	for i := range commands {
		commands[i].deliver(n)
	}
	return nil
}

// deliver hands the server's reply to the calls of a command.
func (c *command) deliver(n *node) {
	if k := c.call; k != nil {
		if k.mixed {
			k.values, k.err = c.values.Slice()
		} else {
			k.reply, k.err = c.numbers.Result()
		}
		n.judge(k.err, k.outermost)
		return
	}
	calls := c.parcel.members()
	reply, err := c.numbers.Result()
	n.judge(err, calls[0].outermost)
	if err == nil {
		err = c.parcel.distribute(reply)
	}
	if err != nil {
		for _, k := range calls {
			k.err = split(err, calls)
		}
	}
	c.parcel.release()
}

// judge doubts the server if a call had no answer, or that of a server which cannot decide now.
func (n *node) judge(err error, outermost string) {
	if err != nil && Classify(err) == Outage {
		n.doubt(outermost)
	}
}

// panicError is a panic in a hook of the client.
type panicError struct{ value any }

func (p *panicError) Error() string { return fmt.Sprint("the client panicked: ", p.value) }
func (p *panicError) Unwrap() error { return ErrPanicked }

// exchange sends commands once each and reads the replies. Its error says that there is no first
// one.
func (s *Store) exchange(
	ctx context.Context, client redis.UniversalClient, commands []command,
) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &panicError{p}
		}
	}()
	process(ctx, client, commands)
	var unknown []command
	var at []int
	for i := range commands {
		c := &commands[i]
		if err := c.err(); err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") { // only these did not run
			c.args[0], c.args[1] = "eval", &c.script.source
			unknown, at = append(unknown, *c), append(at, i)
		}
	}
	if len(unknown) > 0 {
		s.missing.Add(int64(len(unknown)))
		process(ctx, client, unknown)
		for i, c := range unknown {
			commands[at[i]] = c
		}
	}
	first := commands[0].err()
	if first == nil || errors.As(first, new(redis.Error)) {
		return nil
	}
	if errors.Is(first, io.EOF) || errors.Is(first, syscall.ECONNRESET) || errors.Is(first, syscall.EPIPE) {
		return askAgain(ctx, client, first)
	}
	return first
}

func (c *command) err() error {
	if c.numbers != nil {
		return c.numbers.Err()
	}
	return c.values.Err()
}

// command returns the command as the client sends it.
func (c *command) command(ctx context.Context) redis.Cmder {
	if c.call == nil || !c.call.mixed {
		c.numbers = redis.NewIntSliceCmd(ctx, c.args...)
		c.numbers.SetFirstKeyPos(3)
		return once{c.numbers}
	}
	c.values = redis.NewCmd(ctx, c.args...)
	c.values.SetFirstKeyPos(3)
	return onceAny{c.values}
}

// process sends commands in one round trip. They keep their errors.
func process(ctx context.Context, client redis.UniversalClient, commands []command) {
	if len(commands) == 1 {
		_ = client.Process(ctx, commands[0].command(ctx))
		return
	}
	pipe := client.Pipeline()
	for i := range commands {
		_ = pipe.Process(ctx, commands[i].command(ctx))
	}
	cmds, err := pipe.Exec(ctx)
	for i := range commands {
		c := &commands[i]
		none := c.numbers != nil && c.numbers.Val() == nil || c.values != nil && c.values.Val() == nil
		if err != nil && c.err() == nil && none { // a hook of the client let none through
			cmds[i].SetErr(err)
		}
	}
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
