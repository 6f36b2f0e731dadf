package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/core"
)

// pinged is the answer of ping.
type pinged struct {
	OK       bool      `json:"ok"` // no finding is an error
	Servers  []*server `json:"servers"`
	Findings []finding `json:"findings"`
}

func newPing(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "ping",
		Short: "Say what Redis is, and what is wrong with it",
		Long: `Ping says what the servers of Redis are, whether a Gate can decide on them, and
which of their settings make them forget limits. It writes keys below
PREFIX:{ping} that live for ten seconds at most.

The exit code is 1 if something keeps limits from working, such as a right of
the ACL that every decision needs.`,
		Args: cobra.NoArgs,
		RunE: a.online(a.ping),
	}
}

func (a *app) ping(ctx context.Context, _ []string) error {
	p := pinged{Findings: []finding{}}
	err := a.within(ctx, func(ctx context.Context) (err error) {
		p.Servers, err = servers(ctx, a.client)
		return err
	})
	if err != nil {
		return err
	}
	for _, s := range p.Servers {
		p.Findings = append(p.Findings, s.findings...)
	}
	p.OK = !slices.ContainsFunc(p.Findings, finding.isError)
	if err := a.gate.Ping(ctx); err != nil && p.OK {
		p.OK = false
		text := strings.TrimPrefix(err.Error(), core.ErrMisconfigured.Error()+": ")
		p.Findings = append(p.Findings, finding{Level: "error", Problem: text, Advice: adviceOn(err)})
	}
	code := exitOK
	if !p.OK {
		code = exitNo
	}
	return a.answer(p, code, func() { a.showPing(&p) })
}

func (a *app) showPing(p *pinged) {
	t := newTable(
		a.out, "SERVER", "PRODUCT", "VERSION", "ROLE", "MODE", "MAXMEMORY-POLICY", "ROUND TRIP",
	)
	for _, s := range p.Servers {
		t.add(s.Address, cmp.Or(s.Product, "-"), cmp.Or(s.Version, "-"), cmp.Or(s.Role, "-"), cmp.Or(s.Mode, "-"),
			cmp.Or(s.Memory, "-"), time.Duration(s.RTT).Round(time.Microsecond))
	}
	t.end()
	if len(p.Findings) > 0 {
		fmt.Fprintln(a.out)
	}
	for _, f := range p.Findings {
		where := ""
		if f.Server != "" && len(p.Servers) > 1 {
			where = f.Server + ": "
		}
		fmt.Fprintf(a.out, "%s: %s%s\n", f.Level, where, printable(f.Problem))
		if f.Advice != "" {
			fmt.Fprintf(a.out, "  %s\n", printable(f.Advice))
		}
	}
}
