package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/internal/inspect"
)

// asks adds the flag of a command that changes something, so that it asks before.
func (a *app) asks(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&a.yes, "yes", "y", false, "do not ask (a script is never asked)")
}

// confirm asks a person whether to do something. Without a terminal nobody is asked.
func (a *app) confirm(format string, args ...any) error {
	if a.yes || !isTerminal(a.in) || !isTerminal(a.err) {
		return nil
	}
	fmt.Fprintf(a.err, "%s [y/N] ", printable(fmt.Sprintf(format, args...)))
	line, _ := bufio.NewReader(a.in).ReadString('\n')
	if l := strings.ToLower(strings.TrimSpace(line)); l == "y" || l == "yes" {
		return nil
	}
	return refusef("nothing has changed")
}

// change is the answer of a command that changes something.
type change struct {
	Key     string   `json:"key"`
	Of      []string `json:"of"` // the policies, or the semaphore
	ID      string   `json:"id,omitempty"`
	Changed bool     `json:"changed"`
	// Units are those that came back, below 0 if they were charged, those by which a limit is raised,
	// or the holders that are evicted.
	Units int64 `json:"units"`
	Until stamp `json:"until"` // of a raise or a block
}

// order asks a person about an order, carries it out, and writes what became of it. The exit code
// is another than exitOK if nothing has changed.
func (a *app) order(ctx context.Context, i *inspect.Inspector, o *inspect.Order, otherwise int) error {
	v := change{Key: inspect.FormatKey(o.Key), Of: []string{o.Slots}, ID: o.ID}
	if o.Policy != nil {
		v.Of[0] = o.Policy.Name()
	}
	if err := i.Heed(ctx, o); err != nil {
		return err
	}
	if err := a.confirm("%s", o.Words(inspect.Operations[o.Op].Question, v.Key)); err != nil {
		return err
	}
	text, _, err := i.Do(ctx, o, v.Key)
	if v.Changed = err == nil; errors.As(err, new(inspect.Unchanged)) {
		text = "Nothing has changed: " + err.Error() + "."
	} else if err != nil {
		return err
	}
	if v.Units, v.Until = o.Units, stamp(o.Until); o.Op == inspect.OpTake {
		v.Units = -o.Units
	}
	if v.ID != "" {
		text += " (id " + v.ID + ")"
	}
	return a.changed(v, otherwise, "%s", text)
}

// changed writes the answer of a command that changes something, in words as a format has them. The exit
// code is another than exitOK if nothing has changed.
func (a *app) changed(v change, otherwise int, format string, args ...any) error {
	code := exitOK
	if !v.Changed {
		code = otherwise
	}
	return a.answer(v, code, func() { fmt.Fprintln(a.out, printable(fmt.Sprintf(format, args...))) })
}
