package summary

import (
	"fmt"
	"math"

	"github.com/headgate/headgate/bench/internal/locks"
	"github.com/headgate/headgate/bench/internal/report"
)

// figure is a line of the table.
type figure struct {
	name string
	// before is its value on the page of 2026-11-24, the last one before this table was added. The
	// sizes of programs were measured beside that page.
	before float64
	now    float64
	best   float64
	peer   string
}

func (n *names) table(c *cells) report.Table {
	t := report.Table{
		Title: "Before and now",
		Note: "Decisions are those of a TokenBucket. Before is the page of 2026-11-24. Each figure stands in a table " +
			"below, which says how it was measured.",
		Columns: []string{"figure", "before", "now", "best peer", "peer"},
	}
	for _, f := range n.figures(c) {
		if math.IsNaN(f.now) {
			continue // not measured
		}
		best := ""
		if f.peer != "" {
			best = report.Number(f.best)
		}
		t.Add(f.name, report.Number(f.before), report.Number(f.now), best, f.peer)
	}
	return t
}

func (n *names) figures(c *cells) []figure {
	// of is a figure that peers have too.
	of := func(name string, before float64, in column, line string, better func(a, b float64) bool) figure {
		best, peer := c.best(in, better)
		return figure{name: name, before: before, now: c.line(in, line), best: best, peer: peer}
	}
	handlers := func(name string, before float64, in column) figure {
		best, peer := c.best(in, least, "net/http")
		return figure{name: name, before: before, now: c.line(in, "net/http", handler), best: best, peer: peer}
	}
	size := func(name string, before float64, line, peerLine, peer string) figure {
		return figure{
			name: name, before: before, now: c.line(n.size, line), best: c.line(n.size, peerLine), peer: peer,
		}
	}
	busy, crowd := n.busy+" callers", n.crowd+" callers"
	return []figure{
		size("a stripped program with a Gate on Redis, above one with go-redis, KB", 2400,
			"net/http, go-redis and Headgate on Redis", "net/http, go-redis and redis_rate", "redis_rate v10"),
		size("a stripped program with a Gate in memory, above one with net/http, KB", 3500,
			"net/http and Headgate in memory", "net/http and httprate", "httprate"),
		of("a lone decision, p50 over that of a PING", 1.36, n.lone, bucket, least),
		of("decisions on "+n.keys+" keys, x the PING rate, "+busy, 1.94, n.spread, bucket, most),
		of("the same, "+crowd, 2.59, n.spreadMany, bucket, most),
		of("processor time of redis-server for each of them, µs", 8.15, n.spreadCPU, bucket, least),
		of("decisions on one key, x the PING rate, "+busy, 4.99, n.hot, bucket, most),
		of("the same, "+crowd, 8.47, n.hotMany, bucket, most),
		of(fmt.Sprintf("a lock that %d clients want, hand-off p99, µs", locks.Clients), 1298, n.handOff99, queued, least),
		{
			name: "a decision in memory, one key, one caller, ns", before: 314, now: c.line(n.inMemory, inProcess, "1"),
			best: c.line(n.inMemory, limiters, "1"), peer: limiters,
		},
		handlers("middleware of net/http above bare, ns", 2657, n.above),
		handlers("the same, bytes", 1889, n.aboveBytes),
		{
			name: "a decision in memory with a plan, over one without", before: 2.13,
			now: c.line(n.withPlan, "1 policy, in memory", "1"),
		},
		{
			name: "the first byte through a Meter, p50 beyond a PING, µs", before: 359,
			now: c.line(n.meter, "1", metered),
		},
	}
}
