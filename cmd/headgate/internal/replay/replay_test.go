package replay

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/cmd/headgate/internal/accesslog"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/inspect"
	"github.com/headgate/headgate/plans"
)

// plan has one limit of each algorithm that a file may have.
const plan = `
default: free
plans:
  free:
    limits:
      bucket: {rate: 60, per: 1m, burst: 5}
      leak: {leak: 10, per: 1s, capacity: 50}
      fixed: {limit: 20, fixed_window: 10s}
      sliding: {limit: 30, sliding_window: 1m}
      buckets: {limit: 40, sliding_window: 1m, buckets: 60}
      log: {limit: 15, sliding_log: 5s}
      day: {limit: 500, calendar: day, in: Europe/Berlin}
      everyone: {rate: 40, per: 1s, burst: 100}
      chat/large: {rate: 5, per: 1m}
`

func planOf(t testing.TB, text string) plans.Plan {
	t.Helper()
	set := core.Must(plans.ParseSet([]byte(text)))
	p, _ := set.Plan(set.Default())
	return p
}

// line is one line of a log that a test has made.
type line struct {
	at   time.Time
	ip   string
	path string
}

// generate returns a log of bursts and pauses, with lines that come late.
func generate(n int, seed uint64) (text []byte, lines []line) {
	rng := rand.New(rand.NewPCG(seed, 0))
	at := time.Date(2026, time.March, 28, 22, 0, 0, 0, time.UTC)
	var b bytes.Buffer
	for i := range n {
		if rng.IntN(50) == 0 {
			at = at.Add(time.Duration(rng.IntN(30)) * time.Second)
		} else if rng.IntN(4) == 0 {
			at = at.Add(time.Second)
		}
		l := line{at, fmt.Sprintf("192.0.2.%d", int(rng.ExpFloat64()*10)), fmt.Sprintf("/p%d", i%3)}
		if rng.IntN(10) == 0 {
			l.at = at.Add(-time.Duration(rng.IntN(5)) * time.Second)
		}
		lines = append(lines, l)
		fmt.Fprintf(&b, "%s - - [%s] \"GET %s?q=%d HTTP/1.1\" 200 17 \"-\" \"curl/8.5.0\"\n",
			l.ip, l.at.Format("02/Jan/2006:15:04:05 -0700"), l.path, i)
	}
	return b.Bytes(), lines
}

