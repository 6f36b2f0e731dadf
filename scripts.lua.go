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
	"cmp"
	"embed"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
)

//go:embed lua
var files embed.FS

// scripts returns what each script is made of, in order: files of lua/, and the lines between them. It
// is no variable, so that a program without Redis links none of it.
func scripts() map[string][]string {
	// The parts of more than one script.
	clock := []string{"clock/clock.lua"}
	asks := slices.Concat(clock, []string{"decide/asks.lua"})
	decision := []string{"bundle/bundle.lua", "decide/decide.lua"}
	lease := slices.Concat(
		[]string{"lease/text.lua", "lease/publish.lua", "lease/take.lua", "lease/leave.lua", "lease/lone.lua"},
		function("lease(KEYS, ARGV, now)", []string{"lease/lease.lua"}),
	)
	return map[string][]string{
		"decide":         slices.Concat(asks, []string{"local confirm"}, decision),
		"window":         slices.Concat(asks, []string{"decide/values.lua", "decide/straight.lua for window"}),
		"sliding_window": slices.Concat(asks, []string{"decide/values.lua", "decide/straight.lua for sliding_window"}),
		"buckets":        slices.Concat(asks, []string{"decide/values.lua", "decide/buckets.lua for token_bucket"}),
		"token_bucket": slices.Concat(asks,
			[]string{"decide/values.lua", "bundle/bundle.lua", "decide/straight.lua for token_bucket"}),
		"sliding_log": slices.Concat(asks, []string{"local values", "decide/straight.lua for sliding_log"}),
		"admit": slices.Concat(clock,
			function("decide(KEYS, ARGV, now, margin, confirm)", decision), lease, []string{"admit/admit.lua"}),
		"answer": slices.Concat(clock,
			function("decide(KEYS, ARGV, now, margin, confirm)", decision), []string{"once/answer.lua"}),
		"lease": slices.Concat(clock, lease, []string{"lease/batch.lua"}),
		"take":  {"lease/take.lua", "lease/takes.lua"},
		"leave": {"lease/leave.lua", "lease/leaves.lua"},
		"filter": slices.Concat(
			function("clock()", slices.Concat(clock, []string{"return now, margin"})), // most need no time
			[]string{"filter/filter.lua"}),
		"reset":    slices.Concat(clock, []string{"bundle/bundle.lua", "bundle/reset.lua"}),
		"override": {"plan/override.lua"},
		"policies": slices.Concat(clock, []string{"policies/policies.lua"}),
	}
}

// mark starts a part of an algorithm's file. In any other file it stands for the file of that name beside
// it, or for the parts of that name of all algorithms.
const mark = "--: "

// use stands in a part for another part of the same file, or for the file of a folder with the same name.
const use = "--= "

// Scripts returns the scripts by name. A script's files say in comments what it does with which KEYS
// and ARGV, and what it replies.
//
//   - decide decides requests. window, sliding_window, sliding_log and token_bucket decide those that
//     charge one key each, under limits of that algorithm. buckets decides those that charge token
//     buckets alone, with tokens of whole microseconds.
//   - admit decides a request and takes a slot of a semaphore, both or neither. It keeps the holds
//     and the adjustments of charges.
//   - answer decides a request and keeps a text beside what it charges, both or neither.
//   - lease grants, renews and releases the leases of a semaphore. take and leave grant and release
//     those of keys that nobody else uses.
//   - filter asks a Bloom filter.
//   - reset forgets a token bucket.
//   - override changes the override of a tenant's plan; see package plans.
//   - policies states the policies of a process, for tools.
func Scripts() iter.Seq2[string, string] {
	return func(yield func(name, script string) bool) {
		for _, name := range slices.Sorted(maps.Keys(scripts())) {
			if !yield(name, Script(name)) {
				return
			}
		}
	}
}

// Script returns one of Scripts. It is empty if there is none of that name.
func Script(name string) string {
	var b strings.Builder
	for _, part := range scripts()[name] {
		name, algorithm, alone := strings.Cut(part, " for ")
		if !strings.HasSuffix(name, ".lua") {
			b.WriteString(part + "\n")
			continue
		}
		folder, _, _ := strings.Cut(name, "/")
		part := func(at string) string { return insert(folder, at) }
		if alone {
			own := func(at string) string { return algorithmPart(algorithm, at) }
			part = func(at string) string { return expand(own(at), own) }
		}
		b.WriteString(expand(read(name), part))
	}
	return b.String()
}

