package main

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/inspect"
)

// blocking is the flags of block.
type blocking struct {
	*app
	length     time.Duration
	lift, list bool
}

func newBlock(a *app) *cobra.Command {
	b := blocking{app: a}
	cmd := &cobra.Command{
		Use:   "block KEY POLICY (--for DURATION | --lift), or block --list POLICY",
		Short: "Block a key, lift its block, or list the blocked keys",
		Long: `Block denies all requests of a key for a time, or for the rest of its block if
that is longer, under a policy of the application whose algorithm is a core.Block:
see docs/blocks.md. --lift ends the block and forgets the strikes of the key.
--list lists the keys that are blocked.

Programs state their policies in Redis: a block under a policy that none of them
states, or that is no core.Block, is refused with exit code 1. The exit code is 5
if --lift finds no block.`,
		Example: `  headgate block 203.0.113.7 logins --for 24h
  headgate block 203.0.113.7 logins --lift
  headgate block --list logins`,
		Args: cobra.RangeArgs(1, 2),
		RunE: a.online(b.run),
	}
	a.asks(cmd)
	f := cmd.Flags()
	f.DurationVar(&b.length, "for", 0, "how long the key is blocked")
	f.BoolVar(&b.lift, "lift", false, "end the block")
	f.BoolVar(&b.list, "list", false, "list the blocked keys of a policy")
	cmd.MarkFlagsOneRequired("for", "lift", "list")
	cmd.MarkFlagsMutuallyExclusive("for", "lift", "list")
	return cmd
}

// blockView is the answer of block --list.
type blockView struct {
	Policy  string        `json:"policy"`
	Blocked []blockedView `json:"blocked"`
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
	policy, err := b.policy(ctx, args[len(args)-1])
	if err != nil {
		return err
	}
	i, err := inspect.New(inspect.Config{Gate: b.gate, Policies: []*core.Policy{policy}}, "headgate")
	if err != nil {
		return err
	}
	if b.list {
		return b.all(ctx, i, policy)
	}
	o := inspect.Order{Op: inspect.OpUnblock, Policy: policy}
	if o.Key, err = parseKey(args[0]); err != nil {
		return err
	}
	if !b.lift {
		o.Op, o.Until = inspect.OpBlock, time.Now().Add(b.length)
	}
	return b.order(ctx, i, &o, exitNothing)
}

// policy returns the policy of a name: that of the programs, or one that sees blocks.
func (b *blocking) policy(ctx context.Context, name string) (*core.Policy, error) {
	p, err := blockPolicy(name)
	if err != nil {
		return nil, usagef("%s", strings.ReplaceAll(err.Error(), "core: PolicyConfig.Name", "POLICY"))
	}
	all, err := b.stated(ctx)
	if err != nil {
		return nil, err
	}
	if err := inspect.HeedBlocks(all, name); err == nil {
		s, err := inspect.Find(all, name)
		return s.Policy, err
	}
	return p, nil
}

// maxListed bounds the blocked keys that are listed.
const maxListed = 1_000_000

// all lists the blocked keys.
func (b *blocking) all(ctx context.Context, i *inspect.Inspector, p *core.Policy) error {
	keys, err := i.Blocked(ctx, p, maxListed)
	if err != nil {
		return err
	}
	v := blockView{Policy: p.Name(), Blocked: []blockedView{}}
	for _, k := range keys {
		v.Blocked = append(v.Blocked, blockedView{inspect.FormatKey(k.Key), seconds(k.Rest)})
	}
	return b.answer(v, exitOK, func() {
		t := newTable(b.out, "KEY", "BLOCKED FOR")
		for _, k := range v.Blocked {
			t.add(k.Key, wait(time.Duration(k.Left)))
		}
		t.end()
	})
}
