package summary

import (
	"fmt"
	"math"
	"slices"

	"github.com/headgate/headgate/lab/bench/internal/locks"
	"github.com/headgate/headgate/lab/bench/internal/report"
)

// figure is a line of the table.
type figure struct {
	name  string
	now   float64
	floor float64 // 0 if there is none
	best  float64
	peer  string
}

// What trivial code gets.
const (
	floorAlone  = "floor: EVALSHA of a GET and a SET PX"
	floorShared = "floor: one EVALSHA for all who wait, a GET and a SET PX each"
	floorStated = "floor: two fields and a value of the context"
	floorChat   = "floor: ReverseProxy between two EVALSHA"
	floorSent   = "floor: the EVALSHA of a TokenBucket" // by go-redis alone
)

// Before is what the benchmarks of an older revision measured. The zero value is nothing.
type Before struct {
	Revision string
	Tables   []report.Table
}

func (n *names) table(c *cells, before Before) report.Table {
	t := report.Table{
		Title: "In short",
		Note: "Decisions are those of a TokenBucket. The floor is what one EVALSHA gets that reads and writes a key, for " +
			"many callers one for all who wait, what a handler takes that sets two fields and a value of the " +
			"context, and what a proxy takes with an EVALSHA before and one after a response: no limiter. " +
			"Each figure stands in a table below, which says how it was measured.",
		Columns: []string{"figure", "now", "floor", "best peer", "peer"},
	}
	// An older revision may lack a table.
	past := n.figures(&cells{tables: before.Tables})
	if before.Revision != "" {
		t.Title = "Before and now"
		t.Note += " Before is revision " + before.Revision + ", each part of which was measured just before the part of this one."
		t.Columns = slices.Insert(t.Columns, 1, "before")
	}
	for i, f := range n.figures(c) {
		if math.IsNaN(f.now) {
			continue // not measured
		}
		best, floor := "", ""
		if f.peer != "" {
			best = report.Number(f.best)
		}
		if f.floor != 0 {
			floor = report.Number(f.floor)
		}
		row := []string{f.name, report.Number(f.now), floor, best, f.peer}
		if before.Revision != "" {
			row = slices.Insert(row, 1, report.Number(past[i].now))
		}
		t.Add(row...)
	}
	return t
}

func (n *names) figures(c *cells) []figure {
	// of is a figure that peers have too.
	of := func(name string, in column, line string, better func(a, b float64) bool) figure {
		best, peer := c.best(in, better)
		return figure{name: name, now: c.line(in, line), best: best, peer: peer}
	}
	above := func(floor, name string, in column, better func(a, b float64) bool) figure {
		f := of(name, in, bucket, better)
		f.floor = c.line(in, floor)
		return f
	}
	handlers := func(name string, in column) figure {
		best, peer := c.best(in, least, "net/http")
		return figure{
			name: name, now: c.line(in, "net/http", handler), floor: c.line(in, "net/http", floorStated),
			best: best, peer: peer,
		}
	}
	size := func(name string, line, peerLine, peer string) figure {
		return figure{
			name: name, now: c.line(n.size, line), best: c.line(n.size, peerLine), peer: peer,
		}
	}
	busy, crowd := n.busy+" callers", n.crowd+" callers"
	return []figure{
		size("a stripped program with a Gate on Redis, above one with go-redis, KB",
			onRedis, "net/http, go-redis and redis_rate", "redis_rate v10"),
		size("a stripped program with a Gate in memory, above one with net/http, KB",
			"net/http and Headgate in memory", "net/http and httprate", "httprate"),
		above(floorAlone, "a lone decision, p50 over that of a PING", n.lone, least),
		above(floorAlone, "instructions of redis-server for it, over those of an EVALSHA of a GET and a SET", n.alone, least),
		of("the same for a FixedWindow", n.alone, window, least),
		of("the same for a lock that nobody else wants, and its release", n.aloneLock, queued, least),
		above(floorAlone, "processor time of redis-server for a decision of a fleet of small processes, µs", n.fleet, least),
		of("the same for a FixedWindow", n.fleet, window, least),
		above(floorShared, "decisions on "+n.keys+" keys, x the PING rate, "+busy, n.spread, most),
		above(floorShared, "the same, "+crowd, n.spreadMany, most),
		above(floorShared, "processor time of redis-server for each of them, µs", n.spreadCPU, least),
		above(floorShared, "decisions on one key, x the PING rate, "+busy, n.hot, most),
		above(floorShared, "the same, "+crowd, n.hotMany, most),
		of(fmt.Sprintf("a lock that %d clients want, hand-off p99, µs", locks.Clients), n.handOff99, queued, least),
		{
			name: "a decision in memory, one key, one caller, ns", now: c.line(n.inMemory, inProcess, "1"),
			best: c.line(n.inMemory, limiters, "1"), peer: limiters,
		},
		handlers("middleware of net/http above bare, ns", n.above),
		handlers("the same, bytes", n.aboveBytes),
		{
			name: "a decision in memory with a plan, over one without",
			now:  c.line(n.withPlan, "1 policy, in memory", "1"),
		},
		{
			name: "the first byte through a Meter, p50 beyond a PING, µs",
			now:  c.line(n.meter, "1", metered), floor: c.line(n.meter, "1", floorChat),
		},
	}
}
