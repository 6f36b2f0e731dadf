package trips

import (
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// trip is calls on their way together, and the commands that carry them.
type trip struct {
	calls    []*Call // when they are written, in the order of the commands
	commands []command
	sent     time.Time
	lost     time.Duration // health.lost, as it was sent
	own      bool          // on a connection of its own
	beside   bool          // is not one of the senders
	waited   bool          // the callers wait elsewhere
	written  bool          // the commands are, and the callers may leave
	panicked any           // the value of a panic in a hook of the client
}

// begin makes the trip a new one. It keeps its memory.
func (t *trip) begin(now time.Time, lost time.Duration, calls ...*Call) {
	*t = trip{calls: append(t.calls[:0], calls...), commands: t.commands[:0], sent: now, lost: lost}
}

// pack writes the commands. Calls that may share a script do, as long as it has room for their
// weight.
func (t *trip) pack(cluster bool) {
	for rest := t.calls; len(rest) > 0; {
		b := rest[0].parcel.Batch()
		b.Add(rest[0].parcel)
		n := 1
		if len(rest) > 1 {
			n = join(b, rest, cluster)
		}
		t.commands = append(t.commands, newCommand(b, rest[:n]))
		rest = rest[n:]
	}
}

// join adds to a batch, which has the first of some calls, those that may share its script. They move
// to the front, and join returns how many they are.
func join(b Batch, calls []*Call, cluster bool) int {
	first, n := calls[0], 1
	weight := first.Weight
	for i := 1; i < len(calls); i++ {
		if k := calls[i]; weight+k.Weight <= maxBatchWeight && first.sharesWith(k, cluster) {
			b.Add(k.parcel)
			weight += k.Weight
			copy(calls[n+1:i+1], calls[n:i])
			calls[n] = k
			n++
		}
	}
	return n
}

// deliver hands the replies to the calls. It doubts a server that cannot decide now.
func (t *trip) deliver(doubt func(outermost string)) {
	for i := range t.commands {
		c := &t.commands[i]
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
	if fails(err) {
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
