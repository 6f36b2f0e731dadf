// Package headgate is a toolkit for rate limits, quotas and concurrency caps of HTTP APIs, shared by all replicas
// of a service through Redis.
//
// This package holds the Lua scripts that decide in Redis, for those who load or audit them ahead of a deployment.
// What an application imports lies in the folders below:
//
//   - core decides: a Gate, its policies and limiters, on Redis or in memory. It knows nothing of HTTP.
//   - keyfunc says whose request it is.
//   - adapters/nethttp applies a Gate to an *http.Request: keys, headers, refusals.
package headgate

import (
	"embed"
	"strings"
)

//go:embed lua
var files embed.FS

// DecideScript returns the script that decides requests on Redis's own clock. The comments at its parts' heads
// are its contract: KEYS, ARGV, reply.
func DecideScript() string {
	return assemble("clock.lua")
}

// DecideScriptInjected returns the same script on a clock that the caller passes as the last ARGV, in microseconds,
// for tests that play histories on a real server. It is not for production: a caller's clock decides nothing there.
func DecideScriptInjected() string {
	return assemble("clock_injected.lua")
}

// assemble joins the clock, every algorithm and the decision that uses them, in this order.
func assemble(clock string) string {
	var b strings.Builder
	b.WriteString(read(clock))
	b.WriteString(read("algorithms.lua"))
	algorithms, _ := files.ReadDir("lua/algorithm") // embedded: it is there or this does not compile
	for _, f := range algorithms {
		b.WriteString(read("algorithm/" + f.Name()))
	}
	b.WriteString(read("decide.lua"))
	return b.String()
}

func read(name string) string {
	text, err := files.ReadFile("lua/" + name)
	if err != nil {
		panic("headgate: " + err.Error()) // a name misspelt above: the first test finds it
	}
	return string(text)
}
