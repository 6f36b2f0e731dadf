package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/headgate/headgate/core"
)

// terminal is where a command reads and writes.
type terminal struct {
	in       io.Reader
	out, err io.Writer
}

// isTerminal reports whether w is a terminal of a person.
func isTerminal(w any) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// output remembers that it could not write, so that a script does not take half an answer for the
// whole.
type output struct {
	io.Writer
	err error
}

func (o *output) Write(text []byte) (n int, err error) {
	if n, err = o.Writer.Write(text); err != nil && o.err == nil {
		o.err = err
	}
	return n, err
}

// app is what all commands share.
type app struct {
	terminal
	json    bool
	yes     bool // what a person is not asked
	started bool // the command line is right
	connection
}

// silent is a logger of go-redis that writes nothing: commands say themselves what went wrong.
type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

// run runs the command that the arguments name, and returns its exit code.
func run(ctx context.Context, args []string, t terminal) int {
	redis.SetLogger(silent{})
	out := &output{Writer: t.out}
	t.out = out
	a := &app{terminal: t}
	root := newRoot(a)
	root.SetArgs(args)
	root.SetIn(t.in)
	root.SetOut(t.out)
	root.SetErr(t.err)
	err := root.ExecuteContext(ctx)
	if ctx.Err() != nil && err != nil {
		err = context.Canceled
	}
	if out.err != nil && !errors.Is(err, context.Canceled) {
		err = usagef("the output cannot be written: %w", out.err)
	}
	if err != nil && !a.started {
		err = usagef("%w", err)
	}
	code := codeOf(err)
	if err != nil && err.Error() != "" && !errors.Is(err, context.Canceled) {
		fmt.Fprintf(t.err, "headgate: %s\n", words(err))
		if advice := adviceOn(err); advice != "" {
			fmt.Fprintf(t.err, "  %s\n", advice)
		}
	}
	return code
}

func newRoot(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:   "headgate",
		Short: "Look at, explain and change the limits that Headgate keeps in Redis",
		Long: `Headgate looks at the limits, quotas and slots that Headgate keeps in Redis, says
why a request would be denied, changes them, and replays access logs against
plans.

A KEY is the parts of a key with slashes between them, outermost first, such as
acme/user-1. A slash in a part is written %2F. It may also be the key as the
names in Redis hold it, such as {acme}:user-1.

Exit codes: 0 done; 1 the answer is no (denied, something is wrong, nothing
changed); 2 the command line or a file is wrong; 3 Redis does not answer;
4 Redis refuses (password, right, server); 5 nothing is there; 130 interrupted.`,
		Version:       version(),
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.NoArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetVersionTemplate("headgate {{.Version}}\n")
	flags := root.PersistentFlags()
	flags.BoolVar(&a.json, "json", false, "write JSON")
	a.connection.flags(root)
	root.AddCommand(newPing(a), newShow(a), newWhy(a), newReset(a), newAdjust(a), newBlock(a), newEvict(a))
	for _, online := range root.Commands() {
		online.ValidArgsFunction = cobra.NoFileCompletions
	}
	root.AddCommand(newSimulate(a))
	return root
}

// runE is what cobra runs.
type runE = func(*cobra.Command, []string) error

// action makes a func the action of a command. What goes wrong before it is the command line's fault.
func (a *app) action(run func(context.Context, []string) error) runE {
	return func(cmd *cobra.Command, args []string) error {
		a.started = true
		return run(cmd.Context(), args)
	}
}

// online is action for a command that asks Redis.
func (a *app) online(run func(context.Context, []string) error) runE {
	return a.action(func(ctx context.Context, args []string) error {
		if err := a.open(ctx); err != nil {
			return err
		}
		defer a.close()
		return run(ctx, args)
	})
}

// onKey is online for a command whose first argument is a KEY.
func (a *app) onKey(run func(context.Context, core.Key, []string) error) runE {
	return func(cmd *cobra.Command, args []string) error {
		key, err := parseKey(args[0])
		if err != nil {
			return err
		}
		return a.online(func(ctx context.Context, args []string) error { return run(ctx, key, args[1:]) })(cmd, args)
	}
}

// answer writes the answer of a command, as JSON or as print prints it, and ends the command with an exit
// code.
func (a *app) answer(v any, code int, print func()) error {
	if !a.json {
		print()
	} else if err := writeJSON(a.out, v); err != nil {
		return err
	}
	if code == exitOK {
		return nil
	}
	return &exitError{code: code}
}

// version returns that of the module, as go install has built it.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}
