package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/redistest"
)

// program returns the path of a program of Prometheus.
func program(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		if os.Getenv("HEADGATE_TEST_REDIS") == "require" {
			t.Fatal(err)
		}
		t.Skipf("%s is not on PATH", name)
	}
	return path
}

// example is the example while it serves.
type example struct{ api, operators *httptest.Server }

// start starts the example on a Redis of its own, and sends it requests of two tenants, some of
// which it refuses.
func start(t *testing.T) example {
	t.Helper()
	client := gatetest.Must(connect("redis://" + redistest.Start(t).Addr))(t)
	watch := gatetest.Must(newObservers())(t)
	gate := gatetest.Must(newGate(t.Context(), client, core.Config{Observe: watch.observe, Timeout: time.Minute}))(t)
	gatetest.NoError(t, watch.metrics.Watch(gate))
	book := gatetest.Must(newBook(client, watch.observe))(t)
	t.Cleanup(book.Close)
	api := gatetest.Must(newAPI(gate, book, watch.observe))(t)
	page := gatetest.Must(newPage(gate, book, api, watch))(t)
	e := example{httptest.NewServer(api), httptest.NewServer(watch.handler(page))}
	t.Cleanup(func() {
		e.api.Close()
		e.operators.Close()
		gatetest.Worked(t, gate.Close(context.Background()))
		watch.close()
	})
	var all sync.WaitGroup
	for _, tenant := range []string{"acme", "umbrella"} {
		all.Go(func() {
			for i, refused := 0, 0; refused < 5 && i < 1000; i++ {
				switch status := e.report(t, tenant); {
				case status == 429:
					refused++
				case status != 200:
					t.Errorf("request %d of %s: status %d", i, tenant, status)
				}
			}
		})
	}
	all.Wait()
	return e
}

func (e example) report(t *testing.T, tenant string) int {
	t.Helper()
	r := core.Must(http.NewRequestWithContext(t.Context(), http.MethodGet, e.api.URL+"/reports", nil))
	r.Header.Set("X-Tenant", tenant)
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Error(err)
		return 0
	}
	response.Body.Close()
	return response.StatusCode
}

// The program serves the API and the metrics, and ends at an interrupt.
func TestProgramServes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "observe.exe")
	if out, err := exec.Command("go", "build", "-o", path, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	cmd := exec.Command(path)
	cmd.Env = append(os.Environ(), "ADDR=127.0.0.1:0", "OPERATOR_ADDR=127.0.0.1:0", "REDIS_URL=")
	cmd.Stderr = t.Output()
	out := gatetest.Must(cmd.StdoutPipe())(t)
	gatetest.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	printed := bufio.NewScanner(out)
	var text string
	for printed.Scan() && !strings.Contains(printed.Text(), "/page/") {
		text += printed.Text() + "\n"
	}
	for _, pattern := range []string{`-H 'X-Tenant: acme' (http://\S+/reports)`, `curl (http://\S+/metrics)`} {
		url := regexp.MustCompile(pattern).FindStringSubmatch(text)
		if url == nil {
			t.Fatalf("no %s in %q", pattern, text)
		}
		r := core.Must(http.NewRequestWithContext(t.Context(), http.MethodGet, url[1], nil))
		r.Header.Set("X-Tenant", "acme")
		response := gatetest.Must(http.DefaultClient.Do(r))(t)
		response.Body.Close()
		gatetest.Equal(t, response.StatusCode, http.StatusOK, "%s: %s", url[1], response.Status)
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Skip(err) // no interrupts on Windows
	}
	gatetest.Worked(t, cmd.Wait())
}

// Prometheus's tool finds nothing to say about the metrics.
func TestMetricsAreWellFormed(t *testing.T) {
	e := start(t)
	response := gatetest.Must(http.Get(e.operators.URL + "/metrics"))(t)
	defer response.Body.Close()
	metrics := gatetest.Must(io.ReadAll(response.Body))(t)
	for _, line := range []string{
		`headgate_requests_total{policy="reports",result="denied",source="redis"} `,
		`headgate_requests_total{policy="stricter",result="would_deny",source="redis"} `,
		`headgate_http_requests_total{status="429"} `,
		`headgate_active_request_leases{semaphore="running"} 0`,
		`headgate_round_trips_total{node="127.0.0.1:`,
	} {
		if !strings.Contains(string(metrics), line) {
			t.Errorf("the metrics lack %s:\n%s", line, metrics)
		}
	}
	if strings.Contains(string(metrics), "acme") {
		t.Error("a tenant is in the metrics")
	}
	cmd := exec.Command(program(t, "promtool"), "check", "metrics")
	cmd.Stdin = bytes.NewReader(metrics)
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("%v: %s", err, out)
	}
}

// Prometheus reads the configuration of this folder, and the rules that it names.
func TestConfigurationOfPrometheus(t *testing.T) {
	if out, err := exec.Command(program(t, "promtool"), "check", "config", "prometheus.yml").CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// With the traffic of the example, the page names tenants, and says until when one is denied, who holds
// a slot and how fast Redis is.
func TestPageShowsTenantsAndSlots(t *testing.T) {
	e := start(t)
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan struct{})
	go func() { defer close(left); traffic(ctx, e.api.URL) }()
	t.Cleanup(func() { cancel(); <-left })
	for path, wants := range map[string][]string{
		"/page/":                   {"Refused most", ">acme</a>"},
		"/page/subject?key=nobody": {"next request passes"},
		"/page/subject?key=acme":   {"Denied until", "acme has used 20 of 20 requests of reports.", "Override reports", "Holders of acme", "route: /exports", "method: GET", "Evict acme, held for"},
	} {
		for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) { // polls
			response := gatetest.Must(http.Get(e.operators.URL + path))(t)
			body, err := io.ReadAll(response.Body)
			response.Body.Close()
			gatetest.NoError(t, err)
			missing := ""
			for _, want := range wants {
				if !strings.Contains(string(body), want) {
					missing = want
				}
			}
			if missing == "" {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("%s lacks %q: %s", path, missing, body)
			}
		}
	}
}
