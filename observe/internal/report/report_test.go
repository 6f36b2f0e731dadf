package report_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/internal/eventtest"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/internal/series"
	"github.com/headgate/headgate/keyfunc"
	"github.com/headgate/headgate/llm"
	"github.com/headgate/headgate/observe/internal/report"
)

// ledger is an Exporter that keeps every value as a line.
type ledger struct {
	mu    sync.Mutex
	lines map[string]float64
}

func (l *ledger) Instrument(s *series.Series, values []string) series.Instrument {
	line := strings.TrimSuffix(s.Name+" "+strings.Join(values, ","), " ")
	return func(_ context.Context, value float64) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.lines[line] += value
	}
}

func newRecorder(t testing.TB, cfg report.Config) (*report.Reporter, *ledger) {
	t.Helper()
	l := &ledger{lines: make(map[string]float64)}
	cfg.Exporter = l
	r := core.Must(report.New(cfg))
	return r, l
}

// want checks what was recorded, without the times that differ from run to run.
func (l *ledger) want(t *testing.T, want map[string]float64) {
	t.Helper()
	if !maps.Equal(l.lines, want) {
		for _, line := range slices.Sorted(maps.Keys(l.lines)) {
			if n, ok := want[line]; !ok || n != l.lines[line] {
				t.Errorf("recorded %q: %v", line, l.lines[line])
			}
		}
		for _, line := range slices.Sorted(maps.Keys(want)) {
			if n, ok := l.lines[line]; !ok || n != want[line] {
				t.Errorf("want %q: %v", line, want[line])
			}
		}
	}
}

func TestEveryEventReachesItsSeries(t *testing.T) {
	r, l := newRecorder(t, report.Config{})
	for _, e := range eventtest.All(t) {
		before := maps.Clone(l.lines)
		r.Observe(t.Context(), e)
		if _, closed := e.(*core.ServerEvent); maps.Equal(l.lines, before) && !closed {
			t.Errorf("%s reached no series", e.EventName())
		}
	}
	for line := range l.lines {
		if strings.Contains(line, eventtest.Tenant) {
			t.Errorf("a key is a label: %s", line)
		}
	}
	want := make(map[string]float64) // the ledger adds up: a circuit has opened and closed
	for line := range strings.Lines(string(gatetest.Must(os.ReadFile("testdata/events.txt"))(t))) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " = ")
		want[name] = gatetest.Must(strconv.ParseFloat(value, 64))(t)
	}
	l.want(t, want)
}

// Every charge of a request counts once, by what its own policy said.
func TestResultsOfCharges(t *testing.T) {
	r, l := newRecorder(t, report.Config{})
	g := eventtest.Gate(t, core.Config{Observe: r.Observe})
	wide, narrow, key := eventtest.Policy(t, "wide", 100), eventtest.Policy(t, "narrow", 1), eventtest.Key(t)
	shadow := core.Must(core.NewPolicy(core.PolicyConfig{
		Name: "shadow", Algorithm: core.TokenBucket{Rate: 1, Per: 24 * time.Hour, Burst: 1}, Shadow: true,
	}))
	charges := []core.Charge{{Policy: wide, Key: key}, {Policy: narrow, Key: key}, {Policy: shadow, Key: key}}
	for range 2 {
		gatetest.Must(g.Decide(t.Context(), charges...))(t)
	}
	gatetest.Must(g.Decide(t.Context(), charges[0], charges[2]))(t)
	ended, end := context.WithCancel(t.Context())
	end()
	if _, err := g.Decide(ended, charges[0]); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if _, err := g.Decide(t.Context(), core.Charge{Key: key}); !errors.Is(err, core.ErrCharge) {
		t.Fatal(err)
	}
	maps.DeleteFunc(l.lines, func(line string, _ float64) bool { return !strings.HasPrefix(line, "headgate.requests") })
	l.want(t, map[string]float64{
		"headgate.requests wide,allowed,memory":      2,
		"headgate.requests narrow,allowed,memory":    1,
		"headgate.requests shadow,allowed,memory":    1,
		"headgate.requests wide,fits,memory":         1,
		"headgate.requests narrow,denied,memory":     1,
		"headgate.requests shadow,would_deny,memory": 2,
		"headgate.requests none,canceled,none":       1,
		"headgate.requests none,failed,none":         1,
	})
}

