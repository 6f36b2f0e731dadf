package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/cmd/headgate/internal/accesslog"
	"github.com/headgate/headgate/cmd/headgate/internal/replay"
)

// simulation is the flags of simulate.
type simulation struct {
	*app
	plan, name   string
	keys         []string
	prefixes     map[string]string // of paths, by the names of limits
	maxKeys, top int
}

func newSimulate(a *app) *cobra.Command {
	s := simulation{app: a}
	cmd := &cobra.Command{
		Use:   "simulate LOG... --plan FILE",
		Short: "Replay access logs against a plan: who would have been refused, and when",
		Long: `Simulate reads access logs and decides each request under all limits of a plan,
by the same code as a server, on a clock that follows the log. It needs no
Redis.

A log is in the Common or Combined Log Format of Apache and nginx, in Traefik's
extension of it, or in lines of JSON of Caddy, Traefik or nginx. It may be
compressed by gzip. Several logs are read one after the other; - is the standard
input.

The clock never goes back: a request that is logged behind a later one is
decided at the time of that one. A line that is no request is counted and
skipped. Every request costs 1. Caps, and limits for one model, are left out.`,
		Example: `  headgate simulate access.log --plan plans.yaml
  headgate simulate access.log.gz --plan plans.yaml --name pro \
    --key ip --key tenant=user --path login=/login`,
		Args: cobra.MinimumNArgs(1),
		RunE: a.action(s.run),
	}
	f := cmd.Flags()
	f.StringVar(&s.plan, "plan", "", "file of plans, see docs/plans.md (required)")
	f.StringVar(&s.name, "name", "", "name of the plan in the file (its default)")
	f.StringArrayVar(
		&s.keys,
		"key",
		nil,
		"[LIMIT=]PART,...: the key that limits count on: ip, user, host, method,\n"+
			"path or all; outermost part first (ip)",
	)
	f.StringToStringVar(
		&s.prefixes, "path", nil, "LIMIT=PREFIX: the limit is for paths with this beginning alone",
	)
	f.IntVar(
		&s.maxKeys, "max-keys", 250_000,
		"most keys in memory; beyond it those with the least spent are forgotten",
	)
	f.IntVar(&s.top, "top", 10, "how many keys to show")
	_ = cmd.MarkFlagRequired("plan")
	return cmd
}

// config returns the configuration of the replay.
func (s *simulation) config() (cfg replay.Config, name string, err error) {
	if s.top < 0 {
		return cfg, name, usagef("--top %d: it must not be negative", s.top)
	}
	if _, nameless := s.prefixes[""]; nameless {
		return cfg, name, usagef("--path =%s: it must be LIMIT=PREFIX", s.prefixes[""])
	}
	set, name, err := readPlan(s.plan, s.name)
	if err != nil {
		return cfg, name, err
	}
	cfg.Plan, _ = set.Plan(name)
	cfg.MaxKeys = s.maxKeys
	cfg.Keys, cfg.Prefixes = make(map[string]string), s.prefixes
	for _, text := range s.keys {
		limit, key, ok := strings.Cut(text, "=")
		if !ok {
			limit, key = "", text
		}
		cfg.Keys[limit] = key
	}
	return cfg, name, nil
}

func (s *simulation) run(ctx context.Context, logs []string) error {
	cfg, name, err := s.config()
	if err != nil {
		return err
	}
	r, err := replay.New(cfg)
	if err != nil {
		return usagef("%w", err)
	}
	defer func() { _ = r.Close(context.WithoutCancel(ctx)) }()
	read, err := s.read(ctx, r, logs)
	if err != nil {
		return err
	}
	read.Plan = name
	more := max(0, len(read.Keys)-s.top)
	read.Keys = read.Keys[:len(read.Keys)-more]
	return s.answer(read, exitOK, func() { s.print(read, more) })
}

// outcome is what a simulation has found out.
type outcome struct {
	Plan   string `json:"plan"`
	Lines  int64  `json:"lines"`
	Faulty int64  `json:"faulty_lines"`
	*replay.Report
	faults accesslog.Faults // of the first log that has some
	where  string           // that log
}

// read replays the logs.
func (s *simulation) read(ctx context.Context, r *replay.Replay, logs []string) (*outcome, error) {
	o := new(outcome)
	for _, log := range logs {
		lines, faults, err := s.readOne(ctx, log, func(one *accesslog.Request) error { return r.Decide(ctx, one) })
		o.Lines += lines
		if o.Faulty == 0 {
			o.faults, o.where = faults, log
		}
		o.Faulty += faults.Lines
		if err != nil {
			return nil, err
		}
	}
	o.Report = r.Report()
	if o.Requests > 0 {
		return o, nil
	}
	text := "no line of " + strings.Join(logs, ", ") + " is a request of a known format"
	if o.Faulty > 0 {
		text = fmt.Sprintf("%s; line %d of %s is:\n%s", text, o.faults.First, o.where, o.faults.Text)
	}
	return nil, usagef("%s", text)
}

func (s *simulation) readOne(
	ctx context.Context, log string, decide func(*accesslog.Request) error,
) (lines int64, faults accesslog.Faults, err error) {
	in := s.in
	if log != "-" {
		f, err := os.Open(log)
		if err != nil {
			return 0, faults, usagef("%w", err)
		}
		defer func() { _ = f.Close() }()
		in = f
	}
	lines, faults, err = accesslog.Read(ctx, in, decide)
	if err != nil && ctx.Err() == nil {
		err = usagef("%s: %w", log, err)
	}
	return lines, faults, err
}
