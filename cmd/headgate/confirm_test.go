package main

import (
	"io"
	"strings"
	"testing"

	"github.com/creack/pty"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/redistest"
)

// A person is asked before something changes, and a script is not.
func TestPersonIsAsked(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	a := newApplication(t, srv.Client(t))
	for _, c := range []struct {
		says  string
		more  []string
		code  int
		asked bool
	}{
		{"n\n", nil, exitNo, true}, {"\n", nil, exitNo, true}, {"yes\n", nil, exitOK, true}, {"", []string{"--yes"}, exitOK, false},
	} {
		for a.spend(apiPolicy, 1).Allowed {
		}
		cmd := process(t.Context(), append([]string{"reset", "acme/user-1", "--policy", "api", "--redis", urlOf(srv)}, c.more...)...)
		terminal := gatetest.Must(pty.Start(cmd))(t)
		gatetest.Must(io.WriteString(terminal, c.says))(t)
		text, _ := io.ReadAll(terminal) // until the other side is closed
		_ = cmd.Wait()
		_ = terminal.Close()
		if code := cmd.ProcessState.ExitCode(); code != c.code || strings.Contains(string(text), "Forget what acme/user-1 has spent under api? [y/N]") != c.asked {
			t.Errorf("%q %v: exit code %d, want %d: %q", c.says, c.more, code, c.code, text)
		}
		d, err := a.gate.Peek(t.Context(), core.Charge{Policy: apiPolicy, Key: a.key, Cost: 3})
		if err != nil || d.Allowed != (c.code == exitOK) {
			t.Errorf("%q %v: allowed %v, %v", c.says, c.more, d.Allowed, err)
		}
	}
}
