package main

import (
	"bytes"
	"compress/gzip"
	"os"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/gatetest"
)

const simulatedPlans = `
default: free
plans:
  free:
    limits:
      api: {rate: 60, per: 1m, burst: 20}
      minute: {limit: 100, sliding_window: 1m}
      chat/large: {rate: 1, per: 1m}
  pro:
    limits:
      api: unlimited
`

// simulatedAnswer is the answer of simulate, as a script reads it.
type simulatedAnswer struct {
	Plan                     string
	Lines, Requests, Refused int64
	Faulty                   int64 `json:"faulty_lines"`
	Late                     int64 `json:"out_of_order"`
	First, Last              string
	Skipped                  []string `json:"skipped_limits"`
	Limits                   []struct {
		Policy, Limit string
		Denied        int64
	}
	Keys []struct {
		Policy, Key string
		Denied      int64
	}
}

func TestSimulateTellsWho(t *testing.T) {
	t.Parallel()
	const head = `192.0.2.1 - alice [24/Nov/2026:06:00:00 +0100] "GET /a HTTP/1.1" 200 1` + "\n"
	text := strings.Repeat(head, 30) +
		strings.Repeat(`{"ts":1795496405.5,"request":{"client_ip":"192.0.2.2","method":"GET","host":"h","uri":"/b"},"status":200}`+"\n", 25) +
		"garbage\n" + head
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	_, _ = z.Write([]byte(text))
	_ = z.Close()
	log := write(t, "access.log.gz", zipped.String())
	plan := write(t, "plans.yaml", simulatedPlans)
	headgate(t, "simulate", log, "--plan", plan).want(t, exitOK,
		"56 requests from 2026-11-24 05:00:00 to 2026-11-24 05:00:05 UTC under plan free",
		"15 would have been refused (26.79 %)",
		"api     60 per 1 min, at most 20 at once  15      2026-11-24 05:00:00  0",
		"192.0.2.1  api    10      2026-11-24 05:00:00  2026-11-24 05:00:00",
		"192.0.2.2  api    5       2026-11-24 05:00:05  2026-11-24 05:00:05",
		"1 lines were out of order, by at most 5.5s",
		"1 lines are no requests and were skipped, such as line 56",
		"left out: chat/large")
	// By user, Alice alone has a limit; under pro nobody has.
	a, _ := headgateJSON[simulatedAnswer](t, "simulate", log, "--plan", plan, "--key", "user")
	if a.Refused != 10 || len(a.Keys) != 1 || a.Keys[0].Key != "alice" {
		t.Errorf("by user: %+v", a)
	}
	a, _ = headgateJSON[simulatedAnswer](t, "simulate", log, "--plan", plan, "--name", "pro")
	if a.Refused != 0 || a.Plan != "pro" {
		t.Errorf("pro: %+v", a)
	}
	a, _ = headgateJSON[simulatedAnswer](t, "simulate", log, "--plan", plan, "--path", "api=/b", "--path", "minute=/b")
	gatetest.Equal(t, a.Refused, 5, "by path: %+v", a)
	headgate(t, "simulate", log, "--plan", plan, "--path", "=/b").want(t, exitUsage)
}

// A key from a log is nothing that the terminal obeys.
func TestSimulateIsNotObeyed(t *testing.T) {
	t.Parallel()
	line := `{"ts":1795496405.5,"request":{"client_ip":"\u001b[2J","uri":"/"}}` + "\n"
	log := write(t, "access.log", strings.Repeat(line, 30))
	plan := write(t, "plans.yaml", simulatedPlans)
	r := headgate(t, "simulate", log, "--plan", plan)
	if r.code != exitOK || strings.Contains(r.out, "\x1b") || !strings.Contains(r.out, "10") {
		t.Errorf("exit code %d: %q%s", r.code, r.out, r.err)
	}
}

func TestSimulateFromStandardInput(t *testing.T) {
	t.Parallel()
	plan := write(t, "plans.yaml", simulatedPlans)
	cmd := process(t.Context(), "simulate", "-", "--plan", plan, "--json")
	cmd.Stdin = strings.NewReader(strings.Repeat(`192.0.2.1 - - [24/Nov/2026:06:00:00 +0100] "GET /a HTTP/1.1" 200 1`+"\n", 21))
	out := gatetest.Must(cmd.Output())(t)
	gatetest.Contains(t, string(out), `"refused": 1,`, "got")
}

// What could not be written is an error: a full disk.
func TestSimulateTellsOfLostOutput(t *testing.T) {
	t.Parallel()
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip(err)
	}
	defer func() { _ = full.Close() }()
	const line = "192.0.2.1 - - [24/Nov/2026:06:00:00 +0000] \"GET / HTTP/1.1\" 200 5\n"
	log := write(t, "access.log", strings.Repeat(line, 22)) // 2 are refused: a buffer holds them
	args := []string{"simulate", log, "--plan", write(t, "plans.yaml", simulatedPlans)}
	for _, args := range [][]string{args, append(args, "--json")} {
		cmd := process(t.Context(), args...)
		var complaint bytes.Buffer
		cmd.Stdout, cmd.Stderr = full, &complaint
		_ = cmd.Run()
		if cmd.ProcessState.ExitCode() != exitUsage ||
			!strings.Contains(complaint.String(), "headgate: the output cannot be written") {
			t.Errorf("exit code %d: %s", cmd.ProcessState.ExitCode(), complaint.String())
		}
	}
}

// A log without a request is an error.
func TestSimulateOfNoRequests(t *testing.T) {
	t.Parallel()
	plan := write(t, "plans.yaml", changedPlans)
	headgate(t, "simulate", write(t, "garbage.log", "garbage\n\n"), "--plan", plan).want(t, exitUsage, "no line of")
}
