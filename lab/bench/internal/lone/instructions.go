package lone

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/lab/bench/internal/decisions"
	"github.com/headgate/headgate/lab/bench/internal/locks"
	"github.com/headgate/headgate/lab/bench/internal/measure"
	"github.com/headgate/headgate/lab/bench/internal/report"
	"github.com/headgate/headgate/lab/bench/internal/server"
)

const (
	// patience is how long a call to a server may take whose instructions are counted.
	patience = 10 * time.Second
	few      = 200 // keys
)

// The titles of the tables.
const (
	Decisions = "Instructions of redis-server for a lone decision"
	Locks     = "Instructions of redis-server for a lone lock, taken and released"
)

// instructions counts what lone decisions and lone pairs of a lock make a server execute.
func instructions(ctx context.Context, plan measure.Plan) ([]report.Table, error) {
	decided := report.Table{
		Title: Decisions,
		Note: fmt.Sprintf("By valgrind's callgrind, so a busy machine does not change them: the same twice within some 3 %%. "+
			"One caller decides on %d keys in turn that have been called before. The last column is over an EVALSHA of a "+
			"GET and a SET PX, the least that a limiter with a script does.", few),
		Columns: []string{"", "thousands", "/ EVALSHA"},
	}
	locked := report.Table{Title: Locks, Note: "As above.", Columns: decided.Columns}
	s, err := server.StartCounted(ctx)
	if errors.Is(err, server.ErrNoCounter) {
		decided.Note = "Not counted: " + err.Error() + "."
		return []report.Table{decided}, nil
	}
	if err != nil {
		return nil, err
	}
	defer s.Stop()
	client := s.Client(func(o *redis.Options) { o.ReadTimeout, o.DialTimeout = patience, patience })
	defer func() { _ = client.Close() }()
	limiters, end, err := decisions.Alone(client, few, patience)
	if err != nil {
		return nil, err
	}
	defer end()
	holders, endLocks, err := locks.Alone(s, patience)
	if err != nil {
		return nil, err
	}
	defer endLocks()
	counts, err := count(ctx, s, plan, append(limiters, holders...))
	if err != nil {
		return nil, err
	}
	var floor float64
	for i, c := range limiters {
		if c.Kind == measure.Floor {
			floor = counts[i]
		}
	}
	for i, n := range counts {
		t, c := &decided, measure.Contender{}
		if i < len(limiters) {
			c = limiters[i]
		} else {
			t, c = &locked, holders[i-len(limiters)]
		}
		t.Add(c.Label(), report.Number(n/1000), report.Number(n/floor))
	}
	return []report.Table{decided, locked}, nil
}

// count returns how many instructions a call of each contender takes.
func count(
	ctx context.Context, s *server.Server, plan measure.Plan, contenders []measure.Contender,
) (each []float64, err error) {
	keys := min(few, plan.Calls)
	for _, c := range contenders {
		// The first calls load scripts, and fill the keys.
		if err := drive(ctx, c, 2*keys, keys); err != nil {
			return nil, err
		}
		before, err := s.Instructions(ctx)
		if err != nil {
			return nil, err
		}
		if err := drive(ctx, c, plan.Calls, keys); err != nil {
			return nil, err
		}
		after, err := s.Instructions(ctx)
		if err != nil {
			return nil, err
		}
		each = append(each, float64(after-before)/float64(plan.Calls))
	}
	return each, nil
}