// A decision without Redis is timed only if it was slow, and one with Redis always.
func TestQuickDecisionsAreCountedOnly(t *testing.T) {
	r, l := newRecorder(t, report.Config{})
	for source, took := range map[core.Source]time.Duration{
		core.SourceMemory: 99 * time.Microsecond, core.SourceCache: 100 * time.Microsecond, core.SourceRedis: 50 * time.Microsecond,
	} {
		r.Observe(t.Context(), &core.DecisionEvent{Op: core.OpPeek, Decision: core.Decision{Source: source}, Took: took})
	}
	l.want(t, map[string]float64{
		"headgate.decisions peek,memory":        1,
		"headgate.decisions peek,cache":         1,
		"headgate.decisions peek,redis":         1,
		"headgate.decision.duration peek,cache": 100e-6,
		"headgate.decision.duration peek,redis": 50e-6,
	})
}

// Neither a tenant's name nor a policy's makes more series than its bound.
func TestLabelsAreBounded(t *testing.T) {
	tenant := ""
	r, l := newRecorder(t, report.Config{
		Tenant: func(context.Context, core.Event) string { return tenant }, MaxTenants: 2,
	})
	policy, key := eventtest.Policy(t, "api", 10), eventtest.Key(t)
	g := eventtest.Gate(t, core.Config{Observe: r.Observe})
	for _, tenant = range []string{"a", "b", "c", "d", "a", "\xff"} {
		gatetest.Must(g.Decide(t.Context(), core.Charge{Policy: policy, Key: key}))(t)
	}
	for i := range 1200 {
		tenant = "a"
		r.Observe(t.Context(), &core.ServerEvent{Op: core.OpOverload, Node: fmt.Sprint("node-", i)})
	}
	nodes := 0
	for line := range l.lines {
		if strings.HasPrefix(line, "headgate.overloads") {
			nodes++
		}
	}
	if nodes != 1001 || l.lines["headgate.overloads other"] != 200 {
		t.Errorf("%d series of nodes, other is %v", nodes, l.lines["headgate.overloads other"])
	}
	maps.DeleteFunc(l.lines, func(line string, _ float64) bool { return !strings.HasPrefix(line, "headgate.requests") })
	l.want(t, map[string]float64{
		"headgate.requests api,allowed,memory,a":     2,
		"headgate.requests api,allowed,memory,b":     1,
		"headgate.requests api,allowed,memory,other": 3,
	})
	gatetest.Fails(t, gatetest.Err(report.New(report.Config{MaxTenants: -1})), "a negative MaxTenants is no error")
}

// Read tells what a Gate holds now, and 0 once it holds nothing any more.
func TestReadTellsSlots(t *testing.T) {
	r, _ := newRecorder(t, report.Config{})
	g := eventtest.Gate(t, core.Config{})
	if r.Watch(nil) || !r.Watch(g) || !r.Watch(g) {
		t.Fatal("Watch")
	}
	read := func() map[string]float64 {
		lines := make(map[string]float64)
		r.Read(func(s *series.Series, values []string, n float64) { lines[s.Name+" "+values[0]] += n })
		return lines
	}
	s := core.Must(semaphore.New(g, semaphore.Config{Name: "streams"}))
	request := semaphore.Request{Caps: []semaphore.Cap{{Key: eventtest.Key(t), Limit: 1}}}
	held := gatetest.Must(s.Acquire(t.Context(), request))(t)
	queued, granted := make(chan struct{}), make(chan *semaphore.Lease)
	request.MaxWait, request.OnQueue = semaphore.Forever, func(int) { close(queued) }
	go func() {
		l, _ := s.Acquire(context.Background(), request)
		granted <- l
	}()
	<-queued
	want := func(held, queued float64) {
		t.Helper()
		got := read()
		if got["headgate.active_request_leases streams"] != held || got["headgate.queued_requests streams"] != queued || len(got) != 2 {
			t.Errorf("read %v, want %v held and %v queued", got, held, queued)
		}
	}
	want(1, 1)
	gatetest.NoError(t, held.Release(t.Context()))
	second := <-granted
	want(1, 0)
	gatetest.NoError(t, second.Release(t.Context()))
	want(0, 0)
	gatetest.NoError(t, g.Close(t.Context()))
	if got := read(); got["headgate.active_request_leases streams"] != 0 {
		t.Errorf("a closed Gate is read: %v", got)
	}
}

