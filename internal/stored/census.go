package stored

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// Census is what stands in Redis at one time, below a path or the whole prefix.
type Census struct {
	At      time.Time // by the clock of the first server
	Keys    int       // of Redis that were looked at
	Cut     bool      // there are more
	Entries []Entry   // without holds and adjustments
	Slots   []Slots
}

// Census reads the limits and the semaphores below a path, or of the whole prefix if path is empty.
// It looks at about that many keys at most.
func (r *Reader) Census(ctx context.Context, path string, most int) (*Census, error) {
	c := &Census{}
	seen := make(map[string]bool) // SCAN may name a key twice
	err := r.Scan(ctx, path, func(server redis.Cmdable, found []Found) (more bool, err error) {
		if c.At.IsZero() {
			if c.At, err = r.now(ctx, server); err != nil {
				return false, err
			}
		}
		var some []Found
		for _, f := range found {
			c.Keys++
			name := f.Redis
			if f.Kind == Scope {
				name = f.Path + ":" + f.Of
			}
			if !seen[name] && (path == "" || f.Kind == Scope || Within(f.Path, path)) {
				seen[name] = true
				some = append(some, f)
			}
		}
		if err := r.count(ctx, server, c, some); err != nil {
			return false, err
		}
		c.Cut = c.Keys >= most
		return !c.Cut, nil
	})
	return c, err
}

// count reads what some keys hold, in one round trip.
func (r *Reader) count(
	ctx context.Context, server redis.Cmdable, c *Census, found []Found,
) error {
	pipe := server.Pipeline()
	texts := make([]*redis.StringCmd, len(found))
	var slots []*Slots
	var decodes []func(now int64) error
	for i, f := range found {
		switch f.Kind {
		case State, Bundle:
			texts[i] = pipe.Get(ctx, f.Redis)
		case Scope:
			s := &Slots{Semaphore: f.Of, Outermost: f.Path}
			slots, decodes = append(slots, s), append(decodes, r.queue(ctx, pipe, s))
		}
	}
	if err := r.exec(ctx, pipe); err != nil {
		return err
	}
	now := c.At.UnixMicro()
	for i, s := range slots {
		if err := decodes[i](now); err != nil {
			return err
		}
		c.Slots = append(c.Slots, *s)
	}
	for i, f := range found {
		if texts[i] == nil || texts[i].Err() != nil {
			continue
		}
		entries, err := entriesOf(f, texts[i].Val(), now)
		if err != nil {
			return err
		}
		for _, e := range entries {
			e.Redis = f.Redis
			c.Entries = append(c.Entries, e)
		}
	}
	return nil
}
