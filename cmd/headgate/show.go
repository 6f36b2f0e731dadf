package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/hub"
	"github.com/headgate/headgate/internal/inspect"
	"github.com/headgate/headgate/internal/stored"
)

// showing is the flags of show.
type showing struct {
	planned
	below bool
}

func newShow(a *app) *cobra.Command {
	s := showing{planned: planned{app: a}}
	cmd := &cobra.Command{
		Use:   "show KEY",
		Short: "Show all that Redis keeps of a key: limits, slots, waiters, blocks, names and values",
		Long: `Show says how a key stands under each limit that has counted it, who holds slots
there and waits, and which keys of Redis are about it. It spends nothing.

The limits are those that programs state in Redis, and those of a file of plans.
Of a count that fits none of them, show has the value as it stands in Redis.

It looks at every key of the server that has the key: SCAN in steps of 1,000.
The exit code is 5 if nothing is there.`,
		Example: "  headgate show acme/user-1\n  headgate show acme --below --json",
		Args:    cobra.ExactArgs(1),
		RunE:    a.onKey(s.run),
	}
	f := cmd.Flags()
	f.BoolVar(&s.below, "below", false, "also show the keys below this one")
	s.flags(cmd)
	return cmd
}

func (s *showing) run(ctx context.Context, key core.Key, _ []string) error {
	stands, err := s.reader.Subject(ctx, key.String(), s.below)
	if err != nil {
		return err
	}
	found, err := s.lookup(ctx, key, stands, stands.Semaphores, countedKeys(stands))
	if err != nil {
		return err
	}
	v, code := found.view(), exitOK
	if v.isEmpty() {
		code = exitNothing
	}
	return s.answer(v, code, func() { s.print(v) })
}

// countedKeys returns the keys of which Redis keeps something that a limit counts.
func countedKeys(s *stored.Subject) (all []core.Key) {
	for _, f := range s.Keys {
		switch f.Kind {
		case stored.State, stored.Bundle, stored.Holds, stored.Adjustments:
			if key := core.Inside(hub.Pass{}).KeyAt(f.Path); !slices.Contains(all, key) {
				all = append(all, key)
			}
		}
	}
	return all
}

// subjectView is the answer of show.
type subjectView struct {
	Key    string      `json:"key"`
	At     stamp       `json:"at"`
	Limits []limitView `json:"limits"`
	Counts []countView `json:"unknown_counts"` // that fit no limit that is known
	Slots  []slotsView `json:"semaphores"`
	Keys   []keyView   `json:"redis_keys"`
	Below  int         `json:"keys_below"`
}

// keyView is a key of Redis.
type keyView struct {
	Name  string  `json:"name"`
	Kind  string  `json:"kind"`
	TTL   seconds `json:"ttl_seconds"` // below 0 if it stays
	Value string  `json:"value,omitempty"`
}

func (v *subjectView) isEmpty() bool { return len(v.Keys)+len(v.Slots) == 0 }

// view returns what show writes.
func (l *looked) view() *subjectView {
	s := l.subject
	v := &subjectView{
		Key: inspect.FormatKey(s.Key), At: stamp(s.At), Limits: []limitView{}, Counts: l.unknown(),
		Slots: []slotsView{}, Keys: []keyView{}, Below: l.stands.Below,
	}
	for i := range s.Limits {
		if s.Limits[i].Touched() {
			v.Limits = append(v.Limits, limitOf(&s.Limits[i]))
		}
	}
	for i := range s.Slots {
		if one := slotsOf(&s.Slots[i], s.At); len(one.Holders)+len(one.Waiters) > 0 {
			v.Slots = append(v.Slots, one)
		}
	}
	for _, f := range l.stands.Keys {
		v.Keys = append(v.Keys, keyView{f.Redis, string(f.Kind), seconds(f.TTL), f.Value})
	}
	return v
}

// print writes tables.
func (s *showing) print(v *subjectView) {
	fmt.Fprintf(s.out, "%s at %s UTC\n", printable(v.Key), clock(time.Time(v.At)))
	if v.isEmpty() {
		fmt.Fprintln(s.out, "Redis keeps nothing of it")
	}
	printLimits(s.out, v.Limits)
	printCounts(s.out, v.Counts)
	for i := range v.Slots {
		v.Slots[i].print(s.out)
	}
	if len(v.Keys) > 0 {
		fmt.Fprintln(s.out)
		t := newTable(s.out, "KEY OF REDIS", "KIND", "TTL")
		for _, k := range v.Keys {
			ttl := "none"
			if k.TTL >= 0 {
				ttl = wait(time.Duration(k.TTL))
			}
			t.add(k.Name, k.Kind, ttl)
		}
		t.end()
	}
	if v.Below > 0 {
		fmt.Fprintf(
			s.out, "\n%s keys of Redis are about keys below it: see --below\n", inspect.Number(int64(v.Below)),
		)
	}
}

// slotsView is a semaphore at the keys of a subject.
type slotsView struct {
	Semaphore string       `json:"semaphore"`
	Caps      []capView    `json:"caps"`
	Holders   []holderView `json:"holders"`
	Waiters   []waiterView `json:"waiters"`
}

type capView struct {
	Key string `json:"key"`
	inspect.Cap
}

type holderView struct {
	Key string `json:"key"`
	inspect.Holder
	Held seconds `json:"held_for_seconds"`
	Left seconds `json:"lease_left_seconds"`
}

type waiterView struct {
	Key string `json:"key"`
	inspect.Waiter
	Waits seconds `json:"waits_for_seconds"`
}

// slotsOf returns the holders and the waiters at a key or below it, and the caps at and around it.
func slotsOf(s *inspect.Slots, now time.Time) slotsView {
	v := slotsView{
		Semaphore: s.Semaphore.Name(), Caps: []capView{}, Holders: []holderView{}, Waiters: []waiterView{},
	}
	for _, h := range s.Holders {
		v.Holders = append(v.Holders, holderView{
			inspect.FormatKey(h.Key), h, seconds(now.Sub(h.Since)), seconds(h.Until.Sub(now)),
		})
	}
	for _, w := range s.Waiters {
		v.Waiters = append(v.Waiters, waiterView{inspect.FormatKey(w.Key), w, seconds(now.Sub(w.Since))})
	}
	for _, c := range s.Caps {
		v.Caps = append(v.Caps, capView{inspect.FormatKey(c.Key), c})
	}
	return v
}

func (v *slotsView) print(out io.Writer) {
	fmt.Fprintf(out, "\nsemaphore %s\n", v.Semaphore)
	t := newTable(out, "CAP", "USED", "WAITING")
	for _, c := range v.Caps {
		t.add(c.Key, fmt.Sprintf("%s of %s", inspect.Number(c.Used), inspect.Number(c.Limit)), c.Waiting)
	}
	t.end()
	if len(v.Holders) > 0 {
		t = newTable(out, "HOLDER", "KEY", "WEIGHT", "HELD FOR", "LEASE ENDS IN", "TOKEN", "METADATA")
		for _, h := range v.Holders {
			t.add(h.ID, h.Key, h.Weight,
				wait(time.Duration(h.Held)), wait(time.Duration(h.Left)), h.Token, joined(h.Meta))
		}
		t.end()
	}
	if len(v.Waiters) > 0 {
		t = newTable(out, "WAITER", "KEY", "WEIGHT", "PLACE", "WAITS FOR", "METADATA")
		for _, w := range v.Waiters {
			t.add(w.ID, w.Key, w.Weight, w.Place, wait(time.Duration(w.Waits)), joined(w.Meta))
		}
		t.end()
	}
}
