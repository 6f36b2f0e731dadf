package main

import (
	"context"
	"fmt"

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

// evictView is the answer of evict.
type evictView struct {
	Key       string   `json:"key"`
	Semaphore string   `json:"semaphore"`
	IDs       []string `json:"ids"`
	Evicted   int      `json:"evicted"`
}

func (a *app) evict(ctx context.Context, key core.Key, args []string) error {
	v := evictView{Key: inspect.FormatKey(key), Semaphore: args[0], IDs: args[1:]}
	s, err := semaphore.New(a.gate, semaphore.Config{Name: v.Semaphore})
	if err != nil {
		return usagef("SEMAPHORE: %w", err)
	}
	err = a.confirm("Evict %d holders of %s at %s", len(v.IDs), v.Semaphore, v.Key)
	if err != nil {
		return err
	}
	if v.Evicted, err = s.Evict(ctx, key, v.IDs...); err != nil {
		return err
	}
	code := exitOK
	if v.Evicted == 0 {
		code = exitNothing
	}
	return a.answer(v, code, func() {
		fmt.Fprintf(a.out, "%d of %d evicted from %s at %s\n",
			v.Evicted, len(v.IDs), v.Semaphore, printable(v.Key))
	})
}
