package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/internal/inspect"
)

func newEvict(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "evict KEY SEMAPHORE ID...",
		Short: "Take the slots of holders away",
		Long: `Evict takes slots of a semaphore away from holders, whose leases are lost then,
and removes waiters from the queue. Show tells their ids.

The exit code is 5 if no id holds or waits.`,
		Example: "  headgate evict acme/user-1 streams 4T5NDRQXVDFYPX2GVJXOGYCYWM",
		Args:    cobra.MinimumNArgs(3),
		RunE:    a.onKey(a.evict),
	}
	a.asks(cmd)
	return cmd
}

func (a *app) evict(ctx context.Context, key core.Key, args []string) error {
	o := inspect.Order{
		Op: inspect.OpEvict, Key: key, Slots: args[0], Holders: args[1:], Units: int64(len(args) - 1),
	}
	s, err := semaphore.New(a.gate, semaphore.Config{Name: o.Slots})
	if err != nil {
		return usagef("SEMAPHORE: %w", err)
	}
	i, err := inspect.New(inspect.Config{Gate: a.gate, Semaphores: []*semaphore.Semaphore{s}}, "headgate")
	if err != nil {
		return err
	}
	return a.order(ctx, i, &o, exitNothing)
}
