package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/cmd/headgate/internal/accesslog"
	"github.com/headgate/headgate/cmd/headgate/internal/replay"
	"github.com/headgate/headgate/internal/inspect"
)

// simulation is the flags of simulate.
type simulation struct {
	*app
	plan, name     string
	keys, prefixes []string
	maxKeys, top   int
	refusals       string
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
    --key ip --key tenant=user --path login=/login --refusals refusals.json`,
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
	f.StringArrayVar(
		&s.prefixes, "path", nil, "LIMIT=PREFIX: the limit is for paths with this beginning alone",
	)
	f.IntVar(
		&s.maxKeys, "max-keys", 250_000,
		"most keys in memory; beyond it those with the least spent are forgotten",
	)
	f.IntVar(&s.top, "top", 10, "how many keys to show")
	f.StringVar(&s.refusals, "refusals", "", "file for each refusal as a line of JSON")
	_ = cmd.MarkFlagRequired("plan")
	return cmd
}

// config returns the configuration of the replay.
func (s *simulation) config() (cfg replay.Config, name string, err error) {
	if s.top < 0 {
		return cfg, name, usagef("--top %d: it must not be negative", s.top)
	}
	set, name, err := readPlan(s.plan, s.name)
	if err != nil {
		return cfg, name, err
	}
	cfg.Plan, _ = set.Plan(name)
	cfg.MaxKeys = s.maxKeys
	cfg.Keys, cfg.Prefixes = make(map[string]string), make(map[string]string)
	for _, text := range s.keys {
		limit, key, ok := strings.Cut(text, "=")
		if !ok {
			limit, key = "", text
		}
		cfg.Keys[limit] = key
	}
	for _, text := range s.prefixes {
		limit, prefix, ok := strings.Cut(text, "=")
		if !ok || limit == "" {
			return cfg, name, usagef("--path %s: it must be LIMIT=PREFIX", text)
		}
		cfg.Prefixes[limit] = prefix
	}
	return cfg, name, nil
}

func (s *simulation) run(ctx context.Context, logs []string) (err error) {
	cfg, name, err := s.config()
	if err != nil {
		return err
	}
	if s.refusals != "" {
		f, fault := createPrivate(s.refusals)
		if fault != nil {
			return usagef("--refusals: %w", fault)
		}
		out := bufio.NewWriter(f)
		defer func() {
			if fault := errors.Join(out.Flush(), f.Close()); err == nil && fault != nil {
				err = usagef("--refusals: %w", fault)
			}
		}()
		cfg.Refused = func(one replay.Refusal) error { return writeRefusal(out, &one) }
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
	return s.show(read)
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
		lines, faults, err := s.readOne(ctx, log, func(e *accesslog.Entry) error { return r.Decide(ctx, e) })
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
	switch {
	case o.Lines == 0:
		return nil, usagef("%s has no lines", strings.Join(logs, ", "))
	case o.Requests == 0 && o.Faulty == 0:
		return nil, usagef("%s has no requests: all lines are empty", strings.Join(logs, ", "))
	case o.Requests == 0:
		return nil, usagef("no line of %s is a request of a known format; line %d of %s is:\n%s",
			strings.Join(logs, ", "), o.faults.First, o.where, o.faults.Text)
	}
	return o, nil
}

func (s *simulation) readOne(
	ctx context.Context, log string, decide func(*accesslog.Entry) error,
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

// createPrivate creates or truncates a file that only its owner reads: it names addresses and users.
func createPrivate(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && info.Mode().IsRegular() {
		err = f.Chmod(0o600) // it may have been there before
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// refusalJSON is a line of --refusals.
type refusalJSON struct {
	Time stamp        `json:"time"`
	Line int64        `json:"line"`
	By   []denialJSON `json:"denied_by"`
}

type denialJSON struct {
	Policy     string  `json:"policy"`
	Key        string  `json:"key"`
	RetryAfter seconds `json:"retry_after_seconds"`
}

func writeRefusal(w io.Writer, r *replay.Refusal) error {
	line := refusalJSON{Time: stamp(r.Time), Line: r.Line}
	for _, d := range r.By {
		line.By = append(line.By, denialJSON{d.Policy, inspect.FormatKey(d.Key), seconds(d.RetryAfter)})
	}
	text, err := json.Marshal(line)
	if err != nil {
		return err
	}
	_, err = w.Write(append(text, '\n'))
	return err
}
