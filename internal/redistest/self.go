package redistest

import (
	"bufio"
	"context"
	"io"
	"os"
	"os/exec"
	"slices"
	"sync"
	"testing"
)

// StartSelf starts this test binary with one of its tests, which talks by in and out.
func StartSelf(
	ctx context.Context, t *testing.T, test string, env ...string,
) (cmd *exec.Cmd, in io.WriteCloser, out io.ReadCloser) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd = exec.CommandContext(ctx, self, "-test.run=^"+test+"$")
	// With the race detector a process waits for a second before it exits.
	cmd.Env = slices.Concat(os.Environ(), []string{"GORACE=atexit_sleep_ms=0"}, env)
	cmd.Stderr = t.Output()
	if in, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if out, err = cmd.StdoutPipe(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, in, out
}

// StartKillable is StartSelf for a process that the test kills, at its end or before.
func StartKillable(
	t *testing.T, test string, env ...string,
) (in io.WriteCloser, lines *bufio.Scanner, kill func()) {
	t.Helper()
	cmd, in, out := StartSelf(context.Background(), t, test, env...)
	kill = sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	t.Cleanup(kill)
	return in, bufio.NewScanner(out), kill
}
