package redisstore

import "github.com/headgate/headgate/internal/redisstore/trips"

// arguments are the words of a command behind the name of its script: the number of its KEYS, these,
// and ARGV.
type arguments struct {
	words []word
	args  []any // the words as go-redis takes them
}

// word is one argument: a number, a text, or any other value.
type word struct {
	number int64
	text   string
	value  any
	isText bool
}

// headSize is the most ARGV of a script that belong to no call: its form, and a clock of a test.
const headSize = 10

func (a *arguments) int(n int64) { a.words = append(a.words, word{number: n}) }

func (a *arguments) flag(set bool) {
	n := int64(0)
	if set {
		n = 1
	}
	a.int(n)
}

func (a *arguments) name(s string) { a.words = append(a.words, word{text: s, isText: true}) }

// key writes a key. It goes by value: go-redis reads the first one to find its slot, and hooks of the
// client may show all.
func (a *arguments) key(name string) { a.words = append(a.words, word{value: name}) }

// later writes an integer that set changes once it is known.
func (a *arguments) later() (at int) {
	a.int(0)
	return len(a.words) - 1
}

func (a *arguments) set(at int, n int64) { a.words[at].number = n }

// clear drops the words, and keeps their memory.
func (a *arguments) clear() {
	clear(a.words)
	clear(a.args)
	a.words = a.words[:0]
	a.args = a.args[:0]
}

// command returns the command that runs a script on these arguments, once all are written. Numbers
// and texts go as pointers to the words, because a pointer in an interface needs no memory of its own.
func (a *arguments) command(c *schema, s *trips.Script) trips.Command {
	if c.clock != nil {
		a.int(c.clock())
	}
	a.args = s.Begin(a.args[:0])
	for i := range a.words {
		w := &a.words[i]
		switch {
		case w.value != nil:
			a.args = append(a.args, w.value)
		case w.isText:
			a.args = append(a.args, &w.text)
		default:
			a.args = append(a.args, &w.number)
		}
	}
	return trips.Command{Script: s, Args: a.args}
}