// A replay refuses what a Gate with a manual clock refuses that is asked for the same requests. With
// HEADGATE_TEST_LONG the log has 1,000,000 lines.
func TestReplayAgreesWithGate(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	n := 20_000
	if gatetest.Long() {
		n = 1_000_000
	}
	text, lines := generate(n, seed)
	r := gatetest.Must(New(Config{
		Plan: planOf(t, plan), Keys: map[string]string{"everyone": "all", "leak": "path,ip"},
		Prefixes: map[string]string{"log": "/p1"}, MaxKeys: 10_000,
	}))(t)
	read, faults, err := accesslog.Read(t.Context(), bytes.NewReader(text), func(e *accesslog.Request) error {
		return r.Decide(t.Context(), e)
	})
	if err != nil || read != int64(len(lines)) || faults.Lines > 0 {
		t.Fatal(read, faults, err)
	}

	berlin := gatetest.Must(time.LoadLocation("Europe/Berlin"))(t)
	clock := core.NewManualClock(lines[0].at)
	gate := core.Must(core.NewMemory(core.Config{Clock: clock.Now}))
	defer func() { _ = gate.Close(context.Background()) }()
	policy := func(name string, a core.Algorithm) *core.Policy {
		return core.Must(core.NewPolicy(core.PolicyConfig{Name: name, Algorithm: a}))
	}
	perIP := []*core.Policy{
		policy("bucket", core.TokenBucket{Rate: 60, Per: time.Minute, Burst: 5}),
		policy("buckets", core.SlidingWindow{Limit: 40, Window: time.Minute, Buckets: 60}),
		policy("day", core.Calendar{Limit: 500, Every: core.PeriodDay, In: berlin}),
		policy("fixed", core.FixedWindow{Limit: 20, Window: 10 * time.Second}),
		policy("sliding", core.SlidingWindow{Limit: 30, Window: time.Minute}),
	}
	everyone := policy("everyone", core.TokenBucket{Rate: 40, Per: time.Second, Burst: 100})
	leak := policy("leak", core.LeakyBucket{Rate: 10, Per: time.Second, Capacity: 50})
	log := policy("log", core.SlidingLog{Windows: []core.Window{{Limit: 15, Width: 5 * time.Second}}})
	want, refused := make(map[keyOf]Key), int64(0)
	for _, l := range lines {
		if wait := l.at.Sub(clock.Now()); wait > 0 {
			clock.Advance(wait)
		}
		var charges []core.Charge
		for _, p := range perIP {
			charges = append(charges, core.Charge{Policy: p, Key: core.Must(core.NewKey(l.ip))})
		}
		charges = append(charges,
			core.Charge{Policy: everyone, Key: core.Must(core.NewKey("all"))},
			core.Charge{Policy: leak, Key: core.Must(core.NewKey(l.path, l.ip))})
		if l.path == "/p1" {
			charges = append(charges, core.Charge{Policy: log, Key: core.Must(core.NewKey(l.ip))})
		}
		slices.SortFunc(charges, func(a, b core.Charge) int { return strings.Compare(a.Policy.Name(), b.Policy.Name()) })
		d := gatetest.Must(gate.Decide(t.Context(), charges...))(t)
		if d.Allowed {
			continue
		}
		refused++
		for i, result := range d.Results() {
			if !result.Allowed {
				at := keyOf{result.Policy.Name(), inspect.FormatKey(charges[i].Key)}
				k, now := want[at], clock.Now().UTC()
				if k.Denied == 0 {
					k = Key{Policy: at.policy, Key: at.key, First: now}
				}
				k.Denied++
				k.Last = now
				want[at] = k
			}
		}
	}
	if refused < 1000 || refused > int64(len(lines)-1000) {
		t.Errorf("%d of %d lines are refused: that shows little", refused, len(lines))
	}
	report := r.Report()
	gatetest.Equal(t, len(report.Keys), len(want), "keys that were refused")
	for _, k := range report.Keys {
		gatetest.Equal(t, *k, want[keyOf{k.Policy, k.Key}], "%s under %s", k.Key, k.Policy)
	}
	checkReport(t, report, int64(len(lines)), refused)
}

// checkReport checks that the sums of a report agree.
func checkReport(t *testing.T, r *Report, requests, refused int64) {
	t.Helper()
	if r.Requests != requests || r.Refused != refused || !slices.Equal(r.Skipped, []string{"chat/large"}) {
		t.Errorf("%d requests, %d refused, %v skipped", r.Requests, r.Refused, r.Skipped)
	}
	if r.Late == 0 || r.Latest < time.Second || r.Latest > 5*time.Minute {
		t.Errorf("%d late, by up to %v", r.Late, r.Latest)
	}
	byLimit, byKey := int64(0), r.OtherKeys
	for _, l := range r.Limits {
		byLimit += l.Denied
	}
	for _, k := range r.Keys {
		byKey += k.Denied
	}
	gatetest.Equal(t, byLimit, byKey, "denials by limits, and by keys")
}

