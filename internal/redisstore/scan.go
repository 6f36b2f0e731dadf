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
func (s *Store) Scan(ctx context.Context, suffix string, f func(key, value string, now int64) bool) error {
	var mu sync.Mutex // the servers of a cluster are scanned side by side
	ended := false
	each := func(key, value string, now int64) bool {
		mu.Lock()
		defer mu.Unlock()
		ended = ended || !f(key, value, now)
		return !ended
	}
	scan := func(ctx context.Context, server *redis.Client) error {
		return s.scan(ctx, server, suffix, each)
	}
	switch c := s.Client.(type) {
	case *redis.ClusterClient:
		return c.ForEachMaster(ctx, scan)
	case *redis.Ring:
		return c.ForEachShard(ctx, scan)
	default:
		return s.scan(ctx, c, suffix, each)
	}
}

func (s *Store) scan(
	ctx context.Context, server redis.Cmdable, suffix string, f func(key, value string, now int64) bool,
) error {
	for cursor := uint64(0); ; {
		var names []string
		var values []*redis.StringCmd
		var now int64
		err := s.within(ctx, func(ctx context.Context) (err error) {
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
		if s.clock != nil {
			now = s.clock()
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
