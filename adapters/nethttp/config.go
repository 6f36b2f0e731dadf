package nethttp

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfunc"
)

// Config configures a Guard.
type Config struct {
	// Gate decides. It is required if there are Rules or Blocks.
	Gate *core.Gate
	// Rules are the limits, each under a policy of another name. At least one is required unless there
	// are Blocks or Concurrency or Replay is set. Rules and Blocks are at most 16.
	Rules []Rule
	// Allow returns true for requests that go on without a block, a limit and a cap, such as those of
	// a monitor; see keyfunc.InNetworks. Deny returns true for requests that are refused with 403 and
	// count against nothing. Nil is none. The order is Disabled, SkipPreflights, Allow, Deny, Blocks,
	// then Rules and Concurrency, and at last Replay, which looks at allowed requests too.
	Allow, Deny func(*http.Request) bool
	// Blocks keep clients that misbehave away for a while.
	Blocks []BlockRule
	// Concurrency caps how many requests run at a time. Nil caps nothing.
	Concurrency *Concurrency
	// Replay handles each id of a request once. Nil looks at no ids.
	Replay *Replay
	// Scope derives the outermost part of the keys of all rules and caps, such as the tenant. On a
	// Redis Cluster one script decides all rules of a scope. Nil adds no part.
	//
	// A request that a rule or a cap applies to is refused with 400 if it has no scope.
	Scope keyfunc.Func
	// MaxDelay is the longest time for which a request is delayed, instead of refused, until its
	// rules have room. Rules whose policy is a core.TokenBucket or a core.LeakyBucket queue
	// requests up to that long; the others admit a request immediately or refuse it. A client that
	// leaves in the meantime spends nothing. Zero delays no request.
	MaxDelay time.Duration
	// BufferBody is the number of body bytes to read before a request waits, for MaxDelay or for
	// Concurrency.MaxWait. The handler reads these bytes from memory. Zero reads nothing.
	//
	// An HTTP/1 server notices that a client has left only once the body has been read. A longer
	// body is passed on unread, and its request keeps its place in the queue when the client
	// leaves. A body that breaks off is refused with 400, one that http.MaxBytesReader rejects with
	// 413. Neither spends anything.
	BufferBody int64
	// Disabled skips the whole guard while it returns true. It is a switch for operators, such as
	// the Load method of an atomic.Bool. Nil skips nothing.
	Disabled func() bool
	// SkipPreflights skips the guard for CORS preflights. Set it if the CORS middleware stands
	// inside the guard or passes preflights on. Any client can send preflights, so the handler that
	// answers them must be cheap.
	SkipPreflights bool
	// Dialect is how responses state the limits and refusals. Nil is Draft11.
	Dialect Dialect
	// Refuse answers a request that is not admitted, in place of the Dialect's WriteRefusal. The
	// headers are set before, and Refuse may change them. Nil answers as the Dialect does.
	Refuse func(http.ResponseWriter, *http.Request, *Admission)
	// Observe is called with every admission before the guard acts on it. It must be fast and safe
	// for concurrent use. Nil observes nothing.
	Observe func(*http.Request, *Admission)
}

// faultFunc records one fault of a Config.
type faultFunc func(format string, args ...any)

// check returns every fault of the configuration, or nil.
func (cfg *Config) check() error {
	var errs []error
	fault := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("nethttp: Config."+format, args...))
	}
	limits := len(cfg.Rules) + len(cfg.Blocks)
	others := cfg.Concurrency != nil || cfg.Replay != nil
	if cfg.Gate == nil && (limits > 0 || !others) {
		fault("Gate is nil")
	}
	if limits == 0 && !others {
		fault("Rules is empty, and there are no Blocks, no Concurrency and no Replay")
	}
	if limits > core.MaxCharges {
		fault("Rules and Blocks have %d entries: they must have at most %d", limits, core.MaxCharges)
	}
	if cfg.MaxDelay < 0 {
		fault("MaxDelay is %v: it must not be negative", cfg.MaxDelay)
	}
	if cfg.BufferBody < 0 {
		fault("BufferBody is %d: it must not be negative", cfg.BufferBody)
	}
	names := make(map[string]bool)
	for i := range cfg.Rules {
		cfg.Rules[i].check(i, names, fault)
	}
	for i := range cfg.Blocks {
		cfg.Blocks[i].check(i, names, fault)
	}
	if cfg.Concurrency != nil {
		cfg.Concurrency.check(cfg.Gate, names, fault)
	}
	if cfg.Replay != nil {
		cfg.Replay.check(fault)
	}
	return errors.Join(errs...)
}
