// Package soak runs everything of Headgate in one program, over links that break, and looks for what
// is left when it ends.
package soak

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/headgate/headgate/lab/faults/internal/lab"
)

// Config says how long to run.
type Config struct {
	Lasts time.Duration
	Every time.Duration // from one fault to the next
	Log   io.Writer
}

// Run runs the soak. Its error is everything that was wrong.
func Run(ctx context.Context, cfg Config) error {
	goroutines := countGoroutines()
	server, err := lab.Start(lab.Config{})
	if err != nil {
		return err
	}
	defer server.Close()
	answers := &answers{counts: make(map[string]int), wrong: make(map[string]error)}
	var programs []*program
	for id := range 2 {
		p, err := newProgram(id, server, answers)
		if err != nil {
			return fmt.Errorf("start: %w", err)
		}
		programs = append(programs, p)
	}

	busy, end := context.WithTimeout(ctx, cfg.Lasts)
	defer end()
	var wg sync.WaitGroup
	for _, p := range programs {
		p.work(busy, &wg)
	}
	var heap heap
	wg.Go(func() { heap.watch(busy, cfg.Lasts) })
	err = breakInTurn(busy, cfg, server, programs)
	wg.Wait()
	if err := errors.Join(err, ctx.Err()); err != nil {
		return err
	}

	errs := []error{answers.err()}
	for _, p := range programs {
		errs = append(errs, p.close())
	}
	errs = append(errs, heap.err(), left(server), goroutines.err())
	answers.write(cfg.Log)
	heap.write(cfg.Log)
	return errors.Join(errs...)
}
