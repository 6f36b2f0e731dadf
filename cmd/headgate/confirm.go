package main

import (
	"bufio"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
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
	fmt.Fprintf(a.err, "%s? [y/N] ", printable(fmt.Sprintf(format, args...)))
	line, _ := bufio.NewReader(a.in).ReadString('\n')
	if l := strings.ToLower(strings.TrimSpace(line)); l == "y" || l == "yes" {
		return nil
	}
	return refusef("nothing has changed")
}
