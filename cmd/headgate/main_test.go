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
	"github.com/headgate/headgate/plans"
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
	code     int
	out, err string
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
	return result{cmd.ProcessState.ExitCode(), out.String(), complaint.String()}
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
	plan := write(t, "plans.yaml", "default: free\nplans: {free: {limits: {api: {rate: 1, per: 1m}}}}\n")
	log := write(t, "access.log", "no log\n")
	for name, c := range map[string]struct {
		args []string
		want string // in the complaint
	}{
		"unknown command":   {[]string{"pong"}, `unknown command "pong"`},
		"unknown flag":      {[]string{"ping", "--nope"}, "unknown flag: --nope"},
		"argument too many": {[]string{"ping", "x"}, `unknown command "x"`},
		"no URL":            {[]string{"ping", "--redis", "127.0.0.1:6379"}, "--redis is no URL such as redis://127.0.0.1:6379"},
		"password is kept":  {[]string{"ping", "--redis", "redis://u:top%zzsecret@h"}, "--redis is no URL"},
		"bad database":      {[]string{"ping", "--redis", "redis://u:hidden@h/x"}, "--redis: "},
		"bad prefix":        {[]string{"ping", "--prefix", "a b"}, `--prefix is "a b"`},
		"bad topology":      {[]string{"ping", "--topology", "ring"}, `--topology is "ring"`},
		"no certificate":    {[]string{"ping", "--tls-ca", log}, "has no certificate"},
		"no plan":           {[]string{"simulate", log}, `required flag(s) "plan" not set`},
		"no log":            {[]string{"simulate", "--plan", plan}, "requires at least 1 arg"},
		"absent log":        {[]string{"simulate", log + "2", "--plan", plan}, "no such file"},
		"foreign log":       {[]string{"simulate", log, "--plan", plan}, "is a request of a known format; line 1 of " + log + " is:\nno log"},
		"empty log":         {[]string{"simulate", write(t, "empty.log", ""), "--plan", plan}, "empty.log has no lines"},
		"bad top":           {[]string{"simulate", log, "--plan", plan, "--top", "-1"}, "--top -1: it must not be negative"},
		"absent name":       {[]string{"simulate", log, "--plan", plan, "--name", "pro"}, `has no plan "pro": it has free`},
		"bad key":           {[]string{"simulate", log, "--plan", plan, "--key", "api=agent"}, `"agent" is no part of a key`},
		"bad path":          {[]string{"simulate", log, "--plan", plan, "--path", "/x"}, "it must be LIMIT=PREFIX"},
		"bad plan":          {[]string{"simulate", log, "--plan", log}, "plans"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := headgate(t, c.args...)
			if r.code != exitUsage || !strings.Contains(r.err, c.want) || r.out != "" {
				t.Errorf("exit code %d, want %d; %q, want %q; output %q", r.code, exitUsage, r.err, c.want, r.out)
			}
			if strings.Contains(r.err, "secret") || strings.Contains(r.err, "hidden") {
				t.Errorf("the complaint shows a password: %s", r.err)
			}
		})
	}
}

func TestSchemaIsPrinted(t *testing.T) {
	t.Parallel()
	if r := headgate(t, "schema"); r.code != exitOK || r.out != plans.Schema() {
		t.Errorf("exit code %d: %s", r.code, r.err)
	}
}

func TestCompletion(t *testing.T) {
	t.Parallel()
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if r := headgate(t, "completion", shell); r.code != exitOK || !strings.Contains(r.out, "headgate") {
			t.Errorf("%s: exit code %d: %s", shell, r.code, r.err)
		}
	}
	plan := write(t, "plans.yaml", "default: free\nplans: {free: {limits: {api: {rate: 1, per: 1m}}}, pro: {}}\n")
	for want, args := range map[string][]string{
		"simulate":  {"sim"},
		"free\npro": {"simulate", "--plan", plan, "--name", ""},
		"cluster":   {"ping", "--topology", "cl"},
		"schema":    {"sch"},
	} {
		r := headgate(t, append([]string{"__complete"}, args...)...)
		gatetest.Contains(t, r.out, want, "%v completes to", args)
	}
}
