package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"

	"github.com/headgate/headgate/core"
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

// accessLog writes a log of that many lines in the Combined Log Format, some of them out of order,
// and calls each with the time and the client of every line.
func accessLog(t testing.TB, lines int, seed uint64, each func(at time.Time, ip string)) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "access.log")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	w := bufio.NewWriterSize(f, 1<<20)
	rng := rand.New(rand.NewPCG(seed, 0))
	now := time.Date(2026, time.November, 24, 6, 0, 0, 0, time.UTC)
	for i := range lines {
		if rng.IntN(20) == 0 {
			now = now.Add(time.Second)
		}
		at := now
		if rng.IntN(10) == 0 {
			at = now.Add(-time.Duration(rng.IntN(4)) * time.Second)
		}
		n := int(rng.ExpFloat64() * 8)
		ip := fmt.Sprintf("10.0.%d.%d", n/256, n%256)
		fmt.Fprintf(w, "%s - - [%s] \"GET /api/v1/items/%d?x=1 HTTP/1.1\" 200 %d \"https://example.com/\" "+
			"\"Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/120.0.0.0 Safari/537.36\"\n",
			ip, at.Format("02/Jan/2006:15:04:05 -0700"), i%1000, rng.IntN(90_000))
		if each != nil {
			each(at, ip)
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// oracle decides the requests of a log by a Gate with a manual clock, and returns the refusals as
// --refusals writes them.
type oracle struct {
	t        testing.TB
	clock    *core.ManualClock
	gate     *core.Gate
	policies []*core.Policy
	line     int
	refused  []string
}

func newOracle(t testing.TB) *oracle {
	o := &oracle{t: t, clock: new(core.ManualClock)}
	o.gate = core.Must(core.NewMemory(core.Config{Clock: o.clock.Now}))
	t.Cleanup(func() { _ = o.gate.Close(context.Background()) })
	for _, cfg := range []core.PolicyConfig{
		{Name: "api", Algorithm: core.TokenBucket{Rate: 60, Per: time.Minute, Burst: 20}},
		{Name: "minute", Algorithm: core.SlidingWindow{Limit: 100, Window: time.Minute}},
	} {
		o.policies = append(o.policies, core.Must(core.NewPolicy(cfg)))
	}
	return o
}

func (o *oracle) request(at time.Time, ip string) {
	o.line++
	if wait := at.Sub(o.clock.Now()); wait > 0 {
		o.clock.Advance(wait)
	}
	key := core.Must(core.NewKey(ip))
	d, err := o.gate.Decide(o.t.Context(), core.Charge{Policy: o.policies[0], Key: key}, core.Charge{Policy: o.policies[1], Key: key})
	if err != nil {
		o.t.Fatal(err)
	}
	if d.Allowed {
		return
	}
	line := fmt.Sprintf("%d %s", o.line, o.clock.Now().UTC().Format(time.RFC3339))
	for _, r := range d.Results() {
		if !r.Allowed {
			line += fmt.Sprintf(" %s %s %.6f", r.Policy.Name(), ip, r.RetryAfter.Seconds())
		}
	}
	o.refused = append(o.refused, line)
}

// refusalsOf reads a file of --refusals.
func refusalsOf(t testing.TB, path string) (lines []string) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	for d := json.NewDecoder(f); d.More(); {
		var r struct {
			Time string
			Line int
			By   []struct {
				Policy, Key string
				RetryAfter  float64 `json:"retry_after_seconds"`
			} `json:"denied_by"`
		}
		if err := d.Decode(&r); err != nil {
			t.Fatal(err)
		}
		line := fmt.Sprintf("%d %s", r.Line, strings.Replace(r.Time, ".000000", "", 1))
		for _, by := range r.By {
			line += fmt.Sprintf(" %s %s %.6f", by.Policy, by.Key, by.RetryAfter)
		}
		lines = append(lines, line)
	}
	return lines
}

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

// The command refuses exactly what a Gate with a manual clock refuses. With HEADGATE_TEST_LONG the
// log has 1,000,000 lines.
func TestSimulateAgreesWithGate(t *testing.T) {
	t.Parallel()
	lines := 50_000
	if os.Getenv("HEADGATE_TEST_LONG") != "" {
		lines = 1_000_000
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	o := newOracle(t)
	log := accessLog(t, lines, seed, o.request)
	plan := write(t, "plans.yaml", simulatedPlans)
	refusals := filepath.Join(t.TempDir(), "refusals")
	start := time.Now()
	a, r := headgateJSON[simulatedAnswer](t, "simulate", log, "--plan", plan, "--refusals", refusals)
	t.Logf("%d lines took %v", lines, time.Since(start))
	if r.code != exitOK || a.Plan != "free" || a.Lines != int64(lines) || a.Requests != a.Lines ||
		a.Refused != int64(len(o.refused)) || a.Late == 0 || !slices.Equal(a.Skipped, []string{"chat/large"}) {
		t.Errorf("exit code %d, %+v, want %d refused; %s", r.code, a, len(o.refused), r.err)
	}
	if len(o.refused) < lines/100 {
		t.Errorf("%d of %d lines are refused: that shows little", len(o.refused), lines)
	}
	got := refusalsOf(t, refusals)
	for i := range max(len(got), len(o.refused)) {
		if i >= len(got) || i >= len(o.refused) || got[i] != o.refused[i] {
			t.Fatalf("refusal %d of %d is not that of the Gate, which has %d:\n%q", i, len(got), len(o.refused),
				append(got[min(i, len(got)):min(i+1, len(got))], o.refused[min(i, len(o.refused)):min(i+1, len(o.refused))]...))
		}
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
	page := filepath.Join(t.TempDir(), "plot.html")
	r := headgate(t, "simulate", log, "--plan", plan, "--plot", page)
	for _, want := range []string{
		"56 requests from 2026-11-24 05:00:00 to 2026-11-24 05:00:05 UTC under plan free",
		"15 would have been refused (26.79 %)",
		"api     60 per 1m, at most 20 at once  15      2026-11-24 05:00:00  0",
		"192.0.2.1  api    10      2026-11-24 05:00:00  2026-11-24 05:00:00",
		"192.0.2.2  api    5       2026-11-24 05:00:05  2026-11-24 05:00:05",
		"1 lines were out of order, by at most 5.5s",
		"1 lines are no requests and were skipped, such as line 56",
		"left out: chat/large",
	} {
		if !strings.Contains(r.out, want) {
			t.Errorf("exit code %d, %s%s lacks %q", r.code, r.out, r.err, want)
		}
	}
	html, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"15 of 56 requests would have been refused", "192.0.2.2", "10 denials by api"} {
		if !strings.Contains(string(html), want) {
			t.Errorf("the plot lacks %q", want)
		}
	}
	if strings.Contains(string(html), "http://") || strings.Contains(string(html), "https://") {
		t.Error("the plot loads something")
	}
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
	if a.Refused != 5 {
		t.Errorf("by path: %+v", a)
	}
}

// A key from a log is text in the page, and nothing that the terminal obeys.
func TestSimulateIsNotObeyed(t *testing.T) {
	t.Parallel()
	line := `{"ts":1795496405.5,"request":{"client_ip":"<script>alert(1)</script>\u001b[2J","uri":"/"}}` + "\n"
	log := write(t, "access.log", strings.Repeat(line, 30))
	plan := write(t, "plans.yaml", simulatedPlans)
	page := filepath.Join(t.TempDir(), "plot.html")
	r := headgate(t, "simulate", log, "--plan", plan, "--plot", page)
	html, err := os.ReadFile(page)
	if err != nil || r.code != exitOK {
		t.Fatal(err, r.err)
	}
	if strings.Contains(string(html), "<script") || strings.Contains(r.out, "\x1b") || !strings.Contains(r.out, "10") {
		t.Errorf("%q", r.out)
	}
}

func TestSimulateFromStandardInput(t *testing.T) {
	t.Parallel()
	plan := write(t, "plans.yaml", simulatedPlans)
	cmd := process(t.Context(), "simulate", "-", "--plan", plan, "--json")
	cmd.Stdin = strings.NewReader(strings.Repeat(`192.0.2.1 - - [24/Nov/2026:06:00:00 +0100] "GET /a HTTP/1.1" 200 1`+"\n", 21))
	out, err := cmd.Output()
	if err != nil || !strings.Contains(string(out), `"refused": 1,`) {
		t.Errorf("%v, %s", err, out)
	}
}

// A person sees how far it is, and nothing of that is left.
func TestSimulateDrawsProgress(t *testing.T) {
	t.Parallel()
	log := accessLog(t, 300_000, 1, nil)
	plan := write(t, "plans.yaml", simulatedPlans)
	terminal, err := pty.Start(process(t.Context(), "simulate", log, "--plan", plan))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = terminal.Close() }()
	text, _ := io.ReadAll(terminal) // until the other side is closed
	before, after, cleared := strings.Cut(string(text), "300,000 requests from")
	if !cleared || !strings.Contains(before, "% ") || !strings.Contains(before, " requests, ") ||
		!strings.HasSuffix(before, "\r\x1b[K") || strings.Contains(after, "\x1b") {
		t.Errorf("%q", text)
	}
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
	r := headgate(t, append(args, "--refusals", "/dev/full")...)
	if r.code != exitUsage || !strings.Contains(r.err, "--refusals: ") {
		t.Errorf("exit code %d: %s", r.code, r.err)
	}
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

// A log without a request is an error, and what a simulation writes is its owner's.
func TestSimulateFiles(t *testing.T) {
	t.Parallel()
	plan := write(t, "plans.yaml", changedPlans)
	r := headgate(t, "simulate", write(t, "garbage.log", "garbage\n\n"), "--plan", plan)
	if r.code != exitUsage || !strings.Contains(r.err, "no line of") {
		t.Errorf("garbage: exit code %d: %s%s", r.code, r.out, r.err)
	}
	log := write(t, "access.log", `192.0.2.1 - - [25/Nov/2026:16:31:10 +0000] "GET / HTTP/1.1" 200 1`+"\n")
	page, refusals := write(t, "page.html", "old"), filepath.Join(t.TempDir(), "refusals.json")
	r = headgate(t, "simulate", log, "--plan", plan, "--plot", page, "--refusals", refusals)
	if r.code != exitOK {
		t.Fatalf("exit code %d: %s%s", r.code, r.out, r.err)
	}
	for _, file := range []string{page, refusals} {
		info, err := os.Stat(file)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", file, info.Mode(), err)
		}
	}
}
