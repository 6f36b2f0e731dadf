package main

import (
	"context"
	"fmt"
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
	length            time.Duration
	lift, list, force bool
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
		RunE:              a.action(b.run),
	}
	b.flags(cmd)
	f := cmd.Flags()
	f.DurationVar(&b.length, "for", 0, "how long the key is blocked")
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
	l, err := b.open(ctx)
	if err != nil {
		return err
	}
	defer l.close()
	policy, err := b.policy(ctx, l, args[len(args)-1])
	if err != nil {
		return err
	}
	i, err := inspect.New(inspect.Config{Gate: l.gate, Policies: []*core.Policy{policy}}, "headgate")
	if err != nil {
		return err
	}
	v := blockView{Policy: policy.Name(), Blocked: []blockedView{}}
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

// policy returns the policy of a name: that of the programs, or one that sees blocks. It refuses a block
// that no program would heed.
func (b *blocking) policy(ctx context.Context, l *link, name string) (*core.Policy, error) {
	p, err := blockPolicy(name)
	if err != nil {
		return nil, usagef("%s", strings.ReplaceAll(err.Error(), "core: PolicyConfig.Name", "POLICY"))
	}
	all, err := b.stated(ctx, l)
	if err != nil {
		return nil, err
	}
	err = inspect.HeedBlocks(all, name)
	if err == nil {
		return inspect.Find(all, name).Policy, nil
	}
	if b.length != 0 && !b.force {
		return nil, refusef("%w: --force blocks nevertheless", err)
	}
	return p, nil
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
		v.Blocked = append(v.Blocked, blockedView{inspect.FormatKey(k.Key), seconds(k.Rest)})
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
	at, question, said := inspect.FormatKey(key), "Block %s under %s for "+inspect.Span(b.length), ""
	if b.lift {
		question = "Lift the block of %s under %s"
	}
	if err := b.confirm(&b.changing, question, at, p.Name()); err != nil {
		return err
	}
	if b.lift {
		rest, err := i.Unblock(ctx, p, key)
		if err != nil {
			return err
		}
		if v.Lifted = rest > 0; v.Lifted {
			said = fmt.Sprintf("%s blocks %s no longer", p.Name(), at)
		} else {
			said = fmt.Sprintf("%s does not block %s", p.Name(), at)
		}
	} else {
		if err := i.Block(ctx, p, key, b.length); err != nil {
			return err
		}
		v.Blocked = append(v.Blocked, blockedView{at, seconds(b.length)})
		said = fmt.Sprintf("%s blocks %s for %s", p.Name(), at, inspect.Span(b.length))
	}
	if !b.json {
		fmt.Fprintln(b.out, printable(said))
	}
	return nil
}
