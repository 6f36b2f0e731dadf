package redistest_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

func TestEnvironment(t *testing.T) {
	tests := []struct {
		name, child, value string
		pass               bool
		want               string
	}{
		{"real missing", "Real", "", true, "redis-server is not on PATH.*--- SKIP: TestChild"},
		{"start missing", "Start", "", true, "redis-server is not on PATH.*--- SKIP: TestChild"},
		{"cluster missing", "StartCluster", "", true, "redis-server is not on PATH.*--- SKIP: TestChild"},
		{"each missing", "Each", "", true, "runs on miniredis only: redis-server is not on PATH.*PASS: TestChild/miniredis"},
		{"real required", "Real", "require", false, "redis-server is not on PATH, and HEADGATE_TEST_REDIS=require needs it"},
		{"start required", "Start", "require", false, "redis-server is not on PATH, and HEADGATE_TEST_REDIS=require needs it"},
		{"cluster required", "StartCluster", "require", false, "redis-server is not on PATH, and HEADGATE_TEST_REDIS=require needs it"},
		{"each required", "Each", "require", false, "redis-server is not on PATH, and HEADGATE_TEST_REDIS=require needs it"},
		{"no address", "Each", "yes", false, "HEADGATE_TEST_REDIS must be empty, require, host:port"},
		{"bad URL", "Each", "redis://:secret@host:port", false, "HEADGATE_TEST_REDIS is not a valid redis://"},
		{"dead address", "Each", "127.0.0.1:1", false, "127.0.0.1:1, which does not answer"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			out, err := child(t, test.child, "PATH=", "HEADGATE_TEST_SERVER=", "HEADGATE_TEST_REDIS="+test.value)
			if (err == nil) != test.pass {
				t.Errorf("the tests ended with %v", err)
			}
			if !regexp.MustCompile("(?s)" + test.want).MatchString(out) {
				t.Errorf("the tests did not say %q", test.want)
			}
			if strings.Contains(out, "secret") {
				t.Error("the tests printed the password")
			}
			if t.Failed() {
				t.Log(out)
			}
		})
	}
}

func TestOutsideServerKeepsItsKeys(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	client := s.Client(t)
	if err := client.Set(t.Context(), "other", 1, 0).Err(); err != nil {
		t.Fatal(err)
	}
	for _, value := range []string{s.Addr, "redis://" + s.Addr + "/0"} {
		for _, name := range []string{"Each", "Real"} {
			writes := s.Calls(t, "set")
			out, err := child(t, name, "PATH=", "HEADGATE_TEST_SERVER=", "HEADGATE_TEST_REDIS="+value)
			if err != nil || !strings.Contains(out, s.Name+"-at-"+s.Addr) {
				t.Errorf("%s with %s did not run there: %v\n%s", name, value, err, out)
			}
			if s.Calls(t, "set") == writes {
				t.Errorf("%s with %s wrote nothing there", name, value)
			}
			keys, err := client.Keys(t.Context(), "*").Result()
			if err != nil || len(keys) != 1 || keys[0] != "other" {
				t.Errorf("%s with %s left the keys %v, %v", name, value, keys, err)
			}
		}
	}
	if out, err := child(t, "Stop", "PATH=", "HEADGATE_TEST_SERVER=", "HEADGATE_TEST_REDIS="+s.Addr); err == nil {
		t.Errorf("a test stopped a server that this package did not start\n%s", out)
	}
}

// HEADGATE_TEST_SERVER takes the place of the programs on PATH.
func TestChosenProgram(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	path := os.Getenv("HEADGATE_TEST_SERVER")
	if path == "" {
		var err error
		if path, err = exec.LookPath("redis-server"); err != nil {
			t.Skip(err)
		}
	}
	for _, test := range []struct {
		child, program string
		pass           bool
		want           string
	}{
		{"Each", path, true, "runs on miniredis, " + s.Name + "\n"},
		{"Real", path, true, "runs on " + s.Name + "\n"},
		{"StartCluster", path, true, "runs on a cluster of 3 " + s.Name},
		{"Failover", path, true, "runs on " + s.Name + " with 1 replicas"},
		{"Start", "redis-server", false, "HEADGATE_TEST_SERVER is redis-server: it must be an absolute path"},
		{"Start", filepath.Join(t.TempDir(), "server"), false, "HEADGATE_TEST_SERVER: exec:"},
	} {
		t.Run(test.want, func(t *testing.T) {
			t.Parallel()
			out, err := child(t, test.child, "PATH=", "HEADGATE_TEST_REDIS=require", "HEADGATE_TEST_SERVER="+test.program)
			if (err == nil) != test.pass || !strings.Contains(out, test.want) {
				t.Errorf("%s with %s: %v\n%s", test.child, test.program, err, out)
			}
		})
	}
}

// TestChild runs the cases that need another environment, or that fail, in a
// process of their own.
func TestChild(t *testing.T) {
	t.Parallel()
	set := func(t *testing.T, s *redistest.Server) {
		if err := s.Client(t).Set(t.Context(), "{"+s.Prefix+"a}:b", 1, 0).Err(); err != nil {
			t.Error(err)
		}
	}
	switch name := os.Getenv("REDISTEST_CHILD"); name {
	case "":
		t.Skip("runs as a child only")
	case "Each":
		redistest.Each(t, set)
	case "Real":
		set(t, redistest.Real(t))
	case "Start":
		redistest.Start(t)
	case "StartCluster":
		redistest.StartCluster(t, 3)
	case "Failover":
		redistest.StartFailover(t, 1)
	case "Stop":
		redistest.Real(t).Stop()
	default:
		t.Fatalf("no child %q", name)
	}
}

func child(t *testing.T, name string, env ...string) (string, error) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, self, "-test.run=^TestChild$", "-test.v")
	// A process under the race detector sleeps for a second before it exits.
	cmd.Env = append(append(os.Environ(), "GORACE=atexit_sleep_ms=0", "REDISTEST_CHILD="+name), env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}
