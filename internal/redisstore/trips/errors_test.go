package trips_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/redisstore/trips"
)

// reply is an error reply of Redis, as go-redis returns it.
type reply string

func (r reply) Error() string { return string(r) }
func (reply) RedisError()     {}

func TestErrorClasses(t *testing.T) {
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	tests := []struct {
		err           error
		misconfigured bool
		words         string // in the explanation
	}{
		{context.DeadlineExceeded, false, "in time"},
		{os.ErrDeadlineExceeded, false, "in time"},
		{refused, false, "nothing listens"},
		{fmt.Errorf("dial: %w", refused), false, "nothing listens"},
		{io.EOF, false, "cannot be reached"},
		{io.ErrUnexpectedEOF, false, "cannot be reached"},
		{syscall.ECONNRESET, false, "cannot be reached"},
		{net.ErrClosed, false, "cannot be reached"},
		{redis.ErrClosed, false, "closed"},
		{redis.ErrPoolTimeout, false, ""},
		{redis.ErrPoolExhausted, false, ""},
		{errors.New("anything"), false, "cannot be reached"},

		{reply("LOADING Redis is loading the dataset in memory"), false, "loading"},
		{reply("CLUSTERDOWN Hash slot not served"), false, "does not serve"},
		{reply("READONLY You can't write against a read only replica."), false, "primary"},
		{reply("READONLY You can't write against a read only replica. script: abc, on @user_script:261."), false, "primary"},
		{reply("ERR Error running script (call to f_abc): @user_script:1: -READONLY You can't write against a read only replica."), false, "primary"},
		{reply("MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'."), false, "lost its primary"},
		{reply("NOREPLICAS Not enough good replicas to write."), false, "too few replicas"},
		{reply("TRYAGAIN Multiple keys request during rehashing of slot"), false, ""},
		{reply("MOVED 3999 127.0.0.1:6381"), false, ""},
		{reply("ASK 3999 127.0.0.1:6381"), false, ""},
		{reply("BUSY Redis is busy running a script."), false, ""},
		{reply("OOM command not allowed when used memory > 'maxmemory'."), false, "out of memory"},
		{reply("ERR Error running script (call to f_abc): @user_script:1: -OOM command not allowed when used memory > 'maxmemory'."), false, "out of memory"},
		{reply("MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk."), false, "save to disk"},
		{reply("ERR max number of clients reached"), false, ""},

		{reply("NOAUTH Authentication required."), true, "password"},
		{reply("ERR Protocol error: unauthenticated multibulk length"), true, "password"},
		{reply("WRONGPASS invalid username-password pair or user is disabled."), true, "does not accept"},
		{reply("NOPERM this user has no permissions to run the 'evalsha' command"), true, "lacks a permission"},
		{reply("ERR The user executing the script can't run this command or subcommand script: abc"), true, "lacks a permission"},
		{reply("WRONGTYPE Operation against a key holding the wrong kind of value"), true, "something else"},
		{reply("ERR ACL failure in script: User x has no permissions to run the 'set' command"), true, "lacks a permission"},
		{reply("CROSSSLOT Keys in request don't hash to the same slot"), true, "TopologyCluster"},
		{reply("ERR unknown command 'evalsha'"), true, "rejects"},
		{reply("ERR user_script:1: attempt to perform arithmetic on a nil value"), true, "rejects"},
		{reply("ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?"), true, "does not accept"},
		{reply("ERR Error running script (call to f_abc): @user_script:1: -WRONGTYPE Operation against a key holding the wrong kind of value"), true, "something else"},
		{reply("ERR Error running script (call to f_abc): @user_script:1: -ERR value is not an integer or out of range"), true, "rejects"},
		{reply("ERR value is not an integer or out of range script: abc, on @user_script:1."), true, "rejects"},

		{reply("NOSCRIPT No matching script. Please use EVAL."), false, "answers with an error"},
		{reply("ERR Error running script (call to f_abc): @user_script:1: Script killed by user with SCRIPT KILL..."), false, "answers with an error"},
		{reply("upstream failure"), false, "answers with an error"},
		{reply("no upstream host"), false, "answers with an error"},
		{reply("ERR Connection refused"), false, "answers with an error"},
		{reply("ERR Connection timed out"), false, "answers with an error"},
		{reply("ERR"), false, "answers with an error"},
		{redis.Nil, false, ""},
		{trips.ErrReply, false, "not one of Redis"},
	}
	for _, tt := range tests {
		for _, err := range []error{tt.err, fmt.Errorf("wrapped: %w", tt.err)} {
			if got := trips.Classify(err); (got == trips.Misconfigured) != tt.misconfigured {
				t.Errorf("%v: class %v", err, got)
			}
			if said := trips.Explain(err); !strings.Contains(said, tt.words) {
				t.Errorf("%v has the explanation %v", err, said)
			}
		}
	}
}

func TestCheckServer(t *testing.T) {
	for _, tt := range []struct {
		info    string
		cluster bool
		words   string
	}{
		{"", false, ""},
		{"redis_version:6.2.0\r\n", false, ""},
		{"redis_version:10.0.1\r\n", false, ""},
		{"redis_version:unknown\r\n", false, ""},
		{"redis_version:6.0.16\r\n", false, "version 6.0.16"},
		{"redis_version:5.0.3\r\n", true, "6.2 is needed"},
		{"redis_version:7.0.0\r\ncluster_enabled:1\r\n", true, ""},
		{"redis_version:7.0.0\r\ncluster_enabled:1\r\n", false, "NewClusterClient"},
		{"redis_version:7.0.0\r\ncluster_enabled:1\r\n", false, "TopologyCluster"},
		{"garnet_version:1.1.9\r\nredis_version:7.4.3\r\n", false, "LuaTransactionMode"},
	} {
		client := redis.NewClient(&redis.Options{ContextTimeoutEnabled: true})
		client.AddHook(hook(func(_ context.Context, cmds []redis.Cmder) error {
			if info, ok := cmds[0].(*redis.StringCmd); ok && cmds[0].Name() == "info" {
				info.SetVal(tt.info)
			}
			return nil
		}))
		err := trips.New(trips.Config{Client: client, Cluster: tt.cluster}).Check(t.Context())
		if (err != nil) != (tt.words != "") ||
			err != nil && (!errors.Is(err, trips.ErrServer) || !strings.Contains(err.Error(), tt.words)) {
			t.Errorf("%q: %v", tt.info, err)
		}
		client.Close()
	}
}
