package main

import (
	"bufio"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// changing is the flags of commands that change something.
type changing struct{ yes bool }

func (c *changing) flags(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&c.yes, "yes", "y", false, "do not ask (a script is never asked)")
}

// confirm asks a person whether to do something. Without a terminal nobody is asked.
func (a *app) confirm(c *changing, format string, args ...any) error {
	if c.yes || !isTerminal(a.in) || !isTerminal(a.err) {
		return nil
	}
	fmt.Fprintf(a.err, "%s? [y/N] ", printable(fmt.Sprintf(format, args...)))
	line, _ := bufio.NewReader(a.in).ReadString('\n')
	if l := strings.ToLower(strings.TrimSpace(line)); l == "y" || l == "yes" {
		return nil
	}
	return &exitError{exitNo, fmt.Errorf("nothing has changed")}
}
