package redisstore

import (
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/redisstore/trips"
)

// scripts are those that a Store runs.
type scripts struct {
	general               *trips.Script // lua/decide/decide.lua
	admit, answer, filter *trips.Script
	lease, take, leave    *trips.Script // take and leave are for lone holders
	buckets               *trips.Script
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
		general: script("decide"), admit: script("admit"), answer: script("answer"), lease: script("lease"),
		buckets: script("buckets"), tokenBucket: script("token_bucket"), window: script("window"),
		slidingWindow: script("sliding_window"), slidingLog: script("sliding_log"),
		take: script("take"), leave: script("leave"), filter: script("filter"), reset: redis.NewScript(source("reset")),
		policies: redis.NewScript(source("policies")),
	}
}
