package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/internal/redistest"
)

// watchJSON is a line of watch --json, as a script reads it.
type watchJSON struct {
	At      string
	Scripts *float64 `json:"scripts_per_second"`
	Keys    int      `json:"keys_read"`
	Limits  []struct {
		Policy, Label string
		Keys          int
		Used          *int64
		PerSecond     *float64 `json:"units_per_second"`
		Full          *int     `json:"keys_without_room"`
		Blocked       int      `json:"keys_blocked"`
	}
	Semaphores []struct {
		Semaphore, Key       string
		Used, Limit, Waiting int64
	}
}

// Watch shows what an application does between two readings, on one server and on a cluster.
func TestWatch(t *testing.T) {
	eachTopology(t, func(t *testing.T, client redis.UniversalClient, flags []string) {
		a := newApplication(t, client)
		file := write(t, "plans.yaml", changedPlans)
		streams := core.Must(semaphore.New(a.gate, semaphore.Config{Name: "streams"}))
		lease, err := streams.Acquire(t.Context(), semaphore.Request{Caps: []semaphore.Cap{{Key: a.key, Limit: 4}}})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = lease.Release(context.Background()) }()
		for a.spend(loginsPolicy, 1).Allowed {
		}
		a.spend(tokensPolicy, 10)
		cmd := process(t.Context(), append([]string{"watch", "--json", "--every", "500ms", "--rounds", "2", "--policies", file}, flags...)...)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		var readings []watchJSON
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var v watchJSON
			if err := json.Unmarshal(lines.Bytes(), &v); err != nil {
				t.Fatal(err)
			}
			if readings = append(readings, v); len(readings) == 1 {
				a.spend(tokensPolicy, 90)
				for a.spend(apiPolicy, 1).Allowed {
				}
			}
		}
		if err := cmd.Wait(); err != nil || len(readings) != 2 {
			t.Fatal(err, readings)
		}
		for i, v := range readings {
			seen := 0
			for _, l := range v.Limits {
				switch l.Policy {
				case "tokens":
					seen++
					want, full := []int64{10, 100}[i], []int{0, 1}[i]
					if l.Used == nil || *l.Used != want || l.Keys != 1 || l.Full == nil || *l.Full != full {
						t.Errorf("reading %d: %+v", i, l)
					}
					if i == 1 && (l.PerSecond == nil || *l.PerSecond < 5 || *l.PerSecond > 190) {
						t.Errorf("reading %d: 90 units within half a second at the earliest: %+v", i, l)
					}
				case "logins":
					seen++
					if l.Blocked != 1 {
						t.Errorf("reading %d: %+v", i, l)
					}
				case "api":
					seen++
					if i == 0 || l.Full == nil || *l.Full != 1 || l.Used == nil || *l.Used != 3 || l.PerSecond == nil || *l.PerSecond <= 0 {
						t.Errorf("reading %d: %+v", i, l)
					}
				}
			}
			if seen != 2+i {
				t.Errorf("reading %d: %+v", i, v.Limits)
			}
			if len(v.Semaphores) != 1 || v.Semaphores[0].Used != 1 || v.Semaphores[0].Limit != 4 || v.Semaphores[0].Key != "acme/user-1" {
				t.Errorf("reading %d: %+v", i, v.Semaphores)
			}
			if (v.Scripts != nil) != (i == 1) || i == 1 && *v.Scripts <= 0 {
				t.Errorf("reading %d: scripts a second: %v", i, v.Scripts)
			}
		}
		if r := headgate(t, append([]string{"watch", "acme/user-2", "--rounds", "1"}, flags...)...); r.code != exitOK || strings.Contains(r.out, "user-1") {
			t.Errorf("another key: exit code %d: %s%s", r.code, r.out, r.err)
		}
		r := headgate(t, append([]string{"watch", "acme", "--rounds", "1"}, flags...)...)
		if r.code != exitOK || !strings.Contains(r.out, "limit logins keys=1 used=- units_per_second=- without_room=- blocked=1") ||
			strings.Contains(r.out, "\x1b") {
			t.Errorf("exit code %d: %s%s", r.code, r.out, r.err)
		}
	})
}

// On a terminal watch draws on the alternate screen, and leaves the terminal as it was however it ends.
func TestWatchRestoresTerminal(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	a := newApplication(t, srv.Client(t))
	a.spend(tokensPolicy, 10)
	for name, signal := range map[string]os.Signal{"interrupt": os.Interrupt, "terminate": syscall.SIGTERM, "end of rounds": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := []string{"watch", "--redis", urlOf(srv), "--every", "20ms"}
			if signal == nil {
				args = append(args, "--rounds", "3")
			}
			cmd := process(t.Context(), args...)
			terminal, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 12, Cols: 60})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = terminal.Close() }()
			var drawn bytes.Buffer
			buffer := make([]byte, 4096)
			for sent := false; ; {
				n, err := terminal.Read(buffer)
				drawn.Write(buffer[:n])
				if err != nil { // the other side is closed
					break
				}
				if signal != nil && !sent && strings.Contains(drawn.String(), "tokens") {
					sent = true
					if err := cmd.Process.Signal(signal); err != nil {
						t.Fatal(err)
					}
				}
			}
			if err := cmd.Wait(); err != nil {
				t.Errorf("%v: %q", err, drawn.String())
			}
			text := drawn.String()
			if !strings.HasPrefix(text, enterScreen) || !strings.HasSuffix(text, leaveScreen) || !strings.Contains(text, "tokens") {
				t.Errorf("%q", text)
			}
			for _, sequence := range []string{enterScreen, leaveScreen, clearLine, clearBelow} {
				text = strings.ReplaceAll(text, sequence, "")
			}
			for _, line := range strings.Split(strings.ReplaceAll(text, home, "\n"), "\n") {
				if line = strings.TrimRight(line, "\r"); len([]rune(line)) > 60 {
					t.Errorf("a line has more than 60 columns: %q", line)
				}
			}
		})
	}
}

// An outage in the middle is shown, and ends nothing; one at the start does.
func TestWatchOutlivesOutage(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	cmd := process(t.Context(), "watch", "--redis", urlOf(srv), "--every", "50ms", "--timeout", "500ms")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	until := func(words string) {
		t.Helper()
		for giveUp := time.Now().Add(30 * time.Second); lines.Scan(); {
			if strings.Contains(lines.Text(), words) {
				return
			}
			if time.Now().After(giveUp) {
				break
			}
		}
		t.Fatalf("no line with %q", words)
	}
	until("redis scripts_per_second")
	srv.Stop()
	until("error ")
	srv.Continue()
	until("redis scripts_per_second")
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	for lines.Scan() {
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if r := headgate(t, "watch", "--redis", "redis://127.0.0.1:1"); r.code != exitOutage {
		t.Errorf("exit code %d: %s", r.code, r.err)
	}
}
