package decisions

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/lab/bench/internal/measure"
	"github.com/headgate/headgate/lab/bench/internal/report"
)

// exact counts who is admitted where many ask at once for a limit that all of them together exceed.
func (r *runner) exact(ctx context.Context) (report.Table, error) {
	q := quota{limit: 1000, per: 24 * time.Hour}
	calls := 3 * int(q.limit)
	t := report.Table{
		Title: fmt.Sprintf("Exactness: %d calls by %d callers for a limit of %d", calls, r.plan.Busy(), q.limit),
		Note: "On one fresh key, with a limit for a day; once, for there is nothing to average. " +
			"go-zero's TokenLimit refills a " +
			"token a second at least.",
		Columns: []string{"", "admitted", "denied", "failed"},
	}
	contenders, err := r.bed.contenders(q, "e", 1, func(e *line) bool { return !e.allowedOnly })
	if err != nil {
		return t, err
	}
	for _, c := range contenders {
		var admitted, denied, failed atomic.Int64
		measure.Fill(ctx, r.plan.Busy(), calls, func(ctx context.Context, worker, _ int) (bool, error) {
			ok, err := c.Do(ctx, worker, 0)
			switch {
			case err != nil:
				failed.Add(1)
			case ok:
				admitted.Add(1)
			default:
				denied.Add(1)
			}
			return ok, err
		})
		if n := admitted.Load(); c.Kind == measure.Ours && (n > q.limit || n < q.limit && failed.Load() == 0) {
			r.wrong = append(r.wrong, fmt.Errorf("%s admitted %d of a limit of %d", c.Name, n, q.limit))
		}
		t.Add(c.Label(), report.Count(float64(admitted.Load())), report.Count(float64(denied.Load())),
			report.Count(float64(failed.Load())))
	}
	return t, ctx.Err()
}

// sizes asks what a key takes in Redis, after one call and after many.
func (r *runner) sizes(ctx context.Context) (report.Table, error) {
	const many = 100
	t := report.Table{
		Title: "Bytes in Redis for one key",
		Note: fmt.Sprintf("MEMORY USAGE of all that is kept for a key of 13 bytes, names and "+
			"overhead included, after 1 call and "+
			"after %d. The name is how it stands in Redis, where its policy, or its prefix, has "+
			"a name of one or two letters.", many),
		Columns: []string{"", "after 1", fmt.Sprintf("after %d", many), "keys", "name"},
	}
	contenders, err := r.bed.contenders(generous, "b", 1, nil)
	if err != nil {
		return t, err
	}
	for _, c := range contenders {
		if err := r.server.Clear(ctx); err != nil {
			return t, err
		}
		measure.Fill(ctx, 1, 1, c.Do)
		first, _, err := r.server.Memory(ctx, "*")
		if err != nil {
			return t, err
		}
		measure.Fill(ctx, 1, many-1, func(ctx context.Context, worker, _ int) (bool, error) { return c.Do(ctx, worker, 0) })
		last, names, err := r.server.Memory(ctx, "*")
		if err != nil {
			return t, err
		}
		t.Add(c.Label(), report.Count(float64(first)), report.Count(float64(last)), fmt.Sprint(len(names)),
			"`"+strings.Join(names[:min(len(names), 1)], "")+"`")
	}
	return t, r.server.Clear(ctx)
}
