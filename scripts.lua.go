// Package headgate is a toolkit for rate limits, quotas and concurrency caps of HTTP APIs, shared
// by all replicas of a service through Redis.
//
// This package holds the Lua scripts, so that operators can load or audit them before a deployment.
// Applications import the packages below:
//
//   - core decides: a Gate, its policies and limiters, on Redis or in memory. It does not depend on
//     net/http.
//   - keyfunc derives keys from requests: from the address, a header or the route.
//   - plans holds named sets of limits, which change while the program runs.
//   - adapters/nethttp applies a Gate to an *http.Request: keys, headers, refusals.
package headgate

import (
	"embed"
	"strings"
)

//go:embed lua
var files embed.FS

// DecideScript returns the script that decides requests on Redis's own clock. The comments at
// the heads of its files are its contract: KEYS, ARGV, reply.
func DecideScript() string { return read(ownClock) + decision() }

// DecideScriptInjected returns the same script on a clock that the caller passes as the last ARGV,
// in microseconds. It is for tests that replay histories on a real server. In production, replicas
// with different clocks would disagree.
func DecideScriptInjected() string { return read(injectedClock) + decision() }

// LeaseScript returns the script that grants, renews and releases leases on Redis's own clock. The
// comments at the heads of its files are its contract.
func LeaseScript() string { return read(ownClock) + leases() + read("leases.lua") }

// LeaseScriptInjected returns the same script on a clock that the caller passes as the last ARGV.
// See DecideScriptInjected.
func LeaseScriptInjected() string { return read(injectedClock) + leases() + read("leases.lua") }

// SlotScript returns the script that takes and gives back slots where nobody else holds or waits, on
// Redis's own clock. The comment at the head of lua/slots.lua is its contract.
func SlotScript() string { return read(ownClock) + read("text.lua") + read("slots.lua") }

// SlotScriptInjected returns the same script on a clock that the caller passes as the last ARGV. See
// DecideScriptInjected.
func SlotScriptInjected() string { return read(injectedClock) + read("text.lua") + read("slots.lua") }

// AdmitScript returns the script that decides a request and takes a slot of a semaphore, both or
// neither, and that keeps the holds and adjustments of charges, on Redis's own clock. The comment
// at the head of lua/admit.lua is its contract.
func AdmitScript() string { return read(ownClock) + admission() }

// AdmitScriptInjected returns the same script on a clock that the caller passes as the last ARGV.
// See DecideScriptInjected.
func AdmitScriptInjected() string { return read(injectedClock) + admission() }

// FilterScript returns the script of Bloom filters on Redis's own clock. The comment at its head is
// its contract.
func FilterScript() string { return filter(ownClock) }

// FilterScriptInjected returns the same script on a clock that the caller passes as the last ARGV.
// See DecideScriptInjected.
func FilterScriptInjected() string { return filter(injectedClock) }

// ResetScript returns the script that forgets one token bucket, on Redis's own clock. The comment at
// the head of lua/reset.lua is its contract.
func ResetScript() string { return read(ownClock) + read("bundle.lua") + read("reset.lua") }

// ResetScriptInjected returns the same script on a clock that the caller passes as the last ARGV. See
// DecideScriptInjected.
func ResetScriptInjected() string {
	return read(injectedClock) + read("bundle.lua") + read("reset.lua")
}

// OverrideScript returns the script that changes the override of a tenant's plan; see package
// plans. The comment at its head is its contract.
func OverrideScript() string { return read("override.lua") }

// filter wraps the clock in a function, because filters without a window need no time.
func filter(clock string) string {
	return "local function clock()\n" + read(clock) + "return now, margin\nend\n" + read("filter.lua")
}

const ownClock, injectedClock = "clock.lua", "clock_injected.lua"

// admission wraps the decision script in a function, and appends those of leases and admit.lua, which
// calls them.
func admission() string {
	return "local function decide(KEYS, ARGV, now, margin)\n" + decision() + "end\n" +
		leases() +
		expand(read("admit.lua"), func(step string) string { return read("admit/" + step + ".lua") })
}

// decision returns bundle.lua and plain.lua followed by decide.lua with each mark replaced by the
// algorithms' parts of that name.
func decision() string {
	algorithms := make(map[string]map[string]string)
	var names []string
	entries, err := files.ReadDir("lua/algorithm")
	if err != nil {
		panic("headgate: " + err.Error()) // embedded at compile time
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
	return read("bundle.lua") + read("plain.lua") + "return (function()\n" + all + "end)()\n"
}

// leases returns the functions text, lone and lease. The last is lease.lua with each mark replaced by
// the step of that name.
func leases() string {
	steps := expand(read("lease.lua"), func(step string) string { return read("lease/" + step + ".lua") })
	return read("text.lua") + read("lone.lua") +
		"local function lease(KEYS, ARGV, now, margin)\n" + steps + "end\n"
}

// expand replaces each line that is a mark and a name by the part of that name.
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

// mark starts a part in an algorithm's file, and names a part in decide.lua or a file in lease.lua
// and admit.lua.
const mark = "--: "

// parts returns the text below each mark. The text above the first mark is the file's contract.
func parts(text string) map[string]string {
	sections := strings.Split(text, "\n"+mark)[1:]
	named := make(map[string]string, len(sections))
	for _, s := range sections {
		name, body, _ := strings.Cut(s, "\n")
		named[name] = strings.TrimSpace(body) + "\n"
	}
	return named
}

func read(name string) string {
	text, err := files.ReadFile("lua/" + name)
	if err != nil {
		panic("headgate: " + err.Error()) // a misspelt name above, which every test reveals
	}
	return string(text)
}
