package lone

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/headgate/headgate/lab/bench/internal/decisions"
	"github.com/headgate/headgate/lab/bench/internal/measure"
	"github.com/headgate/headgate/lab/bench/internal/report"
	"github.com/headgate/headgate/lab/bench/internal/server"
)

// FleetTitle is the title of the table of a fleet.
func FleetTitle(plan measure.Plan) string {
	return fmt.Sprintf("A fleet of %d processes with one caller each", plan.Fleet)
}

// fleet measures the decisions of many processes, which can share no round trip.
func fleet(ctx context.Context, plan measure.Plan) (report.Table, error) {
	rounds := min(3, plan.Rounds)
	t := report.Table{
		Title: FleetTitle(plan),
		Note: fmt.Sprintf("Each decides %s times, on %d keys in turn. CPU is that of redis-server, in microseconds for each "+
			"decision. Medians of %d rounds. Processes and server share the processors.",
			report.Count(float64(plan.Calls)), few, rounds),
		Columns: []string{"", "CPU", "decisions a second"},
	}
	s, err := server.Start(ctx)
	if err != nil {
		return t, err
	}
	defer s.Stop()
	client := s.Client()
	defer func() { _ = client.Close() }()
	contenders, end, err := decisions.Alone(client, few, 0)
	if err != nil {
		return t, err
	}
	defer end()
	costs, rates := make([][]float64, len(contenders)), make([][]float64, len(contenders))
	calls := float64(plan.Calls * plan.Fleet)
	for range rounds {
		for i, c := range contenders {
			took, used, err := launch(ctx, s, plan, c.Name)
			if err != nil {
				return t, err
			}
			costs[i] = append(costs[i], float64(used.Nanoseconds())/1000/calls)
			rates[i] = append(rates[i], calls/took.Seconds())
		}
	}
	for i, c := range contenders {
		t.Add(c.Label(), report.Number(measure.Quantile(costs[i], 0.5)), report.Count(measure.Quantile(rates[i], 0.5)))
	}
	return t, nil
}

// launch runs a fleet once, and returns how long it took and what it cost the server.
func launch(
	ctx context.Context, s *server.Server, plan measure.Plan, contender string,
) (took, used time.Duration, err error) {
	program, err := os.Executable()
	if err != nil {
		return 0, 0, fmt.Errorf("find this program: %w", err)
	}
	before, err := s.Usage(ctx)
	if err != nil {
		return 0, 0, err
	}
	began := time.Now()
	all, told := make([]*exec.Cmd, plan.Fleet), make([]bytes.Buffer, plan.Fleet)
	for i := range all {
		all[i] = exec.CommandContext(ctx, program, "-caller", contender, "-redis", s.Addr, "-calls", strconv.Itoa(plan.Calls))
		all[i].Stderr = &told[i]
		if err = all[i].Start(); err != nil {
			all = all[:i]
			break
		}
	}
	for i, cmd := range all {
		if e := cmd.Wait(); e != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w: %s", cmd, e, told[i].String()))
		}
	}
	if err != nil {
		return 0, 0, fmt.Errorf("run a fleet: %w", err)
	}
	took = time.Since(began)
	after, err := s.Usage(ctx)
	return took, after.CPU - before.CPU, err
}

// Caller is a process of a fleet.
func Caller(ctx context.Context, addr, contender string, calls int) error {
	client := redis.NewClient(&redis.Options{
		Addr: addr, ContextTimeoutEnabled: true, DialerRetries: 1,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	defer func() { _ = client.Close() }()
	contenders, end, err := decisions.Alone(client, few, patience)
	if err != nil {
		return err
	}
	defer end()
	for _, c := range contenders {
		if c.Name == contender {
			return drive(ctx, c, calls, few)
		}
	}
	return fmt.Errorf("no contender is %q", contender)
}
