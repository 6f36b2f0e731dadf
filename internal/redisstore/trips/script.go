package trips

import (
	"crypto/sha1"
	"encoding/hex"

	"github.com/redis/go-redis/v9"
)

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
