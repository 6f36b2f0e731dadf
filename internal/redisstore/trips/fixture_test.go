package trips_test

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/breaker"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/redisstore/trips"
)

var script = trips.NewScript("return ARGV")

// letter is a call of a test. It shares a script with the letters of its kind.
type letter struct {
	trips.Call
	kind, text string
	packed     func() // is called as its command is written; it may be nil
	reply      int64
}

func newLetter(kind, text string) *letter {
	l := &letter{kind: kind, text: text}
	l.Call = trips.NewCall(l)
	l.Outermost, l.Weight = "{"+kind+"}", 1
	l.Bound(context.Background(), timeout)
	return l
}

func (l *letter) Joins(o trips.Parcel) bool { return o.(*letter).kind == l.kind }
func (l *letter) Batch() trips.Batch        { return new(bag) }

// bag is letters that share a script.
type bag struct{ letters []*letter }

func (b *bag) Release() {}

func (b *bag) Add(p trips.Parcel) { b.letters = append(b.letters, p.(*letter)) }

func (b *bag) Command() trips.Command {
	args := append(script.Begin(nil), 1, b.letters[0].kind)
	for _, l := range b.letters {
		args = append(args, l.text)
		if l.packed != nil {
			l.packed()
		}
	}
	return trips.Command{Script: script, Args: args}
}

func (b *bag) Deliver(r trips.Reply) error {
	if len(r.Numbers) != len(b.letters) {
		return trips.ErrReply
	}
	for i, l := range b.letters {
		l.reply = r.Numbers[i]
	}
	return nil
}

// texts returns the texts of the letters that a command carries.
func texts(cmd redis.Cmder) (all []string) {
	for _, text := range cmd.Args()[4:] {
		all = append(all, text.(string))
	}
	return all
}

// answer replies with the number of bytes of each letter.
func answer(cmd redis.Cmder) {
	var reply []int64
	for _, text := range texts(cmd) {
		reply = append(reply, int64(len(text)))
	}
	cmd.(interface{ SetVal([]int64) }).SetVal(reply)
}

// hook takes the place of a server: it gets the commands of each round trip.
type hook func(ctx context.Context, cmds []redis.Cmder) error

func (hook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h hook) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if err := h(ctx, []redis.Cmder{cmd}); err != nil {
			return err
		}
		return cmd.Err() // which the client sets to what is returned
	}
}

func (h hook) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error { return h(ctx, cmds) }
}

// but answers all commands but those whose first letter has that text: they get nothing.
func but(text string) hook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if texts(cmds[0])[0] == text {
			<-ctx.Done()
			return ctx.Err()
		}
		answer(cmds[0])
		return nil
	}
}

// stays is a Notify that wants no circuit to open.
func stays(t *testing.T) func(context.Context, trips.Notice) {
	return func(_ context.Context, n trips.Notice) {
		if n.Kind == trips.Opened {
			t.Errorf("the circuit opened: %v", n.Err)
		}
	}
}

const timeout = 50 * time.Millisecond

// newServers returns the Servers of a client that finds no connection and whose scripts the hook
// answers.
func newServers(t *testing.T, h hook, cluster bool) *trips.Servers {
	t.Helper()
	return newServersOver(t, func(ctx context.Context, _, _ string) (net.Conn, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}, h, trips.Config{Cluster: cluster})
}

// newServersOver returns the Servers of a client with that dialer and whose scripts the hook answers.
// The probes' own connections have no hook.
func newServersOver(
	t *testing.T, dial func(context.Context, string, string) (net.Conn, error), h hook, cfg trips.Config,
) *trips.Servers {
	t.Helper()
	client := redis.NewClient(&redis.Options{
		Addr: "127.0.0.1:1", ContextTimeoutEnabled: true, DisableIdentity: true, Dialer: dial,
	})
	return serversOf(t, client, h, cfg)
}

// serversOf returns the Servers of a client whose scripts the hook answers. They end with the test.
func serversOf(t *testing.T, client redis.UniversalClient, h hook, cfg trips.Config) *trips.Servers {
	t.Helper()
	client.AddHook(h)
	tasks := breaker.NewTasks()
	t.Cleanup(func() {
		tasks.Stop()
		gatetest.Worked(t, tasks.Wait(context.Background()))
		client.Close()
	})
	cfg.Client, cfg.Timeout, cfg.Tasks = client, timeout, tasks
	cfg.Probe = func(string) trips.Parcel { return newLetter("probe", "?") }
	return trips.New(cfg)
}
