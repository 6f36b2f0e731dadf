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
	name, ids := args[0], args[1:]
	v := change{Key: inspect.FormatKey(key), Of: []string{name}}
	s, err := semaphore.New(a.gate, semaphore.Config{Name: name})
	if err != nil {
		return usagef("SEMAPHORE: %w", err)
	}
	if err := a.confirm("Evict %d holders of %s at %s", len(ids), name, v.Key); err != nil {
		return err
	}
	n, err := s.Evict(ctx, key, ids...)
	if err != nil {
		return err
	}
	v.Units, v.Changed = int64(n), n > 0
	return a.changed(v, exitNothing, "%d of %d evicted from %s at %s", n, len(ids), name, v.Key)
}