// Counters do not fall when one of the Gates that are summed up is closed.
func TestCountersOutliveGates(t *testing.T) {
	r, _ := newRecorder(t, report.Config{})
	client := redistest.Start(t).Client(t)
	p := core.Must(core.NewPolicy(core.PolicyConfig{Name: "api", Algorithm: core.PerHour(1000)}))
	read := func() map[string]float64 {
		lines := make(map[string]float64)
		r.Read(func(s *series.Series, _ []string, n float64) { lines[s.Name] += n })
		return lines
	}
	for range 3 {
		g := core.Must(core.NewRedis(client, core.Config{}))
		defer func() { _ = g.Close(context.Background()) }()
		if !r.Watch(g) {
			t.Fatal("Watch")
		}
		gatetest.Must(g.Decide(t.Context(), core.Charge{Policy: p, Key: eventtest.Key(t)}))(t)
		before := read()
		gatetest.NoError(t, g.Close(t.Context()))
		for range 2 {
			after := read()
			for _, s := range []*series.Series{series.RoundTrips, series.RoundTripCalls, series.RoundTripTime} {
				if before[s.Name] <= 0 || after[s.Name] < before[s.Name] {
					t.Errorf("%s falls from %v to %v", s.Name, before[s.Name], after[s.Name])
				}
			}
		}
	}
	gatetest.Equal(t, read()[series.RoundTripCalls.Name], 3, "calls")
}

// answer answers each chat as the model that it names, and states 7 tokens in and 3 out. A chat for
// "broken" gets an error.
func answer(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	_, name, _ := strings.Cut(string(body), `"model":"`)
	name, _, _ = strings.Cut(name, `"`)
	w.Header().Set("Content-Type", "application/json")
	if name == "broken" {
		w.WriteHeader(http.StatusInternalServerError)
		fmt.Fprint(w, `{"error":{"message":"no"}}`)
		return
	}
	fmt.Fprintf(w, `{"model":%q,"choices":[{"message":{"content":"hi"},"finish_reason":"stop"}],`+
		`"usage":{"prompt_tokens":7,"completion_tokens":3,"total_tokens":10}}`, name)
}

// A client that invents models makes no series, if the configuration has models. Without any, the
// names in answers are the labels.
func TestModelsAsLabels(t *testing.T) {
	known := map[string]llm.Model{"small": {}}
	for name, tt := range map[string]struct {
		models map[string]llm.Model
		want   map[string]float64
	}{
		"models": {known, map[string]float64{
			"small,reported": 1, "other,reported": 2, "other,failed": 1,
		}},
		"no models": {nil, map[string]float64{
			"small,reported": 1, "invented-1,reported": 1, "invented-2,reported": 1, "other,failed": 1,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			r, l := newRecorder(t, report.Config{})
			meter := core.Must(llm.New(llm.Config{
				Guard: nethttp.Config{Gate: eventtest.Gate(t, core.Config{})},
				Budgets: []llm.Budget{{
					Policy: core.Must(core.NewPolicy(core.PolicyConfig{
						Name: "tokens", Algorithm: core.PerMinute(1_000_000), Unit: core.UnitTokens,
						Hold: time.Minute,
					})),
					Key: keyfunc.RemoteIP(),
				}},
				Models: tt.models, UnknownModel: llm.UnknownModelDearest, Observe: r.Observe,
			}))
			handler := meter.Handler(http.HandlerFunc(answer))
			for _, model := range []string{"small", "invented-1", "invented-2", "broken"} {
				body := strings.NewReader(fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":"hi"}]}`, model))
				q := httptest.NewRequest(http.MethodPost, "/v1/chat/completions", body)
				q.Header.Set("Content-Type", "application/json")
				handler.ServeHTTP(httptest.NewRecorder(), q)
			}
			got := make(map[string]float64)
			tokens := 0.0
			for line, n := range l.lines {
				if rest, ok := strings.CutPrefix(line, series.Responses.Name+" "); ok {
					got[rest] = n
				}
				if strings.HasPrefix(line, series.Tokens.Name+" ") {
					tokens += n
				}
			}
			if fmt.Sprint(got) != fmt.Sprint(tt.want) || tokens != 30 {
				t.Errorf("responses %v and %v tokens, want %v and 30", got, tokens, tt.want)
			}
		})
	}
}

func TestPrometheusNames(t *testing.T) {
	for s, want := range map[*series.Series]string{
		series.Requests: "headgate_requests_total", series.RoundTripTime: "headgate_round_trip_time_seconds_total",
		series.TimeInQueue: "headgate_request_time_in_queue_seconds", series.CircuitOpen: "headgate_circuit_open",
	} {
		gatetest.Equal(t, s.Prometheus(), want, "%s", s.Name)
	}
}
