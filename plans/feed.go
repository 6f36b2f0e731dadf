package plans

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/plans/internal/tenants"
)

const (
	pollInterval = 400 * time.Millisecond
	maxChanges   = 1000           // that Redis keeps
	changesTTL   = 24 * time.Hour // after the last change
)

// feed keeps overrides in Redis, and follows the list of changes there. All keys share a hash tag,
// so that one script may touch them on a cluster. Tenants are escaped in them, and in the list as
// they are.
type feed struct {
	cfg     *Config
	tenants *tenants.Table[*state]
	prefix  string // of the names of keys, with the hash tag
	changes string // the name of the list
	failing atomic.Bool

	// Of the poll, which one goroutine calls.
	follows bool   // it has succeeded before
	last    string // the newest change that is known; empty if there was none
}

func newFeed(cfg *Config, known *tenants.Table[*state]) *feed {
	prefix := cfg.Prefix + ":{plans}:"
	return &feed{cfg: cfg, tenants: known, prefix: prefix, changes: prefix + "ov1"}
}

// key is the name of an override. The other keys with this hash tag end in the tag of an algorithm
// or a lease.
func (f *feed) key(tenant string) string { return f.prefix + escaped(tenant) + ":ov1" }

// escaped returns a tenant as it stands in the names of Redis keys: as the outermost part of a key.
func escaped(tenant string) string {
	key, err := core.NewKey(tenant)
	if err != nil {
		return "" // it is empty, which is found before
	}
	path := key.String()
	return path[1 : len(path)-1] // without braces
}

func (f *feed) healthy() bool { return !f.failing.Load() }

func (f *feed) get(ctx context.Context, tenant string) (string, time.Duration, bool, error) {
	var text *redis.StringCmd
	var left *redis.DurationCmd
	_, err := f.cfg.Client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		text, left = pipe.Get(ctx, f.key(tenant)), pipe.PTTL(ctx, f.key(tenant))
		return nil
	})
	switch {
	case errors.Is(err, redis.Nil):
		return "", 0, false, nil
	case err != nil:
		return "", 0, false, err
	case left.Val() == -1: // no end
		return text.Val(), 0, true, nil
	case left.Val() <= 0: // has ended since the GET
		return "", 0, false, nil
	}
	return text.Val(), left.Val(), true, nil
}

// once is a command that go-redis sends once. A repeated change could be one that other processes
// take for known.
type once struct{ *redis.Cmd }

// NoRetry is asked by go-redis.
func (once) NoRetry() bool { return true }

// change runs the script. A change is a random word and the tenant.
func (f *feed) change(
	ctx context.Context, tenant string, o operation, text string, until time.Time,
) (done bool, err error) {
	end := int64(0)
	if !until.IsZero() {
		end = until.UnixMilli()
	}
	cmd := once{redis.NewCmd(ctx,
		"eval", headgate.Script("override"), 2, f.key(tenant), f.changes,
		string(o), rand.Text()+" "+tenant, maxChanges, changesTTL.Milliseconds(), text, end,
	)}
	cmd.SetFirstKeyPos(3)
	if err := f.cfg.Client.Process(ctx, cmd); err != nil {
		return false, err
	}
	n, err := cmd.Int64()
	return n == 1, err
}

// poll asks for changes, unless the context has ended.
func (f *feed) poll(ctx context.Context) {
	asking, cancel := context.WithTimeout(ctx, f.cfg.Timeout)
	defer cancel()
	err := f.read(asking)
	if ctx.Err() != nil {
		return
	}
	switch was := f.failing.Swap(err != nil); {
	case err != nil && !was:
		f.cfg.tell(ctx, Event{Op: OpFollow, Err: prefixed("plans: read changes: ", err)})
	case err == nil && was:
		f.cfg.tell(ctx, Event{Op: OpFollow})
	}
}

// read reads the newest change, and all changes since the last one that is known.
func (f *feed) read(ctx context.Context) error {
	newest, err := f.cfg.Client.LIndex(ctx, f.changes, 0).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return err
	}
	if f.follows && newest == f.last {
		return nil
	}
	var changes []string
	if newest != "" {
		if changes, err = f.cfg.Client.LRange(ctx, f.changes, 0, -1).Result(); err != nil {
			return err
		}
	}
	f.apply(changes)
	return nil
}

// apply makes what has changed no longer fresh: the tenants of changes since the last one that is
// known, or all tenants if that one is lost.
func (f *feed) apply(changes []string) {
	since := slices.Index(changes, f.last)
	complete := f.follows && (since >= 0 || f.last == "" && len(changes) < maxChanges)
	if since < 0 {
		since = len(changes)
	}
	f.follows, f.last = true, ""
	if len(changes) > 0 {
		f.last = changes[0]
	}
	if !complete {
		f.tenants.AllChanged()
		return
	}
	for _, c := range changes[:since] {
		_, tenant, _ := strings.Cut(c, " ")
		f.tenants.Changed(tenant)
	}
}
