package summary

import (
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/headgate/headgate/lab/bench/internal/locks"
	"github.com/headgate/headgate/lab/bench/internal/measure"
	"github.com/headgate/headgate/lab/bench/internal/report"
)

// Write writes six lines and a table about what was measured. Lines without a figure are left out.
func Write(w io.Writer, plan measure.Plan, tables []report.Table, before Before) error {
	c := &cells{tables: tables}
	n := namesOf(plan)
	var b strings.Builder
	for _, line := range n.lines(c) {
		fmt.Fprintf(&b, "- %s\n", line)
	}
	if b.Len() > 0 {
		b.WriteByte('\n')
	}
	t := n.table(c, before)
	if c.err != nil {
		return c.err
	}
	if len(t.Rows) > 0 {
		if err := t.Write(&b); err != nil {
			return err
		}
	}
	reasons := n.reasons(c)
	for _, line := range reasons {
		fmt.Fprintf(&b, "- %s\n", line)
	}
	if len(reasons) > 0 {
		b.WriteByte('\n')
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("write the summary: %w", err)
	}
	return nil
}

const (
	onRedis   = "net/http, go-redis and Headgate on Redis"
	bucket    = "TokenBucket"
	window    = "FixedWindow"
	queued    = "Mutex, in the queue"
	inProcess = "Gate in memory, TokenBucket"
	limiters  = "sync.Map of rate.Limiter" // the peer that knows keys
	handler   = "Headgate, TokenBucket in memory"
	metered   = "ReverseProxy behind a Meter"
)

// lines is text with figures.
type lines []string

// add adds a line, unless a figure was not measured.
func (l *lines) add(format string, figures ...float64) {
	var args []any
	for _, f := range figures {
		if math.IsNaN(f) {
			return
		}
		args = append(args, report.Number(f))
	}
	*l = append(*l, fmt.Sprintf(format, args...))
}

// reasons are why figures are not better.
func (n *names) reasons(c *cells) (all lines) {
	all.add("The program on Redis has %s KB of instructions more than one with go-redis alone. "+
		"Go's tables about them, and read-only data such as the Lua scripts, make it %s KB.",
		c.line(n.text, onRedis), c.line(n.size, onRedis))
	all.add("A lone decision is one command. go-redis alone takes %s times as long as a PING for the same EVALSHA.",
		c.line(n.lone, floorSent))
	all.add("Callers, harness and server share the processors. So "+n.busy+" and "+n.crowd+" callers "+
		"of the floor get no more than %s and %s times the rate of a PING on "+n.keys+" keys, and "+
		"%s and %s on one.",
		c.line(n.spread, floorShared), c.line(n.spreadMany, floorShared),
		c.line(n.hot, floorShared), c.line(n.hotMany, floorShared))
	all.add("On one key the callers' own work is the limit: redis-server takes %s µs of processor "+
		"time for each decision of "+n.busy+" callers, and %s µs for the floor's.",
		c.line(n.hotCPU, bucket), c.line(n.hotCPU, floorShared))
	all.add("Middleware that only sets two fields and a value of the context takes %s bytes, for the header's map, the "+
		"values and a copy of the request. The admission that a handler can read makes it %s.",
		c.line(n.aboveBytes, "net/http", floorStated), c.line(n.aboveBytes, "net/http", handler))
	all.add("In memory a Gate decides all charges of a request or none, and returns what is left of each limit. "+
		"A map of rate.Limiter tells only whether the request may go on, and takes %s ns.", c.line(n.inMemory, limiters, "1"))
	all.add("Through a Meter a chat has two budgets with holds, a limit and a slot, and settles them. "+
		"redis-server takes %s µs for that, and %s µs for the floor's scripts, which have about the same commands and "+
		"decide nothing.",
		c.line(n.meterCPU, "1", metered), c.line(n.meterCPU, "1", floorChat))
	return all
}

// lines are what a reader takes away.
func (n *names) lines(c *cells) (all lines) {
	add := all.add
	peer := func(of column, better func(a, b float64) bool, words ...string) float64 {
		best, _ := c.best(of, better, words...)
		return best
	}
	clientsOf := fmt.Sprint(locks.Clients)
	few, many := c.line(n.spread, bucket), c.line(n.spreadMany, bucket)
	add("**Many keys.** On "+n.keys+" keys, "+n.busy+" callers get %s decisions in the time of a "+
		"PING, and "+n.crowd+" callers %s: %s and %s times as many as with the best peer.",
		few, many, few/peer(n.spread, most), many/peer(n.spreadMany, most))
	few, many = c.line(n.hot, bucket), c.line(n.hotMany, bucket)
	add("**One key.** There they get %s and %s: %s and %s times as many as with the best peer. "+
		"Each costs redis-server %s µs, and one of the best peer %s µs.",
		few, many, few/peer(n.hot, most), many/peer(n.hotMany, most),
		c.line(n.hotCPU, bucket), peer(n.hotCPU, least))
	add("**One caller.** A decision takes %s times as long as a PING; that of the best peer %s "+
		"times. A remembered denial takes %s µs and no round trip.",
		c.line(n.lone, bucket), peer(n.lone, least), c.line(n.denied, bucket))
	add("**Alone.** A fleet of small processes shares no round trip. There a lone decision makes redis-server execute %s "+
		"times the instructions of an EVALSHA of a GET and a SET, and a FixedWindow %s times; one of the best peer %s times.",
		c.line(n.alone, bucket), c.line(n.alone, window), peer(n.alone, least))
	add("**Locks.** A lock that nobody else wants takes %s PINGs, that of the best peer %s. Among "+
		clientsOf+" clients it changes hands in %s µs (p50), that of the best peer in %s µs.",
		c.line(n.pair, queued), peer(n.pair, least), c.line(n.handOff, queued), peer(n.handOff, least))
	add("**In the process.** A decision in memory takes %s ns, one of a map of rate.Limiter %s ns. "+
		"Middleware adds %s ns to a request of net/http, that of the best peer %s ns.",
		c.line(n.inMemory, inProcess, "1"), c.line(n.inMemory, limiters, "1"),
		c.line(n.above, "net/http", handler), peer(n.above, least, "net/http"))
	return all
}
