package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/internal/inspect"
)

// evicting is the flags of evict.
type evicting struct {
	*app
	changing
}

func newEvict(a *app) *cobra.Command {
	e := evicting{app: a}
	cmd := &cobra.Command{
		Use:   "evict KEY SEMAPHORE ID...",
		Short: "Take the slots of holders away",
		Long: `Evict takes slots of a semaphore away from holders, whose leases are lost then,
and removes waiters from the queue. Show tells their ids.

The exit code is 5 if no id holds or waits.`,
		Example:           "  headgate evict acme/user-1 streams 4T5NDRQXVDFYPX2GVJXOGYCYWM",
		Args:              cobra.MinimumNArgs(3),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              a.action(e.run),
	}
	e.flags(cmd)
	return cmd
}

// evictView is the answer of evict.
type evictView struct {
	Key       string   `json:"key"`
	Semaphore string   `json:"semaphore"`
	IDs       []string `json:"ids"`
	Evicted   int      `json:"evicted"`
}

func (e *evicting) run(ctx context.Context, args []string) error {
	key, err := parseKey(args[0])
	if err != nil {
		return err
	}
	v := evictView{Key: inspect.FormatKey(key), Semaphore: args[1], IDs: args[2:]}
	l, err := e.open(ctx)
	if err != nil {
		return err
	}
	defer l.close()
	s, err := semaphore.New(l.gate, semaphore.Config{Name: v.Semaphore})
	if err != nil {
		return usagef("SEMAPHORE: %w", err)
	}
	err = e.confirm(&e.changing, "Evict %d holders of %s at %s", len(v.IDs), v.Semaphore, v.Key)
	if err != nil {
		return err
	}
	if v.Evicted, err = s.Evict(ctx, key, v.IDs...); err != nil {
		return err
	}
	if e.json {
		err = writeJSON(e.out, v)
	} else {
		fmt.Fprintf(e.out, "%d of %d evicted from %s at %s\n",
			v.Evicted, len(v.IDs), v.Semaphore, printable(v.Key))
	}
	if err == nil && v.Evicted == 0 {
		return answer(exitNothing)
	}
	return err
}
