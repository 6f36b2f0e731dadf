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
func DecideScript() string { return read(ownClock) + decision() }

// DecideScriptInjected returns the same script on a clock that the caller passes as the last ARGV, in microseconds,
// for tests that play histories on a real server. It is not for production: a caller's clock decides nothing there.
func DecideScriptInjected() string { return read(injectedClock) + decision() }

// LeaseScript returns the script that grants, renews and releases leases on Redis's own clock. The comment at its head is its
// contract.
func LeaseScript() string { return read(ownClock) + leases() }

// LeaseScriptInjected returns the same script on a clock that the caller passes as the last ARGV. See
// DecideScriptInjected.
func LeaseScriptInjected() string { return read(injectedClock) + leases() }

// AdmitScript returns the script that decides a request and takes a slot of a semaphore, both or neither, on Redis's own
// clock. The comment at the head of its last part is its contract.
func AdmitScript() string { return read(ownClock) + admission() }

// AdmitScriptInjected returns the same script on a clock that the caller passes as the last ARGV. See
// DecideScriptInjected.
func AdmitScriptInjected() string { return read(injectedClock) + admission() }

const ownClock, injectedClock = "clock.lua", "clock_injected.lua"

// admission makes functions of the two scripts that it joins.
func admission() string {
	return "local function decide(KEYS, ARGV, now, margin)\n" + decision() + "end\n" +
		"local function lease(KEYS, ARGV, now, margin)\n" + leases() + "end\n" + read("admit.lua")
}

// decision puts the algorithms' parts where the decision names them, and behind what decides without them.
func decision() string {
	algorithms := make(map[string]map[string]string)
	var names []string
	entries, err := files.ReadDir("lua/algorithm")
	if err != nil {
		panic("headgate: " + err.Error()) // embedded: it is there or this does not compile
	}
	for _, e := range entries {
		name := strings.TrimSuffix(e.Name(), ".lua")
		names = append(names, name)
		algorithms[name] = parts(read("algorithm/" + e.Name()))
	}
	all := expand(read("decide.lua"), func(part string) string {
		var b strings.Builder
		word := "if"
		for _, name := range names {
			if text, ok := algorithms[name][part]; ok {
				b.WriteString(word + " algorithm == '" + name + "' then\n" + text)
				word = "elseif"
			}
		}
		return b.String() + "end\n"
	})
	return read("plain.lua") + "return (function()\n" + all + "end)()\n"
}

// leases puts the steps where the script of the leases names them.
func leases() string {
	return expand(read("lease.lua"), func(step string) string { return read("lease/" + step + ".lua") })
}

// expand puts the part of that name in the place of each line that names one.
func expand(text string, part func(name string) string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), mark); ok {
			line = part(name)
		}
		b.WriteString(line)
	}
	return b.String()
}

// mark begins a part in an algorithm's file, and the place for it in the decision's; in the leases' it
// is the place for a file.
const mark = "--: "

// parts are what stands below each mark. What is above the first is the file's contract.
func parts(text string) map[string]string {
	sections := strings.Split(text, "\n"+mark)[1:]
	parts := make(map[string]string, len(sections))
	for _, s := range sections {
		name, body, _ := strings.Cut(s, "\n")
		parts[name] = strings.TrimSpace(body) + "\n"
	}
	return parts
}

func read(name string) string {
	text, err := files.ReadFile("lua/" + name)
	if err != nil {
		panic("headgate: " + err.Error()) // a name misspelt above: the first test finds it
	}
	return string(text)
}
