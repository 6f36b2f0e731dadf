package main

import (
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/redistest"
)

func TestBench(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	a, r := headgateJSON[struct {
		Callers, Keys, Limits int
		Quotient              float64 `json:"decisions_per_ping"`
		Runs                  []struct {
			Name          string
			Calls, Failed int64
			PerSecond     float64 `json:"per_second"`
			P50           float64 `json:"p50_seconds"`
			P99           float64 `json:"p99_seconds"`
		}
	}](t, "bench", "--redis", urlOf(srv), "--duration", "300ms", "--callers", "4", "--keys", "10", "--limits", "3")
	if r.code != exitOK || len(a.Runs) != 2 || a.Quotient <= 0 || a.Callers != 4 || a.Limits != 3 {
		t.Fatalf("exit code %d, %+v, %s", r.code, a, r.err)
	}
	for _, run := range a.Runs {
		if run.Calls == 0 || run.Failed != 0 || run.PerSecond <= 0 || run.P50 <= 0 || run.P99 < run.P50 {
			t.Errorf("%+v", run)
		}
	}
	if n := srv.Calls(t, "ping"); n < a.Runs[0].Calls {
		t.Errorf("the server has answered %d PINGs of %d", n, a.Runs[0].Calls)
	}
	client := srv.Client(t)
	for _, name := range client.Keys(t.Context(), "*").Val() {
		if ttl := client.PTTL(t.Context(), name).Val(); ttl.Seconds() > 15 || ttl == -1 {
			t.Errorf("%s lives for %v", name, ttl)
		}
	}
	if r := headgate(t, "bench", "--redis", "redis://127.0.0.1:1"); r.code != exitOutage || !strings.Contains(r.err, "nothing listens") {
		t.Errorf("exit code %d: %s", r.code, r.err)
	}
}
