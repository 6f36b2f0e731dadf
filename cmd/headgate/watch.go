package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/internal/stored"
)

// watching is the flags of watch.
type watching struct {
	*app
	every          time.Duration
	rounds, most   int
	policies, name string
}

func newWatch(a *app) *cobra.Command {
	w := watching{app: a}
	cmd := &cobra.Command{
		Use:   "watch [KEY]",
		Short: "Watch rates, exhausted and blocked keys, and slots, as Redis shows them",
		Long: `Watch reads the keys of the prefix, or those below KEY, again and again, and
draws what it finds until it is interrupted. Without a terminal it writes lines.

A denial writes nothing, so Redis does not know how many there are: watch counts
the keys that have no room, which are denied now. For buckets that needs the
limits of a plan (--policies).

It reads at most --keys keys each time, and writes nothing.`,
		Example: "  headgate watch --policies plans.yaml\n" +
			"  headgate watch acme --every 5s --json",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              action(w.run),
	}
	f := cmd.Flags()
	f.DurationVar(&w.every, "every", 2*time.Second, "how often to read")
	f.IntVar(&w.rounds, "rounds", 0, "end after that many readings (0: when interrupted)")
	f.IntVar(&w.most, "keys", 10_000, "how many keys to read at most")
	f.StringVar(
		&w.policies, "policies", "", "file of plans that names buckets and tells which keys have no room",
	)
	f.StringVar(&w.name, "name", "", "name of the plan in the file (its default)")
	_ = cmd.MarkFlagFilename("policies", "yaml", "yml", "json")
	return cmd
}

func (w *watching) run(ctx context.Context, args []string) error {
	if w.every < 10*time.Millisecond || w.most < 1 || w.rounds < 0 {
		return usagef("--every must be at least 10ms, --keys at least 1, and --rounds not negative")
	}
	path := ""
	if len(args) > 0 {
		key, err := parseKey(args[0])
		if err != nil {
			return err
		}
		path = key.String()
	}
	m := newMeter(path)
	if w.policies != "" {
		plan, _, err := readPlan(w.policies, w.name)
		if err != nil {
			return err
		}
		m.knows(plan.Limits)
	}
	l, err := w.open(ctx)
	if err != nil {
		return err
	}
	defer l.close()
	reader := &stored.Reader{Client: l.client, Prefix: l.prefix, Timeout: w.timeout}
	return w.loop(ctx, path, func(ctx context.Context) (*watchView, error) {
		return w.read(ctx, l, reader, path, m)
	})
}

// loop reads and shows until somebody has seen enough. An outage ends it only at the first reading.
func (w *watching) loop(
	ctx context.Context, path string, read func(context.Context) (*watchView, error),
) error {
	v, err := read(ctx)
	if err != nil {
		return err
	}
	show, done := w.shower(path)
	defer done()
	for round := 1; ; round++ {
		if err := show(v); err != nil || round == w.rounds {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(w.every):
		}
		v, err = read(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			v = &watchView{At: stamp(time.Now()), Error: words(err)}
		}
	}
}

// read reads once.
func (w *watching) read(
	ctx context.Context, l *link, reader *stored.Reader, path string, m *meter,
) (*watchView, error) {
	census, err := reader.Census(ctx, path, w.most)
	if err != nil {
		return nil, err
	}
	scripts, known := scriptCalls(ctx, l)
	return m.view(census, scripts, known), nil
}

// shower returns a func that shows what was read, and one that leaves the terminal as it was.
func (w *watching) shower(path string) (show func(*watchView) error, done func()) {
	switch {
	case w.json:
		return func(v *watchView) error { return writeLine(w.out, v) }, func() {}
	case !isTerminal(w.out):
		return func(v *watchView) error { return v.lines(w.out) }, func() {}
	}
	title := "all keys of " + w.prefix
	if path != "" {
		title = formatPath(path)
	}
	s := newScreen(w.out)
	return func(v *watchView) error {
		return s.draw(func(width, height int) []string {
			head := fmt.Sprintf("%s, every %s; Ctrl-C ends", title, period(w.every))
			return v.frame(head, width, height)
		})
	}, s.close
}