func TestFaultsOfConfig(t *testing.T) {
	p := planOf(t, plan)
	for want, cfg := range map[string]Config{
		`"ipp" is no part of a key: it must be ip, user, host, method, path or all`: {Plan: p, Keys: map[string]string{"": "ipp"}},
		`the plan has no limit "none"`:                                              {Plan: p, Prefixes: map[string]string{"none": "/"}},
		`no limit that a log can tell`:                                              {Plan: plans.Plan{}},
	} {
		if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// A request without a user is exempt from a limit on users, and counts under the others.
func TestRequestWithoutPart(t *testing.T) {
	r := core.Must(New(Config{
		Plan: plans.Plan{Limits: map[string]core.Algorithm{"a": core.PerMinute(1), "b": core.PerMinute(2)}},
		Keys: map[string]string{"a": "user"},
	}))
	for range 3 {
		gatetest.NoError(t, r.Decide(t.Context(), &accesslog.Request{Time: 1e12, Client: "192.0.2.1"}))
	}
	got := r.Report()
	if got.Refused != 1 || got.Limits[0].Exempt != 3 || got.Limits[1].Denied != 1 {
		t.Errorf("%+v", got)
	}
}

// An IPv6 address counts by its /64, as keyfunc.RemoteIP has it, and a name as it stands.
func TestAddressesAreKeysOfApplication(t *testing.T) {
	r := core.Must(New(Config{Plan: plans.Plan{Limits: map[string]core.Algorithm{"a": core.PerMinute(1)}}}))
	for _, ip := range []string{"2001:db8::1", "2001:db8::2", "2001:db8:0:1::1", "::ffff:192.0.2.1", "192.0.2.1", "host.example.com"} {
		gatetest.NoError(t, r.Decide(t.Context(), &accesslog.Request{Time: 1e12, Client: ip}))
	}
	got := r.Report()
	if got.Refused != 2 || got.Keys[0].Key != "192.0.2.1" || got.Keys[1].Key != "2001:db8::/64" {
		t.Errorf("%d refused: %+v, %+v", got.Refused, got.Keys[0], got.Keys[1])
	}
}

// Memory does not grow with the number of clients.
func TestMemoryIsBounded(t *testing.T) {
	r := core.Must(New(Config{
		Plan:    plans.Plan{Limits: map[string]core.Algorithm{"api": core.TokenBucket{Rate: 1, Per: time.Hour, Burst: 1}}},
		MaxKeys: 10_000,
	}))
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	var after [2]uint64
	for i := range after {
		for j := range []int{104_000, 20_000}[i] {
			e := accesslog.Request{Time: 1e12 + int64(j), Client: fmt.Sprintf("c%d-%d", i, j/2)}
			gatetest.NoError(t, r.Decide(t.Context(), &e))
		}
		after[i] = heap()
	}
	if rep := r.Report(); len(rep.Keys) > maxKeys || rep.OtherKeys == 0 {
		t.Errorf("%d keys, %d others", len(rep.Keys), rep.OtherKeys)
	}
	if after[1] > after[0]+5<<20 {
		t.Errorf("%d bytes after 104,000 requests, %d after 20,000 more", after[0], after[1])
	}
}

// An overage and a slower limit hold once a quota is spent, and not before.
func TestReplayOfAnOverage(t *testing.T) {
	r := core.Must(New(Config{
		Plan: planOf(t, "default: a\nplans: {a: {limits: {day: {limit: 3, calendar: day, in: UTC, "+
			"then: {overage: 2, slow: {limit: 1, fixed_window: 1h}}, keep: 40d}, minute: {limit: 100, fixed_window: 1m}}}}"),
	}))
	defer func() { gatetest.NoError(t, r.Close(t.Context())) }()
	for n := range int64(8) {
		gatetest.NoError(t, r.Decide(t.Context(), &accesslog.Request{Time: 1_800_000_000_000_000 + n, Line: n + 1, Client: "192.0.2.1"}))
	}
	keys := r.Report().Keys
	gatetest.Need(t, len(keys), 1, "keys that were refused")
	gatetest.Equal(t, fmt.Sprint(keys[0].Policy, keys[0].Denied, keys[0].First.Nanosecond()), "day.slow2 6000", "denied")
}

// A request has at most core.MaxCharges limits, so a plan may have more of them for different paths
// alone.
func TestPlanOfTooManyLimits(t *testing.T) {
	cfg := Config{Plan: plans.Plan{Limits: map[string]core.Algorithm{}}, Prefixes: map[string]string{}}
	for n := range core.MaxCharges + 1 {
		cfg.Plan.Limits[fmt.Sprintf("limit%d", n)] = core.PerMinute(5)
	}
	gatetest.Contains(t, fmt.Sprint(gatetest.Err(New(cfg))), "17 limits of the plan", "error")
	cfg.Prefixes["limit1"] = "/a"
	gatetest.Contains(t, fmt.Sprint(gatetest.Err(New(cfg))), `beginning "/a"`, "error")
	cfg.Prefixes["limit2"] = "/b"
	r := gatetest.Must(New(cfg))(t)
	defer func() { gatetest.NoError(t, r.Close(t.Context())) }()
	for _, path := range []string{"/", "/a/1", "/b"} {
		gatetest.NoError(t, r.Decide(t.Context(), &accesslog.Request{Time: 1e12, Client: "192.0.2.1", Path: path}))
	}
}