// expand replaces each mark in a text by the part of that name.
func expand(text string, part func(at string) string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if at, ok := strings.CutPrefix(strings.TrimSpace(line), mark); ok {
			line = part(at)
		}
		b.WriteString(line)
	}
	return b.String()
}

// function wraps parts in a local Lua function, given its name and parameters.
func function(head string, parts []string) []string {
	return slices.Concat([]string{"local function " + head}, parts, []string{"end"})
}

// insert returns the text for a mark in a file of a folder: the file of that name there, or the parts of
// that name of all algorithms, each for the charges on its limits.
func insert(folder, at string) string {
	if text, err := files.ReadFile("lua/" + folder + "/" + at + ".lua"); err == nil {
		return expand(string(text), func(at string) string { return insert(folder, at) })
	}
	var b strings.Builder
	word := "if"
	for _, name := range algorithms() {
		text := read("algorithm/" + name + ".lua")
		if body := partOf(text, at); body != "" {
			b.WriteString(word + " algorithm == '" + name + "' then\n" + around(text, at, body))
			word = "elseif"
		}
	}
	return b.String() + "end\n"
}

// algorithms returns the names of all algorithms.
func algorithms() (names []string) {
	all, _ := files.ReadDir("lua/algorithm") // what is embedded can be read
	for _, file := range all {
		names = append(names, strings.TrimSuffix(file.Name(), ".lua"))
	}
	return names
}

// partOf returns a part of an algorithm's file, or nothing if it has none of that name.
func partOf(text, at string) string {
	for _, part := range strings.Split(text, "\n"+mark)[1:] { // what is above is the contract
		if head, body, _ := strings.Cut(part, "\n"); head == at {
			return nested(text, strings.TrimSpace(body)+"\n")
		}
	}
	return ""
}

// nested inserts parts of an algorithm's file into another part of it.
func nested(text, body string) string {
	var b strings.Builder
	for line := range strings.Lines(body) {
		if at, ok := strings.CutPrefix(strings.TrimSpace(line), use); ok {
			if line = partOf(text, at); line == "" {
				line = read(at + "/" + at + ".lua")
			}
		}
		b.WriteString(line)
	}
	return b.String()
}

// algorithmPart returns a part of an algorithm for a script that knows no other. The part "names"
// declares its names. A part "straight " and a name stands there for the part of that name.
func algorithmPart(algorithm, at string) string {
	text := read("algorithm/" + algorithm + ".lua")
	if own := partOf(text, "straight "+at); own != "" {
		return own
	}
	switch at {
	case "names":
		return "local " + names(text) + "\n"
	case "get":
		return get(text)
	case "bundle":
		return read("bundle/bundle.lua")
	case "put":
		return read("decide/put.lua")
	}
	return partOf(text, at)
}

// names returns the names in which an algorithm keeps its limit and its state.
func names(text string) string {
	_, all, _ := strings.Cut(text, "\n-- Names  ")
	all, _, _ = strings.Cut(all, "\n")
	return all
}

// get returns the lines that read the value of a key.
func get(text string) string {
	return cmp.Or(partOf(text, "get"), "value = values and values[key] or redis.call('GET', KEYS[key])\n")
}

// around returns a part for the script of all algorithms, which keeps the names of a state in a table
// between the parts.
func around(text, at, body string) string {
	all := names(text)
	size := strconv.Itoa(1 + strings.Count(all, ","))
	load, save := "unpack(states[key], 1, "+size+")\n", "states[key] = {"+all+"}\n" // some may be nil
	switch at {
	case "look":
		return "local " + all + "\nlocal p, size, changed = limit + 3, 0, false\n" +
			"if states[key] then\n" + all + " = " + load + "end\n" + partOf(text, "limit") +
			"if not states[key] then\nlocal value\n" + get(text) + partOf(text, "read") + "end\n" +
			body + "if changed then dirty[key] = limit end\n" + save
	case "fits":
		return "local " + all + " = " + load + body
	case "store": // the limit that changed the state may not be that of the last look
		return "local " + all + " = " + load + "local p, size = limit + 3, 0\n" + partOf(text, "limit") + body
	}
	return "local " + all + " = " + load + body + save
}

func read(name string) string {
	text, err := files.ReadFile("lua/" + name)
	if err != nil {
		panic("headgate: " + err.Error()) // a misspelt name above, which every test reveals
	}
	return string(text)
}
