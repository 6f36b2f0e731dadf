package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/gatetest"
)

// asCommand makes the binary of the tests the command: each test runs real processes of it.
const asCommand = "HEADGATE_TEST_AS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		main()
	}
	os.Exit(m.Run())
}

// process returns the command with its arguments, without the variables of this process. On a busy
// machine Redis may take long to answer. Under the race detector a process sleeps for a second before it
// exits, unless it is told not to.
func process(ctx context.Context, args ...string) *exec.Cmd {
	if slices.Contains(args, "--redis") && !slices.Contains(args, "--timeout") {
		args = append(slices.Clone(args), "--timeout", "30s")
	}
	cmd := exec.CommandContext(ctx, os.Args[0], args...)
	cmd.Env = append(os.Environ(), asCommand+"=1", redisVariable+"=", "GORACE=atexit_sleep_ms=0")
	return cmd
}

// result is what a run of the command leaves.
type result struct {
	args     []string
	code     int
	out, err string
}

// want expects an exit code, and words in what the command has written.
func (r result) want(t *testing.T, code int, words ...string) {
	t.Helper()
	for _, word := range words {
		if !strings.Contains(r.out+r.err, word) {
			t.Errorf("%v: %q is not in %s%s", r.args, word, r.out, r.err)
		}
	}
	if r.code != code {
		t.Errorf("%v: exit code %d, want %d: %s%s", r.args, r.code, code, r.out, r.err)
	}
}

func headgate(t *testing.T, args ...string) result {
	t.Helper()
	cmd := process(t.Context(), args...)
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return result{args, cmd.ProcessState.ExitCode(), out.String(), complaint.String()}
}

// headgateJSON runs the command with --json, and decodes its output.
func headgateJSON[T any](t *testing.T, args ...string) (v T, r result) {
	t.Helper()
	r = headgate(t, append(args, "--json")...)
	if r.out == "" {
		t.Fatalf("%v: no output, exit code %d: %s", args, r.code, r.err)
	}
	d := json.NewDecoder(strings.NewReader(r.out))
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%v: %v in %s", args, err, r.out)
	}
	return v, r
}

func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	gatetest.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func TestExitCodesOfUsage(t *testing.T) {
	t.Parallel()
	r := headgate(t, "__complete", "sim")
	gatetest.Contains(t, r.out, "simulate", "completions")
}
