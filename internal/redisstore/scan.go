package redisstore

import (
	"context"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// scanned is how many keys a SCAN looks at.
const scanned = 1000

// Scan implements request.Store. It looks at every key of every server, in steps that each end
// within Config.Timeout.
func (s *Store) Scan(
	ctx context.Context, suffix string, f func(key, value string, now int64) bool,
) error {
	return s.outcome(ctx, s.scanAll(ctx, suffix, f))
}

func (s *Store) scanAll(
	ctx context.Context, suffix string, f func(key, value string, now int64) bool,
) error {
	servers, err := s.servers(ctx)
	if err != nil {
		return err
	}
	ended := false
	for _, server := range servers {
		err := s.scan(ctx, server, suffix, func(key, value string, now int64) bool {
			ended = !f(key, value, now)
			return !ended
		})
		if err != nil || ended {
			return err
		}
	}
	return nil
}

// servers returns the servers that hold keys.
func (s *Store) servers(ctx context.Context) (all []redis.Cmdable, err error) {
	var mu sync.Mutex // the client visits its servers side by side
	add := func(_ context.Context, server *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		all = append(all, server)
		return nil
	}
	switch c := s.Client.(type) {
	case *redis.ClusterClient:
		err = c.ForEachMaster(ctx, add)
	case *redis.Ring:
		err = c.ForEachShard(ctx, add)
	default:
		all = append(all, c)
	}
	return all, err
}

func (s *Store) scan(
	ctx context.Context, server redis.Cmdable, suffix string,
	f func(key, value string, now int64) bool,
) error {
	for cursor := uint64(0); ; {
		var names []string
		var values []*redis.StringCmd
		var now int64
		err := s.Servers.Within(ctx, func(ctx context.Context) (err error) {
			at, err := server.Time(ctx).Result()
			if err != nil {
				return err
			}
			now = at.UnixMicro()
			names, cursor, err = server.Scan(ctx, cursor, s.Prefix+"*"+suffix, scanned).Result()
			if err != nil || len(names) == 0 {
				return err
			}
			pipe := server.Pipeline()
			for _, name := range names {
				values = append(values, pipe.Get(ctx, name))
			}
			if _, err = pipe.Exec(ctx); err == redis.Nil { // one has expired
				err = nil
			}
			return err
		})
		if err != nil {
			return err
		}
		if s.Clock != nil {
			now = s.Clock()
		}
		for i, name := range names {
			value, err := values[i].Result()
			key := strings.TrimSuffix(strings.TrimPrefix(name, s.Prefix), suffix)
			if err == nil && !f(key, value, now) {
				return nil
			}
		}
		if cursor == 0 {
			return nil
		}
	}
}
