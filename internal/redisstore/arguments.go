package redisstore

import "github.com/headgate/headgate/internal/redisstore/trips"

// arguments are the words of a command: EVALSHA, the name of the script, the number of its KEYS, these,
// and ARGV. A word is an int64, a string or bytes. go-redis reads the first key to find its slot, and
// hooks of the client may show all words.
type arguments struct {
	script *trips.Script
	words  []any
	asked  int // the last of KEYS are those of that many Blocks, which lua/decide/asks.lua asks
}

// numberAt is the place of the number of KEYS.
const numberAt = 2

// begin begins the command that runs a script.
func (a *arguments) begin(s *trips.Script) {
	a.script = s
	a.words = s.Begin(a.words[:0])
}

func (a *arguments) int(n int64) { a.words = append(a.words, n) }

func (a *arguments) flag(set bool) {
	n := int64(0)
	if set {
		n = 1
	}
	a.int(n)
}

func (a *arguments) name(s string) { a.words = append(a.words, s) }

func (a *arguments) names(all []string) {
	for _, s := range all {
		a.name(s)
	}
}

// later writes an integer that set changes once it is known.
func (a *arguments) later() (at int) {
	a.int(0)
	return len(a.words) - 1
}

func (a *arguments) set(at int, n int64) { a.words[at] = n }

// clear drops the words, and keeps their memory.
func (a *arguments) clear() {
	clear(a.words)
	a.words = a.words[:0]
	a.asked = 0
}

// command returns the command, once all arguments are written.
func (a *arguments) command(s *Store) trips.Command {
	if a.asked > 0 {
		a.int(int64(a.asked))
		a.name("asks")
	}
	if s.Clock != nil {
		a.int(s.Clock())
	}
	return trips.Command{Script: a.script, Args: a.words}
}
