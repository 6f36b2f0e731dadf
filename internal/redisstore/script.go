package redisstore

import (
	"crypto/sha1"
	"encoding/hex"

	"github.com/redis/go-redis/v9"
)

// script is a Lua script and the name by which EVALSHA knows it.
type script struct{ source, sha string }

func newScript(source string) script {
	sum := sha1.Sum([]byte(source))
	return script{source, hex.EncodeToString(sum[:])}
}

// once is a command that go-redis sends once. By default go-redis repeats a command whose answer is
// late, which counts twice.
type once struct{ *redis.IntSliceCmd }

// NoRetry is asked by go-redis.
func (once) NoRetry() bool { return true }

// onceAny is once with any reply.
type onceAny struct{ *redis.Cmd }

// NoRetry is asked by go-redis.
func (onceAny) NoRetry() bool { return true }
