// Command bench compares Headgate with other limiters, locks and middleware, on a Redis that it starts itself.
//
//	go -C lab/bench run .             everything, in about ten minutes, to standard output
//	go -C lab/bench run . -o ../../docs/reference the same, into benchmarks.md and benchmarks.svg there
//	go -C lab/bench run . -only locks,memory
//	go -C lab/bench run . -before DIR beside each part, that of an older revision in this checkout
//	go -C lab/bench run . -before DIR -turns 5 -rounds 2 both by turns, for a machine whose speed changes
//	go -C lab/bench run . -smoke      everything once, in seconds: that it runs, and not how fast
//
// It needs redis-server, version 7 or newer, in PATH, and counts instructions if valgrind is there
// too. It fails where this project decided wrongly, and never by its speed.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/zeromicro/go-zero/core/logx"

	"github.com/headgate/headgate/lab/bench/internal/lone"
	"github.com/headgate/headgate/lab/bench/internal/measure"
	"github.com/headgate/headgate/lab/bench/internal/report"
	"github.com/headgate/headgate/lab/bench/internal/summary"
)

var (
	full = measure.Plan{
		Rounds: 11, Slice: 40 * time.Millisecond, Workers: [4]int{1, 16, 64, 256}, Keys: [4]int{1, 1000, 100_000, 1_000_000},
		Calls: 2000, Fleet: 16,
	}
	smoke = measure.Plan{
		Rounds: 1, Slice: 4 * time.Millisecond, Workers: [4]int{1, 2, 4, 8}, Keys: [4]int{1, 10, 100, 200},
		Calls: 50, Fleet: 2,
	}
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out, progress io.Writer) error {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	quick := flags.Bool("smoke", false, "run everything once, in seconds: that it runs, and not how fast")
	folder := flags.String("o", "", "write benchmarks.md and benchmarks.svg into this `folder` instead of standard output")
	only := flags.String("only", "", "measure these `parts` only, with commas between: "+strings.Join(names(), ", "))
	checkout := flags.String("before", "", "measure each part at the older revision in this `checkout` too, just before it")
	rounds := flags.Int("rounds", 0, "measure everything this often in a turn, and not 11 times")
	count := flags.Int("turns", 1, "measure each part this often, after all others and in another process, "+
		"and write medians")
	caller := flags.String("caller", "", "be a process of a fleet, the only caller of this `contender`")
	addr := flags.String("redis", "", "the `address` of its Redis")
	calls := flags.Int("calls", 0, "make this `many` calls as such a process")
	file := flags.String("outcome", "", "measure one part in this process, and write the outcome into this `file` "+
		"for the process that prints the page")
	if err := flags.Parse(args); err != nil {
		return fmt.Errorf("read the command line: %w", err)
	}
	chosen := names()
	if *only != "" {
		chosen = strings.Split(*only, ",")
	}
	for _, name := range chosen {
		if !slices.Contains(names(), name) {
			return fmt.Errorf("-only: there is no part %q, but %s", name, strings.Join(names(), ", "))
		}
	}
	plan := full
	if *quick {
		plan = smoke
	}
	if *count < 1 {
		return errors.New("-turns: there must be one")
	}
	if *rounds > 0 {
		plan.Rounds = *rounds
	}
	// Contenders log what the tables tell.
	redis.SetLogger(silent{})
	logx.Disable()
	if *caller != "" {
		return lone.Caller(ctx, *addr, *caller, *calls)
	}
	if *file != "" {
		if len(chosen) != 1 {
			return errors.New("-outcome: one part is needed by -only")
		}
		i := slices.IndexFunc(parts, func(p part) bool { return p.name == chosen[0] })
		return measureHere(ctx, parts[i], plan, *file)
	}

	var older *before
	if *checkout != "" {
		dir, err := os.MkdirTemp("", "bench")
		if err != nil {
			return fmt.Errorf("make a folder: %w", err)
		}
		defer func() { _ = os.RemoveAll(dir) }()
		if older, err = newBefore(ctx, *checkout, dir); err != nil {
			return err
		}
		older.smoke = *quick
	}
	// First, because it tells the load before the run.
	var rest bytes.Buffer
	if err := report.Method(&rest, plan, *count); err != nil {
		return err
	}
	t := turns{older: older, rounds: plan.Rounds, smoke: *quick, progress: progress}
	for _, p := range parts {
		if slices.Contains(chosen, p.name) {
			t.parts = append(t.parts, p)
		}
	}
	if err := t.measure(ctx, *count); err != nil {
		return err
	}
	var past summary.Before
	if older != nil {
		past.Revision = older.revision
	}
	r := results{page: &rest, picture: *folder != ""}
	for _, p := range t.parts {
		tables, panels, before, err := t.middle(p)
		if err == nil {
			err = r.add(p.title, tables, panels)
		}
		if err != nil {
			return err
		}
		past.Tables = append(past.Tables, before...)
	}
	var drawn bytes.Buffer
	// Without a folder too, so that a smoke run tries it.
	if len(r.panels) > 0 {
		if err := report.Plot(&drawn, r.panels); err != nil {
			return err
		}
	}
	var page bytes.Buffer
	page.WriteString("# Benchmarks\n\n")
	if *quick {
		page.WriteString("**A smoke run: it shows that everything runs. Its numbers mean nothing.**\n\n")
	}
	if err := summary.Write(&page, plan, r.tables, past); err != nil {
		return err
	}
	page.Write(rest.Bytes())
	if *folder == "" {
		if _, err := out.Write(page.Bytes()); err != nil {
			return fmt.Errorf("write the results: %w", err)
		}
	} else if err := write(*folder, page.String(), drawn.Bytes()); err != nil {
		return err
	}
	return errors.Join(t.wrong...)
}

// results is what was measured.
type results struct {
	page    io.Writer // of the tables
	picture bool      // whether the page shows the plot
	tables  []report.Table
	panels  []report.Panel
}

// add writes what a part measured.
func (r *results) add(title string, tables []report.Table, panels []report.Panel) error {
	if _, err := fmt.Fprintf(r.page, "## %s\n\n", title); err != nil {
		return fmt.Errorf("write the title: %w", err)
	}
	if panels != nil && r.picture {
		fmt.Fprintf(r.page, "![Throughput by the number of callers](%s)\n\n", picture)
	}
	for _, t := range tables {
		if err := t.Write(r.page); err != nil {
			return err
		}
	}
	r.tables = append(r.tables, tables...)
	r.panels = append(r.panels, panels...)
	return nil
}

const picture = "benchmarks.svg"

func write(folder, page string, drawn []byte) error {
	files := map[string][]byte{"benchmarks.md": []byte(page)}
	if len(drawn) > 0 {
		files[picture] = drawn
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(folder, name), content, 0o644); err != nil {
			return fmt.Errorf("write the results: %w", err)
		}
	}
	return nil
}

type silent struct{}

// Printf implements the logger of go-redis.
func (silent) Printf(context.Context, string, ...any) {}
