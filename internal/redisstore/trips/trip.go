package trips

import (
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// trip is calls on their way together, and the commands that carry them.
type trip struct {
	calls    []*Call
	packed   []*Call // the same, command by command
	commands []command
	sent     time.Time
	own      bool // on a connection of its own
	panicked any  // the value of a panic in a hook of the client
}

// reset forgets the calls.
func (t *trip) reset() {
	clear(t.calls)
	clear(t.packed)
	clear(t.commands)
	t.calls, t.packed = t.calls[:0], t.packed[:0]
	t.commands, t.panicked, t.own = t.commands[:0], nil, false
}

// pack writes the commands. Calls that may share a script do, as long as it has room for their
// arguments and weight.
func (t *trip) pack(cluster bool) {
	t.packed = append(t.packed[:0], t.calls...)
	for rest := t.packed; len(rest) > 0; {
		first := rest[0]
		b := first.parcel.Batch()
		b.Add(first.parcel)
		weight := first.Weight
		n := 1 // calls of the command, which move to the front
		for i := 1; i < len(rest); i++ {
			if k := rest[i]; weight+k.Weight <= maxBatchWeight && first.sharesWith(k, cluster) &&
				b.Add(k.parcel) {
				weight += k.Weight
				copy(rest[n+1:i+1], rest[n:i])
				rest[n] = k
				n++
			}
		}
		t.commands = append(t.commands, newCommand(b, rest[:n]))
		rest = rest[n:]
	}
}

// abandon leaves the commands to a client that may still use them.
func (t *trip) abandon() { t.packed, t.commands = nil, nil }

// deliver hands the replies to the calls. It doubts a server that cannot decide now.
func deliver(commands []command, doubt func(outermost string)) {
	for i := range commands {
		c := &commands[i]
		reply, err := c.reply()
		if err == nil {
			err = c.batch.Deliver(reply)
		}
		if err != nil {
			c.fails(err, doubt)
		}
		c.batch.Release()
	}
}

// fails gives the calls of a command its error.
func (c *command) fails(err error, doubt func(outermost string)) {
	if Classify(err) == Outage {
		doubt(c.calls[0].Outermost)
	}
	err = split(err, c.calls[0].Lane, len(c.calls))
	for _, k := range c.calls {
		k.err = err
	}
}

// split returns the error of each of n calls that shared a script, given the script's error.
func split(err error, lane Lane, n int) error {
	if n == 1 {
		return err
	}
	text := err.Error()
	unreadable := strings.HasPrefix(text, "ERR ") && strings.Contains(text, "script")
	refused := lane == Operations && (Classify(err) == Misconfigured || strings.Contains(text, "OOM "))
	if redis.HasErrorPrefix(err, "WRONGTYPE") || redis.HasErrorPrefix(err, "TRYAGAIN") ||
		unreadable || refused {
		return errSplit{err}
	}
	return err
}
