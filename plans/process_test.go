package plans_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/plans"
)

// child is this test binary, running TestChild.
type child struct {
	in  io.WriteCloser
	out *bufio.Reader
}

// A change of a plan is obeyed by 4 processes within a second: one of an override, one that Refresh
// tells of, and one of the file.
func TestProcessesObeyAChangeWithinASecond(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	client := s.Client(t)
	dir := t.TempDir()
	file, directory := filepath.Join(dir, "plans.yaml"), filepath.Join(dir, "acme")
	write(t, file, twoPlans)
	write(t, directory, "free")
	var children []*child
	for range 4 {
		children = append(children, startChild(t, s.Addr, file, directory))
	}
	for _, child := range children {
		child.ask(t) // it runs
	}
	late := 0 // on a machine that stands still meanwhile
	p := redisBook(t, client, new(seen), plans.Config{Set: parse(t, twoPlans)})
	own := core.PerMinute(77)
	for _, c := range []struct {
		name   string
		change func() error
		want   int64
	}{
		{"as they start", func() error { return nil }, 10},
		{"override of the plan", func() error { return p.SetOverride(t.Context(), "acme", plans.Override{Plan: "pro"}) }, 100},
		{"override of a limit", func() error {
			return p.SetOverride(t.Context(), "acme", plans.Override{Limits: map[string]core.Algorithm{"api": own}})
		}, 77},
		{"no override", func() error {
			_, err := p.DeleteOverride(t.Context(), "acme")
			return err
		}, 10},
		{"another plan", func() error {
			write(t, directory, "pro")
			return p.Refresh(t.Context(), "acme")
		}, 100},
		{"another file", func() error {
			write(t, file, strings.ReplaceAll(twoPlans, "rate: 100,", "rate: 500,"))
			return nil
		}, 500},
	} {
		if err := c.change(); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		changed := time.Now()
		for _, child := range children {
			for {
				if n := child.ask(t); n == c.want {
					break
				}
				if time.Since(changed) > patience {
					t.Fatalf("%s: not obeyed after %v", c.name, patience)
				}
			}
		}
		took := time.Since(changed)
		t.Logf("%s: all processes obey it after %v", c.name, took.Round(time.Millisecond))
		if took > time.Second {
			late++
		}
	}
	if late > 2 {
		t.Errorf("%d changes were obeyed after a second or more", late)
	}
}

func startChild(t *testing.T, addr, file, directory string) *child {
	t.Helper()
	self := gatetest.Must(os.Executable())(t)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	cmd := exec.CommandContext(ctx, self, "-test.run=^TestChild$")
	// With the race detector a process waits for a second before it exits.
	cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0",
		"PLANS_TEST_ADDR="+addr, "PLANS_TEST_FILE="+file, "PLANS_TEST_DIRECTORY="+directory)
	cmd.Stderr = t.Output()
	in := gatetest.Must(cmd.StdinPipe())(t)
	out := gatetest.Must(cmd.StdoutPipe())(t)
	gatetest.NoError(t, cmd.Start())
	c := &child{in, bufio.NewReader(out)}
	t.Cleanup(func() {
		defer cancel()
		_ = in.Close() // ends it
		_, _ = io.Copy(io.Discard, c.out)
		if err := cmd.Wait(); err != nil && !t.Failed() {
			t.Error(err)
		}
	})
	return c
}

// ask returns the limit of a decision of the process.
func (c *child) ask(t *testing.T) int64 {
	t.Helper()
	gatetest.Must(fmt.Fprintln(c.in, "decide"))(t)
	for {
		line := gatetest.Must(c.out.ReadString('\n'))(t)
		if text, ok := strings.CutPrefix(line, "limit "); ok {
			return gatetest.Must(strconv.ParseInt(strings.TrimSpace(text), 10, 64))(t)
		}
	}
}

// TestChild is the body of each process that startChild starts.
func TestChild(t *testing.T) {
	addr := os.Getenv("PLANS_TEST_ADDR")
	if addr == "" {
		t.Skip("runs only as a process of another test")
	}
	client := redis.NewClient(&redis.Options{
		Addr: addr, ContextTimeoutEnabled: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	defer func() { _ = client.Close() }()
	p := newBook(t, plans.Config{
		File: os.Getenv("PLANS_TEST_FILE"), Client: client, TTL: time.Hour,
		Resolve: func(context.Context, string) (string, error) {
			name, err := os.ReadFile(os.Getenv("PLANS_TEST_DIRECTORY"))
			return string(name), err
		},
	})
	gate := core.Must(core.NewRedis(client, core.Config{Timeout: time.Second}))
	defer func() { _ = gate.Close(context.Background()) }()
	policy := core.Must(core.NewPolicy(core.PolicyConfig{Name: "api", Algorithm: core.PerMinute(1)}))
	charge := core.Charge{Policy: policy, Key: gatetest.Key(t, "acme"), Cost: core.NoCost}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		plan := gatetest.Must(p.For(context.Background(), "acme"))(t)
		charge.Limit = plan.Algorithm("api")
		d := gatetest.Must(gate.Decide(context.Background(), charge))(t)
		fmt.Println("limit", d.At(0).Limit)
	}
}
