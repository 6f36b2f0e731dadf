package llm

import (
	"context"
	"net/http"

	"github.com/redis/go-redis/v9"
)

// Scripts with about the commands that a Meter needs, which decide nothing.
var (
	// taken reads and writes two states, takes a slot, and keeps two holds.
	taken = redis.NewScript(`
local now, states = redis.call('TIME'), redis.call('MGET', KEYS[1], KEYS[2])
redis.call('SET', KEYS[1], ARGV[2], 'PX', '60000')
redis.call('SET', KEYS[2], ARGV[2], 'PX', '3600000')
redis.call('SET', KEYS[5], ARGV[2], 'NX', 'PX', '90000')
redis.call('ZADD', KEYS[3], now[1], ARGV[1])
redis.call('ZADD', KEYS[4], now[1], ARGV[1])
redis.call('PEXPIRE', KEYS[3], '60000')
redis.call('PEXPIRE', KEYS[4], '3600000')
return #states`)
	// returned writes the states again, and ends the holds and the slot.
	returned = redis.NewScript(`
local now, states = redis.call('TIME'), redis.call('MGET', KEYS[1], KEYS[2])
redis.call('SET', KEYS[1], ARGV[2], 'PX', '60000')
redis.call('SET', KEYS[2], ARGV[2], 'PX', '3600000')
redis.call('ZREM', KEYS[3], ARGV[1])
redis.call('ZREM', KEYS[4], ARGV[1])
redis.call('DEL', KEYS[5])
return #states`)
)

// between runs a script before and one after a response.
func between(client *redis.Client, next http.Handler) http.Handler {
	keys := []string{"{floor}a", "{floor}b", "{floor}ha", "{floor}hb", "{floor}slot"}
	args := []any{"an id of 26 letters or digit", "a state of some 56 bytes, as of two buckets of one client"}
	run := func(ctx context.Context, s *redis.Script) {
		if s.Run(ctx, client, keys, args...).Err() != nil {
			panic(http.ErrAbortHandler)
		}
	}
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		run(q.Context(), taken)
		next.ServeHTTP(w, q)
		run(context.WithoutCancel(q.Context()), returned)
	})
}
