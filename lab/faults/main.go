// Command faults breaks Redis under Headgate, and tells whether what docs/failure.md promises holds.
//
//	go -C lab/faults run .             the failure matrix, in some minutes, to standard output
//	go -C lab/faults run . -only BUSY  the rows whose names contain a text
//	go -C lab/faults run . -soak 10m   everything in one program, with a fault every 20 s
//	go -C lab/faults run . -starve     processes that are short of CPU, in two minutes
//	go -C lab/faults run . -smoke      a little of both, in seconds
//
// It needs redis-server, version 7 or newer, on PATH, and for steps of the clock a C compiler. It
// fails if a promise is broken.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/lab/faults/internal/matrix"
	"github.com/headgate/headgate/lab/faults/internal/soak"
	"github.com/headgate/headgate/lab/faults/internal/starve"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "faults:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out, progress io.Writer) error {
	flags := flag.NewFlagSet("faults", flag.ContinueOnError)
	only := flags.String("only", "", "run only faults whose names contain this `text`")
	parallel := flags.Int("parallel", 2, "run this `many` cells of the matrix at once")
	lasts := flags.Duration("soak", 0, "run the soak for this `time` instead of the matrix")
	smoke := flags.Bool("smoke", false, "run a little of everything, in seconds")
	starves := flags.Bool("starve", false, "run processes that are short of CPU instead of the matrix")
	computing := flags.Int("starved", 0, "be such a process, with this `many` goroutines that compute")
	addr := flags.String("redis", "", "the `address` of its Redis")
	well := flags.Duration("lasts", 20*time.Second, "how `long` its Redis is well")
	if err := flags.Parse(args); err != nil {
		return fmt.Errorf("read the command line: %w", err)
	}
	redis.SetLogger(silent{}) // it logs each connection that cannot be made
	switch {
	case *computing > 0:
		return starve.Process(ctx, *addr, *computing, *well, out)
	case *starves:
		return starve.Run(ctx, starve.Config{Lasts: *well, Progress: progress}, out)
	case *lasts > 0:
		return soak.Run(ctx, soak.Config{Lasts: *lasts, Every: 20 * time.Second, Log: progress})
	}
	err := matrix.Run(ctx, matrix.Config{
		Only: *only, Smoke: *smoke, Parallel: *parallel, Progress: progress,
	}, out)
	if err != nil || !*smoke {
		return err
	}
	err = starve.Run(ctx, starve.Config{Lasts: 3 * time.Second, Smoke: true, Progress: progress}, out)
	if err != nil {
		return err
	}
	return soak.Run(ctx, soak.Config{Lasts: 6 * time.Second, Every: time.Second, Log: progress})
}

type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}
