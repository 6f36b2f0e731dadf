// Package lone measures callers that share nothing: what a lone operation makes redis-server execute, and what the
// decisions of many small processes cost it.
package lone

import (
	"context"
	"fmt"

	"github.com/headgate/headgate/lab/bench/internal/measure"
	"github.com/headgate/headgate/lab/bench/internal/report"
)

// Run counts instructions, and measures a fleet of processes.
func Run(ctx context.Context, plan measure.Plan) ([]report.Table, error) {
	tables, err := instructions(ctx, plan)
	if err != nil {
		return nil, err
	}
	fleet, err := fleet(ctx, plan)
	if err != nil {
		return nil, err
	}
	return append(tables, fleet), nil
}

// drive makes calls by one caller on the keys in turn.
func drive(ctx context.Context, c measure.Contender, calls, keys int) error {
	for i := range calls {
		right, err := c.Do(ctx, 0, i%keys)
		if err != nil {
			return fmt.Errorf("call %s: %w", c.Name, err)
		}
		if !right && c.Kind == measure.Ours {
			return fmt.Errorf("%s: a decision is wrong", c.Name)
		}
	}
	return nil
}
