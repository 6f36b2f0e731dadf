package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/inspect"
)

// blocking is the flags of block.
type blocking struct {
	*app
	changing
	length, forgive time.Duration
	lift, list      bool
	force           bool
}

func newBlock(a *app) *cobra.Command {
	b := blocking{app: a}
	cmd := &cobra.Command{
		Use:   "block KEY POLICY (--for DURATION | --lift), or block --list POLICY",
		Short: "Block a key, lift its block, or list the blocked keys",
		Long: `Block denies all requests of a key for a time, under a policy of the application
whose algorithm is a core.Block: see docs/blocks.md. --lift ends the block and
forgets the strikes of the key. --list lists the keys that are blocked.

Programs state their policies in Redis: a block under a policy that none of them
states, or that is no core.Block, is refused with exit code 1, unless --force is
there. The exit code is 5 if --lift finds no block.`,
		Example: `  headgate block 203.0.113.7 logins --for 24h
  headgate block 203.0.113.7 logins --lift
  headgate block --list logins`,
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              action(b.run),
	}
	b.flags(cmd)
	f := cmd.Flags()
	f.DurationVar(&b.length, "for", 0, "how long the key is blocked")
	f.DurationVar(
		&b.forgive, "forgive", time.Hour, "how long after the block it counts for the length of the next",
	)
	f.BoolVar(&b.lift, "lift", false, "end the block")
	f.BoolVar(&b.list, "list", false, "list the blocked keys of a policy")
	f.BoolVar(&b.force, "force", false, "block even if no program that states its policies heeds it")
	cmd.MarkFlagsOneRequired("for", "lift", "list")
	cmd.MarkFlagsMutuallyExclusive("for", "lift", "list")
	return cmd
}

// blockView is the answer of block.
type blockView struct {
	Policy  string        `json:"policy"`
	Blocked []blockedView `json:"blocked"`
	Lifted  bool          `json:"lifted"`
}

type blockedView struct {
	Key  string  `json:"key"`
	Left seconds `json:"left_seconds"`
}

func (b *blocking) run(ctx context.Context, args []string) error {
	want := 2
	if b.list {
		want = 1
	}
	if len(args) != want {
		return usagef(
			"%d arguments: %d are needed, KEY and POLICY, or POLICY with --list", len(args), want,
		)
	}
	name := args[len(args)-1]
	policy, err := blockPolicy(name, max(b.forgive, time.Microsecond))
	if err != nil {
		return usagef("%s", strings.ReplaceAll(err.Error(), "core: PolicyConfig.Name", "POLICY"))
	}
	l, err := b.open(ctx)
	if err != nil {
		return err
	}
	defer l.close()
	if b.length != 0 && !b.force {
		if err := b.heeded(ctx, l, name); err != nil {
			return err
		}
	}
	i, err := inspect.New(inspect.Config{Gate: l.gate, Policies: []*core.Policy{policy}}, "headgate")
	if err != nil {
		return err
	}
	v := blockView{Policy: name, Blocked: []blockedView{}}
	if b.list {
		err = b.all(ctx, i, policy, &v)
	} else {
		err = b.one(ctx, i, policy, args[0], &v)
	}
	if err != nil {
		return err
	}
	if b.json {
		err = writeJSON(b.out, v)
	}
	if err == nil && b.lift && !v.Lifted {
		return answer(exitNothing)
	}
	return err
}

// heeded returns why no program would heed a block under a policy.
func (b *blocking) heeded(ctx context.Context, l *link, name string) error {
	all, err := b.stated(ctx, l)
	if err != nil {
		return err
	}
	if err := inspect.HeedBlocks(all, name); err != nil {
		return refusef("%w: --force blocks nevertheless", err)
	}
	return nil
}

// maxListed bounds the blocked keys that are listed.
const maxListed = 1_000_000

// all lists the blocked keys.
func (b *blocking) all(
	ctx context.Context, i *inspect.Inspector, p *core.Policy, v *blockView,
) error {
	keys, err := i.Blocked(ctx, p, maxListed)
	if err != nil {
		return err
	}
	for _, k := range keys {
		v.Blocked = append(v.Blocked, blockedView{formatKey(k.Key), seconds(k.Rest)})
	}
	if b.json {
		return nil
	}
	t := newTable(b.out, "KEY", "BLOCKED FOR")
	for _, k := range v.Blocked {
		t.add(k.Key, wait(time.Duration(k.Left)))
	}
	return t.Flush()
}

// one blocks a key, or lifts its block.
func (b *blocking) one(
	ctx context.Context, i *inspect.Inspector, p *core.Policy, text string, v *blockView,
) error {
	key, err := parseKey(text)
	if err != nil {
		return err
	}
	said := ""
	if b.lift {
		s, err := i.Lookup(ctx, key)
		if err != nil {
			return err
		}
		if len(s.Faults) > 0 {
			return s.Faults[0]
		}
		v.Lifted = slices.ContainsFunc(
			s.Limits,
			func(l inspect.Limit) bool { return l.Key == key && l.Denies() },
		)
		if !v.Lifted {
			said = fmt.Sprintf("%s does not block %s", p.Name(), formatKey(key))
		} else {
			err := b.confirm(&b.changing, "Lift the block of %s under %s", formatKey(key), p.Name())
			if err != nil {
				return err
			}
			if err := i.Reset(ctx, p, key); err != nil {
				return err
			}
			said = fmt.Sprintf("%s blocks %s no longer", p.Name(), formatKey(key))
		}
	} else {
		err := b.confirm(&b.changing, "Block %s under %s for %v", formatKey(key), p.Name(), b.length)
		if err != nil {
			return err
		}
		if err := i.Block(ctx, p, key, b.length); err != nil {
			return err
		}
		v.Blocked = append(v.Blocked, blockedView{formatKey(key), seconds(b.length)})
		said = fmt.Sprintf("%s blocks %s for %s", p.Name(), formatKey(key), inspect.Span(b.length))
	}
	if !b.json {
		fmt.Fprintln(b.out, printable(said))
	}
	return nil
}
