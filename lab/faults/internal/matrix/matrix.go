// Package matrix breaks Redis in every way that docs/failure.md speaks of, on every topology, and
// holds what happens against what that page promises.
package matrix

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate/lab/faults/internal/lab"
)

// Config says what of the matrix to run.
type Config struct {
	Only     string // only faults whose names contain it
	Smoke    bool   // a few faults on one server, in seconds
	Parallel int    // cells that run at once
	Progress io.Writer
}

var smoke = []string{"SIGSTOP", "FLUSHALL", "reset after the request was sent"}

// Run runs the cells, and writes the table. Its error is what breaks a promise.
func Run(ctx context.Context, cfg Config, out io.Writer) error {
	lasts := 1200 * time.Millisecond
	type cell struct {
		fault    fault
		topology lab.Topology
	}
	var cells []cell
	for _, f := range faults {
		topologies := f.on
		if cfg.Smoke {
			topologies, lasts = alone, 300*time.Millisecond
		}
		for _, t := range topologies {
			if f.config.Clock && !lab.HasCompiler() {
				fmt.Fprintf(cfg.Progress, "%s: skipped, because there is no C compiler\n", f.name)
				continue
			}
			if f.chosen(cfg) {
				cells = append(cells, cell{f, t})
			}
		}
	}
	if len(cells) == 0 {
		return fmt.Errorf("no fault is named like %q", cfg.Only)
	}

	outcomes := make([]outcome, len(cells))
	places := make(chan struct{}, max(1, cfg.Parallel))
	var wg sync.WaitGroup
	began := time.Now()
	for i, c := range cells {
		places <- struct{}{}
		if ctx.Err() != nil {
			break
		}
		wg.Go(func() {
			outcomes[i] = c.fault.run(ctx, c.topology, lasts)
			word := "ok"
			if err := outcomes[i].err(); err != nil {
				word = "FAILED"
			}
			fmt.Fprintf(cfg.Progress, "%4v %s, %v: %s\n",
				time.Since(began).Round(time.Second), c.fault.name, c.topology, word)
			<-places
		})
	}
	wg.Wait()
	if err := ctx.Err(); err != nil {
		return err
	}
	write(out, outcomes)
	var broken []error
	for i := range outcomes {
		broken = append(broken, outcomes[i].err())
	}
	return errors.Join(broken...)
}

func (f fault) chosen(cfg Config) bool {
	if cfg.Only != "" {
		return strings.Contains(f.name, cfg.Only)
	}
	if !cfg.Smoke {
		return true
	}
	for _, name := range smoke {
		if f.name == name {
			return true
		}
	}
	return false
}
