package locks

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headgate/headgate/lab/bench/internal/measure"
	"github.com/headgate/headgate/lab/bench/internal/report"
	"github.com/headgate/headgate/lab/bench/internal/server"
)

// Run measures locks that nobody else wants, and one that all want. The error also tells where two
// had this project's lock at once; the tables are there then all the same.
func Run(ctx context.Context, plan measure.Plan, s *server.Server) ([]report.Table, error) {
	client := s.Client()
	defer func() { _ = client.Close() }()
	ping := func(ctx context.Context, _, _ int) (bool, error) {
		err := client.Ping(ctx).Err()
		return err == nil, err
	}
	all := make([]contests, len(lines(0)))
	locks := make([][]acquire, len(all))
	for i, e := range lines(0) {
		all[i].Contender = measure.Contender{Name: e.name, Kind: e.kind}
		for range Clients {
			lock, end, err := e.make(s)
			if err != nil {
				return nil, fmt.Errorf("make %s: %w", e.name, err)
			}
			defer end()
			locks[i] = append(locks[i], lock)
		}
	}
	driver := &measure.Driver{Meter: s.Usage}
	contenders := make([]measure.Contender, len(all))
	for i, c := range all {
		take := pair(locks[i][0])
		contenders[i] = c.Contender
		contenders[i].Do = func(ctx context.Context, worker, _ int) (bool, error) {
			return take(ctx, 0, worker)
		}
	}
	free, err := uncontended(ctx, plan, driver, ping, contenders)
	if err != nil {
		return nil, err
	}
	for i := range all {
		if _, err := contend(ctx, s, locks[i], plan.Slice); err != nil {
			return nil, fmt.Errorf("warm %s: %w", all[i].Name, err)
		}
	}
	for round := range plan.Rounds {
		for i := range all {
			at := (round*4 + i) % len(all)
			sample, err := driver.Slice(ctx, measure.Load{Workers: 1, Keys: 1, Slice: plan.Slice / 2}, ping)
			if err != nil {
				return nil, err
			}
			c, err := contend(ctx, s, locks[at], 15*plan.Slice)
			if err != nil {
				return nil, fmt.Errorf("measure %s: %w", all[at].Name, err)
			}
			all[at].slices, all[at].pings = append(all[at].slices, c), append(all[at].pings, sample)
		}
	}
	contended, err := contendedTable(all)
	return []report.Table{free, contended}, err
}

// uncontended is pairs of an acquisition and a release, each caller with a lock of his own, all of one client.
func uncontended(
	ctx context.Context, plan measure.Plan, driver *measure.Driver, ping measure.Do, contenders []measure.Contender,
) (report.Table, error) {
	many := plan.Workers[1:]
	t := report.Table{
		Title: "Locks that nobody else wants",
		Note: "Pairs of an acquisition and a release, in microseconds, over one PING. The rate " +
			"is that of pairs over that of PINGs. " +
			"CPU is that of redis-server, in microseconds per pair of a lone caller.",
		Columns: []string{"", "p50", "p50 / PING", "p99", "allocs", "CPU", "reads"},
	}
	for _, callers := range many {
		t.Columns = append(t.Columns, fmt.Sprintf("x PING rate @%d", callers))
	}
	t.Columns = append(t.Columns, "faults")
	alone, err := driver.Rounds(ctx, plan.Rounds, measure.Load{Workers: 1, Keys: 1, Slice: plan.Slice}, ping, contenders)
	if err != nil {
		return t, err
	}
	busy := make([][]measure.Result, len(many))
	for i, callers := range many {
		load := measure.Load{Workers: callers, Keys: 1, Slice: plan.Slice}
		if busy[i], err = driver.Rounds(ctx, plan.Rounds, load, ping, contenders); err != nil {
			return t, err
		}
	}
	for i, c := range alone {
		row := []string{
			c.Label(), report.Number(c.Own(measure.P50)), report.Number(c.ToPing(measure.P50)),
			report.Number(c.Own(measure.P99)), report.Number(c.Own(measure.Mallocs)), report.Number(c.Own(measure.CPU)),
			report.Number(c.Own(measure.Reads)),
		}
		for _, of := range busy {
			row = append(row, report.Number(of[i].ToPing(measure.Rate)))
		}
		t.Add(append(row, report.Percent(busy[0][i].Own(measure.Faults)))...)
	}
	return t, nil
}

func contendedTable(all []contests) (report.Table, error) {
	t := report.Table{
		Title: fmt.Sprintf("One lock that %d clients want", Clients),
		Note: fmt.Sprintf("Each client holds it for %v, waits for %v and wants it again; a "+
			"machine's timers make both longer. A "+
			"hand-off is from the call of a release until another client's acquisition has "+
			"returned, in microseconds. Reads are "+
			"those of the server per acquisition. Most / least compares how often each client got the lock, and self again is "+
			"how often it went to who had just had it. Failed are errors, and waits that had not "+
			"ended %v after the slice.", hold,
			think, grace),
		Columns: []string{
			"", "acquired/s", "hand-off p50", "/ PING p50", "hand-off p99",
			"reads", "CPU", "most / least", "self again", "failed",
		},
	}
	micros := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 }
	var errs []error
	for i := range all {
		c := &all[i]
		failed, err := c.faults()
		if errs = append(errs, err); err == nil && c.Kind == measure.Ours && c.median((*contest).acquired) == 0 {
			errs = append(errs, fmt.Errorf("%s: nobody got the lock", c.Name))
		}
		round := 0
		t.Add(c.Label(),
			report.Count(c.median(func(s *contest) float64 { return s.acquired() / s.elapsed.Seconds() })),
			report.Number(c.median(func(s *contest) float64 { return micros(measure.Quantile(s.handoffs, 0.5)) })),
			report.Number(c.median(func(s *contest) float64 {
				round++
				return float64(measure.Quantile(s.handoffs, 0.5)) / float64(c.pings[round-1].P50)
			})),
			report.Number(c.median(func(s *contest) float64 { return micros(measure.Quantile(s.handoffs, 0.99)) })),
			report.Number(c.median(func(s *contest) float64 { return float64(s.usage.Reads) / s.acquired() })),
			report.Number(c.median(func(s *contest) float64 { return micros(s.usage.CPU) / s.acquired() })),
			report.Number(c.fairness()),
			report.Percent(c.median(func(s *contest) float64 { return float64(s.again) / s.acquired() })),
			report.Count(float64(failed)))
	}
	return t, errors.Join(errs...)
}
