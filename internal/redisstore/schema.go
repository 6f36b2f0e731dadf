package redisstore

import (
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/redisstore/trips"
)

// schema is what the commands of a Store have in common.
type schema struct {
	prefix string       // of every name, with the colon behind it
	clock  func() int64 // in microseconds; nil for Redis's own
	scripts
	// Of calls to be used again. A call has a channel, and one of a synctest bubble stays there.
	decisions, operations, questions sync.Pool

	serverTime atomic.Int64 // when a calendar's period was last found to have passed
	declines   declines
}

// scripts are those that a Store runs.
type scripts struct {
	decide, admit, answer, filter *trips.Script
	lease, take, leave            *trips.Script // take and leave are for lone holders
	buckets                       *trips.Script
	// These decide under one algorithm.
	window, slidingWindow, slidingLog, tokenBucket *trips.Script

	reset, policies *redis.Script
}

// own are the scripts on Redis's own clock. The first Store of a process makes them: as the value of a
// variable they would be linked into programs without a Store.
var own struct {
	made sync.Once
	scripts
}

func ownScripts() scripts {
	own.made.Do(func() { own.scripts = newScripts(headgate.Script) })
	return own.scripts
}

func newScripts(source func(name string) string) scripts {
	script := func(name string) *trips.Script { return trips.NewScript(source(name)) }
	return scripts{
		decide: script("decide"), admit: script("admit"), answer: script("answer"), lease: script("lease"),
		buckets: script("buckets"), tokenBucket: script("token_bucket"), window: script("window"),
		slidingWindow: script("sliding_window"), slidingLog: script("sliding_log"),
		take: script("take"), leave: script("leave"), filter: script("filter"), reset: redis.NewScript(source("reset")),
		policies: redis.NewScript(source("policies")),
	}
}

func newSchema(cfg *Config) *schema {
	s := &schema{prefix: cfg.Prefix, clock: cfg.Clock, scripts: ownScripts()}
	s.decisions.New = func() any {
		d := new(Decision)
		d.Call = trips.NewCall(d)
		return d
	}
	s.operations.New = func() any {
		o := &operation{schema: s}
		o.Call = trips.NewCall(o)
		return o
	}
	if cfg.Script != nil {
		s.scripts = newScripts(cfg.Script)
	}
	return s
}

// clocked appends the time to the arguments of a script on a clock other than Redis's.
func (s *schema) clocked(args []any) []any {
	if s.clock != nil {
		args = append(args, s.clock())
	}
	return args
}
