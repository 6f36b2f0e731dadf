package plans_test

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/plans"
)

const everything = `
# Comments are fine.
default: free
plans:
  free:
    limits:
      api: {rate: 100, per: 1m, burst: 20}
      short: {rate: 100, per: 1m}
      gift: {rate: 0, burst: 1_000}
      run: {rate: 0, burst: 500, per: 1d}
      export: {leak: 10, per: 1s, capacity: 50}
      import: {leak: 10, per: 1s}
      login: {limit: 5, fixed_window: 1m, from_first: true}
      search:
        limit: 100
        sliding_window: 1h30m
        buckets: 60
      orders: {limit: 10, sliding_log: 1m}
      both:
        sliding_log:
          - {limit: 10, window: 1s}
          - {limit: 100, window: 1d12h}
      tokens: {limit: 1000000, calendar: month, in: Europe/Berlin, anchor: 2026-01-31}
      hours: {limit: 5, calendar: hour, in: UTC, anchor: "2026-01-31T00:30:00+02:00"}
      beta: deny
      health: unlimited
    caps:
      streams: 2
      jobs: {limit: 10, share: 2, floor: 1}
  free-2027: {}
`

func TestParseSet(t *testing.T) {
	berlin := gatetest.Must(time.LoadLocation("Europe/Berlin"))(t)
	set := parse(t, everything)
	p, ok := set.Plan("free")
	if !ok || set.Default() != "free" || !slices.Equal(set.Names(), []string{"free", "free-2027"}) {
		t.Fatalf("plans %v, default %s", set.Names(), set.Default())
	}
	want := map[string]core.Algorithm{
		"api":    core.TokenBucket{Rate: 100, Per: time.Minute, Burst: 20},
		"short":  core.PerMinute(100),
		"gift":   core.TokenBucket{Burst: 1000},
		"run":    core.TokenBucket{Burst: 500, Per: 24 * time.Hour},
		"export": core.LeakyBucket{Rate: 10, Per: time.Second, Capacity: 50},
		"import": core.LeakyBucket{Rate: 10, Per: time.Second, Capacity: 10},
		"login":  core.FixedWindow{Limit: 5, Window: time.Minute, FromFirst: true},
		"search": core.SlidingWindow{Limit: 100, Window: 90 * time.Minute, Buckets: 60},
		"orders": core.SlidingLog{Windows: []core.Window{{Limit: 10, Width: time.Minute}}},
		"both":   core.SlidingLog{Windows: []core.Window{{Limit: 10, Width: time.Second}, {Limit: 100, Width: 36 * time.Hour}}},
		"beta":   core.DenyAll{}, "health": core.Unlimited{},
	}
	for name, limit := range want {
		if !reflect.DeepEqual(p.Limits[name], limit) {
			t.Errorf("%s is %#v, want %#v", name, p.Limits[name], limit)
		}
	}
	tokens, _ := p.Limits["tokens"].(core.Calendar)
	if tokens.Limit != 1_000_000 || tokens.Every != core.PeriodMonth || tokens.In.String() != "Europe/Berlin" ||
		!tokens.Anchor.Equal(time.Date(2026, 1, 31, 0, 0, 0, 0, berlin)) {
		t.Errorf("tokens is %v", tokens)
	}
	hours, _ := p.Limits["hours"].(core.Calendar)
	if hours.Every != core.PeriodHour || !hours.Anchor.Equal(time.Date(2026, 1, 30, 22, 30, 0, 0, time.UTC)) {
		t.Errorf("hours is %v", hours)
	}
	if len(p.Limits) != len(want)+2 || p.Caps["streams"] != (plans.Cap{Limit: 2}) || p.Caps["jobs"] != (plans.Cap{Limit: 10, Share: 2, Floor: 1}) {
		t.Errorf("%d limits, caps %v", len(p.Limits), p.Caps)
	}
	again, _ := parse(t, everything).Plan("free")
	if again.Limits["tokens"] != p.Limits["tokens"] || again.Limits["hours"] != p.Limits["hours"] {
		t.Error("a file that is read twice has two different calendars")
	}
	p.Limits["api"] = core.DenyAll{}
	if p, _ := set.Plan("free"); p.Limits["api"] == (core.DenyAll{}) {
		t.Error("a Set can be changed")
	}
	if _, ok := set.Plan("gold"); ok {
		t.Error("there is a plan gold")
	}
}

// Periods from a date begin at its midnight, also if the clocks of the zone skip that one.
func TestAnchorAtSkippedMidnight(t *testing.T) {
	at := time.Date(2026, 5, 13, 12, 0, 0, 0, time.UTC) // a Wednesday
	for _, c := range [][4]string{
		{"day", "America/Santiago", "2025-09-07", "2026-05-13T00:00:00-04:00"},
		{"week", "America/Santiago", "2025-09-07", "2026-05-10T00:00:00-04:00"},
		{"month", "America/Santiago", "2025-09-07", "2026-05-07T00:00:00-04:00"},
		{"year", "America/Santiago", "2025-09-07", "2025-09-07T01:00:00-03:00"},
		{"month", "America/Havana", "2025-03-09", "2026-05-09T00:00:00-04:00"},
		{"month", "Asia/Beirut", "2025-03-30", "2026-04-30T00:00:00+03:00"},
		{"month", "Pacific/Apia", "2011-12-30", "2026-04-30T00:00:00+13:00"},
		{"hour", "America/Santiago", "2025-09-07", "2026-05-13T08:00:00-04:00"},
	} {
		plan, _ := parse(t, fmt.Sprintf("{default: a, plans: {a: {limits: {api: {limit: 1, calendar: %s, in: %s, anchor: %s}}}}}",
			c[0], c[1], c[2])).Plan("a")
		period := gatetest.Must(plan.Limits["api"].(core.Calendar).Period(at))(t)
		gatetest.Equal(t, period.From.Format(time.RFC3339), c[3], "the %s from %s in %s begins", c[0], c[2], c[1])
	}
}

func TestJSONIsYAML(t *testing.T) {
	var compact strings.Builder
	text := `{"default": "free", "plans": {"free": {"limits": {"api": {"rate": 100, "per": "1m"}, "off": "deny"}, "caps": {"streams": 2}}}}`
	var v any
	gatetest.NoError(t, json.Unmarshal([]byte(text), &v))
	indented := json.NewEncoder(&compact)
	indented.SetIndent("", "\t") // YAML forbids tabs in front of a line, except in brackets
	gatetest.NoError(t, indented.Encode(v))
	// Some editors write a byte order mark, and line ends of Windows.
	for _, text := range []string{text, compact.String(), "\ufeff" + strings.ReplaceAll(compact.String(), "\n", "\r\n")} {
		p, _ := parse(t, text).Plan("free")
		if p.Limits["api"] != core.PerMinute(100) || p.Limits["off"] != (core.DenyAll{}) || p.Caps["streams"] != (plans.Cap{Limit: 2}) {
			t.Errorf("%v", p)
		}
	}
}

// Names have dots, so that the path of one field may be that of another.
func TestNamesWithDots(t *testing.T) {
	set := parse(t, "default: a\nplans:\n  a: {limits: {api: {rate: 1, per: 1m}, api.rate: deny}}\n  a.limits: {}\n  a.limits.api: {}\n")
	if p, _ := set.Plan("a"); p.Limits["api"] != core.PerMinute(1) || p.Limits["api.rate"] != (core.DenyAll{}) {
		t.Errorf("%v", p)
	}
	if _, err := plans.ParseSet([]byte("default: a\nplans:\n  a: {limits: {}}\n  a.limits: {}\n  a.limits: {}\n")); err == nil ||
		!strings.Contains(err.Error(), "plans.a.limits is there twice: in line 4 and in line 5") {
		t.Error(err)
	}
}

// Every fault is reported at once, with its line and its field.
func TestParseSetFaults(t *testing.T) {
	plan := func(text string) string { return "default: a\nplans:\n  a:\n    limits:\n      x: " + text + "\n" }
	const x = "line 5: plans.a.limits.x"
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"empty":         {"", []string{"is empty"}},
		"comment":       {"# nothing", []string{"is empty"}},
		"text":          {"hello", []string{`is "hello": it must be a mapping`, "plans is empty", "default is missing"}},
		"two documents": {"a: 1\n---\nb: 2", []string{"has 2 documents"}},
		"syntax":        {"default: free\nplans: [1, 2", []string{"line 2: sequence end token ']' not found"}},
		"brackets":      {strings.Repeat("[", 1000), []string{"is nested more than 100 levels deep"}},
		"marks":         {strings.Repeat("- ", 1000), []string{"is nested more than 100 levels deep"}},
		"large":         {"# " + strings.Repeat("x", 1<<20), []string{"has more than 1048576 bytes"}},
		"lines":         {strings.Repeat("\n", 20_001), []string{"has more than 20000 lines"}},
		"unknown field": {"default: a\nplan: {}\nplans: {a: {}}", []string{"line 2: plan is no field here: there are default, plans, routes"}},
		"routes": {"default: a\nplans: {a: {limits: {x: deny, w: deny}}}\nroutes:\n  x: [search, get /x, ' /x', HEAD /x, PURGE /x]\n  y: [/y]\n  z: /z\n  w: []",
			[]string{`line 4: routes.x[0] is "search"`, `routes.x[1] is "get /x"`, `routes.x[2] is " /x"`, `routes.x[3] is "HEAD /x"`, `routes.x[4] is "PURGE /x"`, "line 5: routes.y is no limit of a plan", "line 6: routes.z is \"/z\": it must be a list", "routes.w is empty"}},
		"two plans":        {"default: a\nplans:\n  a: {}\n  b: {}\n  a: {}", []string{"line 3: plans.a is there twice: in line 3 and in line 5"}},
		"unknown default":  {"default: b\nplans: {a: {}}", []string{`line 1: default is "b": there is no such plan`}},
		"no default":       {"plans: {a: {}}", []string{"default is missing"}},
		"no plans":         {"default: a", []string{"plans is empty"}},
		"cap":              {"default: a\nplans: {a: {caps: {s: {limit: 5, share: -1, floor: 6}, t: {}, u: {most: 1}}}}", []string{"plans.a.caps.s.share is -1: it must be between 0 and", "caps.s.floor is 6: it must be between 0 and 5", "caps.t has no number", "caps.u.most is no field here: there are floor, limit, share"}},
		"plan is a list":   {"default: a\nplans: {a: [1]}", []string{"line 2: plans.a is a list: it must be a mapping"}},
		"plan is nothing":  {"default: a\nplans:\n  a:\n", []string{"line 3: plans.a is empty: it must be a mapping"}},
		"name of a plan":   {"default: a\nplans: {a: {}, a b: {}}", []string{`line 2: plans holds the name "a b", which is "a b": it may hold only`}},
		"name of a policy": {"default: a\nplans: {a: {limits: {x y: deny}}}", []string{`plans.a.limits holds the name "x y"`}},
		"caps":             {"default: a\nplans: {a: {caps: {s: 0, t: -1, u: many, v: 1.5}}}", []string{"plans.a.caps.s is 0: it must be between 1 and", "caps.t is -1", `caps.u is "many": it must be a whole number`, "caps.v is 1.5"}},
		// A number that is absent is the cap's own, or follows from another field. A stated 0 is neither.
		"cap of zeros":      {"default: a\nplans: {a: {caps: {s: {limit: 0, share: 2}, t: {limit: 3, share: 0}, u: {limit: 3, floor: 0}}}}", []string{"caps.s.limit", "caps.t.share", "caps.u.floor"}},
		"period of zero":    {plan("{rate: 5, per: 0s}"), []string{x + ".per"}},
		"burst of zero":     {plan("{rate: 5, per: 1m, burst: 0}"), []string{x + ".burst"}},
		"window of zero":    {plan("{limit: 0, sliding_window: 1m}"), []string{x + ".limit"}},
		"log of zero":       {plan("{limit: 0, sliding_log: 1m}"), []string{x}},
		"anchor":            {"default: a\nplans:\n  a: &x {}\n  b: *x\n  c: {<<: *x}", []string{"line 3: plans.a is an anchor", "line 4: plans.b is an anchor", "plans.c.<< is a merge key"}},
		"tag":               {"default: !!str a\nplans: {a: {}}", []string{"default is an anchor, an alias or a tag"}},
		"no algorithm":      {plan("{burst: 5}"), []string{x + " says no algorithm: one of the fields rate, leak, fixed_window, sliding_window, sliding_log, calendar is required"}},
		"two algorithms":    {plan("{rate: 5, per: 1m, calendar: month}"), []string{x + " says 2 algorithms: rate, calendar"}},
		"another's field":   {plan("{rate: 5, per: 1m, window: 1m}"), []string{x + ".window is no field of a limit with rate: there are rate, per, burst, then"}},
		"unknown word":      {plan("none"), []string{x + ` is "none": it must be unlimited, deny or a mapping`}},
		"number":            {plan("5"), []string{x + " is 5: it must be unlimited, deny or a mapping"}},
		"negative":          {plan("{rate: -1, per: -1m, burst: -5}"), []string{x + ".rate is -1: it must not be negative", x + ".per is -1m0s: it must not be negative", x + ".burst is -5: it must not be negative"}},
		"zero":              {plan("{rate: 0, per: 1m}"), []string{x + ".burst is 0: nothing would ever be allowed (deny is a limit of its own)"}},
		"short lifetime":    {plan("{rate: 0, burst: 5, per: 0.5ms}"), []string{x + ".per"}},
		"no period":         {plan("{rate: 5}"), []string{x + ".per"}},
		"fraction":          {plan("{rate: 1.5, per: 1m}"), []string{x + ".rate is 1.5: it must be a whole number such as 1000"}},
		"octal":             {plan("{rate: 010, per: 1m}"), []string{x + ".rate is 010: it must be a whole number"}},
		"large number":      {plan("{rate: 99999999999999999999, per: 1m}"), []string{x + `.rate is "99999999999999999999": it must be a whole number`}},
		"duration":          {plan("{rate: 5, per: minute}"), []string{x + `.per is "minute": it must be a duration such as`}},
		"duration no unit":  {plan("{rate: 5, per: 60}"), []string{x + ".per is 60: it must be a duration"}},
		"days":              {plan("{rate: 5, per: 1.5d}"), []string{x + `.per is "1.5d": it must be a duration`}},
		"many days":         {plan("{rate: 5, per: 99999d}"), []string{x + `.per is "99999d": it must be a duration`}},
		"days and less":     {plan("{rate: 5, per: 1d-1h}"), []string{x + `.per is "1d-1h": it must be a duration`}},
		"leak":              {plan("{leak: 0, per: 1s, capacity: 0}"), []string{x + ".leak is 0: it would never leak", x + ".capacity is 0"}},
		"fixed window":      {plan("{limit: 0, fixed_window: 0s, from_first: 1}"), []string{x + ".from_first is 1: it must be true or false"}},
		"fixed window zero": {plan("{limit: 0, fixed_window: 0s}"), []string{x + ".limit is 0", x + ".fixed_window is 0s: it must be positive"}},
		"sliding window":    {plan("{limit: 1, sliding_window: 1m, buckets: 2000}"), []string{x + ".buckets is 2000: it must be between 1 and 1000"}},
		"log":               {plan("{sliding_log: [{limit: 0, window: 1s}, {limit: 5, window: 1s}]}"), []string{x + ".sliding_log[0].limit is 0", x + ".sliding_log[1].window is 1s, as sliding_log[0].window is"}},
		"log's field":       {plan("{sliding_log: [{limit: 1, per: 1s}]}"), []string{x + ".sliding_log[0].per is no field here: there are limit, window"}},
		"log and limit":     {plan("{limit: 1, sliding_log: [{limit: 1, window: 1s}]}"), []string{x + ".limit stands beside a list"}},
		"calendar":          {plan("{limit: 1, calendar: fortnight, in: Atlantis/Capital}"), []string{x + `.calendar is "fortnight": it must be minute, hour`, x + `.in is "Atlantis/Capital": there is no such time zone`}},
		"calendar no zone":  {plan("{limit: 0, calendar: month}"), []string{x + ".in is missing: it must be a time zone, such as UTC", x + ".limit is 0"}},
		"calendar Local":    {plan("{limit: 1, calendar: month, in: Local}"), []string{x + `.in is "Local": there is no such time zone`}},
		"calendar anchor":   {plan("{limit: 1, calendar: month, in: UTC, anchor: January}"), []string{x + `.anchor is "January": it must be a date such as 2026-01-31`}},
		"then": {plan("{limit: 9, calendar: day, in: UTC, then: {overage: 0, slow: {rate: 1, per: 1m, then: {}}, more: 1}}"), []string{
			x + ".then.more is no field here: there are overage, slow", x + ".then.slow.then is of a limit that answers", x + ".overage.limit is 0"}},
		"then empty":       {plan("{limit: 9, calendar: day, in: UTC, then: {}}"), []string{x + ".then is empty: it must have an overage or a slow"}},
		"then of a rate":   {plan("{rate: 9, per: 1m, then: {overage: 5}}"), []string{x + ".then is for a quota"}},
		"then of a window": {plan("{limit: 9, sliding_window: 1m, then: {overage: 5}}"), []string{x + ".then is no field of a limit with sliding_window"}},
		"then twice":       {plan("{limit: 9, calendar: day, in: UTC, then: {overage: 5}}\n      x.overage: deny"), []string{"line 6: plans.a.limits.x.overage is there twice"}},
		"answers": {plan("{limit: 9, calendar: day, in: UTC, then: {overage: 5}}\n      x.slow/m: deny\n  b:\n    limits:\n" +
			"      x.kept: deny\n      x.overage.kept: deny\n      y.slow: deny"), []string{
			"line 6: plans.a.limits.x.slow/m has the name", "line 9: plans.b.limits.x.kept has the name", "plans.b.limits.x.overage.kept has the name"}},
		"keep": {plan("{limit: 9, calendar: day, in: UTC, keep: -1h}"), []string{x + ".keep is -1h0m0s: it must not be negative"}},
		"keep of a model": {plan("deny\n      x/large: {limit: 9, calendar: day, in: UTC, keep: 1d}"), []string{
			"line 6: plans.a.limits.x/large.keep is of a limit for a model, which nobody keeps"}},
		"keep of a window": {plan("{limit: 9, fixed_window: 1h, keep: 1d}"), []string{x + ".keep is no field of a limit with fixed_window"}},
		"several": {
			"default: c\nplans:\n  a: {limits: {x: {rate: 0}}, caps: {s: 0}}\n  b: {limit: 5}",
			[]string{"line 4: plans.b.limit is no field here: there are caps, limits", `line 1: default is "c"`, "line 3: plans.a.limits.x.burst is 0", "line 3: plans.a.caps.s is 0"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			set, err := plans.ParseSet([]byte(c.text))
			if err == nil || set != nil {
				t.Fatalf("%v, %v", set, err)
			}
			lines := strings.Split(err.Error(), "\n")
			if len(lines) != len(c.want) {
				t.Errorf("%d faults, want %d:\n%v", len(lines), len(c.want), err)
			}
			for _, w := range c.want {
				if !slices.ContainsFunc(lines, func(line string) bool {
					return strings.HasPrefix(line, "plans: ") && strings.Contains(line, w)
				}) {
					t.Errorf("%v\ndoes not say %q", err, w)
				}
			}
		})
	}
}

func TestReadSetNamesItsFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "plans.yaml")
	gatetest.NoError(t, os.WriteFile(path, []byte("default: a\nplans: {a: {caps: {s: 0}}}\n"), 0o600))
	if _, err := plans.ReadSet(path); err == nil || !strings.HasPrefix(err.Error(), "plans: "+path+": line 2: plans.a.caps.s is 0") {
		t.Error(err)
	}
}

// A Set shares no memory with what it was made of, or with what it returns.
func TestSetIsImmutable(t *testing.T) {
	log := core.SlidingLog{Windows: []core.Window{{Limit: 1, Width: time.Minute}}}
	set := core.Must(plans.NewSet(plans.SetConfig{Default: "a", Plans: map[string]plans.Plan{"a": {Limits: map[string]core.Algorithm{"x": log}}}}))
	log.Windows[0].Limit = -1
	for range 2 {
		p, _ := set.Plan("a")
		windows := p.Limits["x"].(core.SlidingLog).Windows
		gatetest.Equal(t, windows[0].Limit, 1, "limit")
		windows[0].Limit = -1
	}
}

func TestNewSetFaults(t *testing.T) {
	_, err := plans.NewSet(plans.SetConfig{Default: "a", Plans: map[string]plans.Plan{"a": {
		Limits: map[string]core.Algorithm{"x": nil, "y": core.PerHour(-1), "z": &core.TokenBucket{}, "": core.DenyAll{}, "x.kept/m": core.DenyAll{}},
	}}})
	for _, w := range []string{
		"plans.a.limits.x is nil: it must be a limit", "plans.a.limits.y.rate is -1",
		"plans.a.limits.z is not valid: *core.TokenBucket must be a value", "plans.a.limits holds an empty name",
		"plans.a.limits.x.kept/m has the name of what is kept",
	} {
		if err == nil || !strings.Contains(err.Error(), w) {
			t.Errorf("%v\ndoes not say %q", err, w)
		}
	}
	set, err := plans.NewSet(plans.SetConfig{Default: "a", Plans: map[string]plans.Plan{"a": {
		Limits: map[string]core.Algorithm{"x": core.Block{Strikes: 1, Within: time.Hour, For: time.Hour}},
	}}})
	if err != nil || set.Default() != "a" {
		t.Error(err)
	}
}

// A text is a Set or an error, and every limit of a Set is one that a policy accepts.
func FuzzParseSet(f *testing.F) {
	f.Add(everything)
	f.Add(twoPlans)
	f.Add(`{"default": "a", "plans": {"a": {"limits": {"x": {"rate": 5, "per": "1m"}}}}}`)
	f.Add("default: a\nplans:\n  a: &x {}\n  b: *x\n  ? c\n  : {<<: *x}")
	f.Add("default: a\nplans: {a: {limits: {x: {sliding_log: [{limit: 1, window: 1s}]}}}}")
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 4096 {
			return // the parser takes more than linear time
		}
		set, err := plans.ParseSet([]byte(text))
		if (err == nil) == (set == nil) {
			t.Fatalf("%v, %v", set, err)
		}
		if err != nil {
			return
		}
		for _, name := range set.Names() {
			p, _ := set.Plan(name)
			for policy, limit := range p.Limits {
				if _, err := core.NewPolicy(core.PolicyConfig{Name: policy, Algorithm: limit}); err != nil {
					t.Error(err)
				}
			}
		}
		if _, err := plans.New(plans.Config{Set: set}); err != nil {
			t.Error(err)
		}
	})
}

// A plan may have a name that YAML takes for a number, a date or a truth value.
func TestNamesOfPlansAreText(t *testing.T) {
	t.Parallel()
	names := []string{"no", "off", "yes", "2026", "1e3", "0123", "true", "1.10", "2026-01-31"}
	text := "default: no\nplans:\n"
	for i, name := range names {
		if name == "true" {
			name = `"true"`
		}
		text += "  " + name + ": {limits: {api: {rate: " + strconv.Itoa(i+1) + ", per: 1m}}}\n"
	}
	set := core.Must(plans.ParseSet([]byte(text)))
	for i, name := range names {
		n := int64(i + 1)
		plan, ok := set.Plan(name)
		if !ok {
			t.Errorf("no plan %s", name)
			continue
		}
		want := core.TokenBucket{Rate: n, Per: time.Minute, Burst: n}
		gatetest.Equal(t, plan.Algorithm("api"), core.Algorithm(want), "%s", name)
	}
}

// Each limit counts the requests for its routes.
func TestRoutesOfLimits(t *testing.T) {
	t.Parallel()
	book := newBook(t, plans.Config{Set: parse(t, `
default: free
plans: {free: {limits: {all: unlimited, search: unlimited, make: unlimited}}}
routes: {search: [/search, "GET /find/{q...}"], make: [POST /things]}
`)})
	for _, c := range []struct {
		method, pattern string
		counts          string
	}{
		{"GET", "GET /search", "all search"},
		{"POST", "/search", "all search"},
		{"GET", "example.com/search", "all search"},
		{"HEAD", "GET /find/{q...}", "all search"},
		{"POST", "/find/{q...}", "all"},
		{"POST", "POST /things", "all make"},
		{"GET", "/things", "all"},
		{"GET", "", "all"},
	} {
		r := httptest.NewRequest(c.method, "/search", nil)
		r.Pattern = c.pattern
		var counts []string
		for _, limit := range []string{"all", "search", "make"} {
			if book.Counts(limit, r) {
				counts = append(counts, limit)
			}
		}
		gatetest.Equal(t, strings.Join(counts, " "), c.counts, "%s %q: count", c.method, c.pattern)
	}
}

// Names fixes the names that later sets must have.
func TestNamesAreFixed(t *testing.T) {
	t.Parallel()
	const good = "default: free\nplans:\n  free: {limits: {a: deny, b/large: deny, b: deny}, caps: {s: 1}}\n"
	book := newBook(t, plans.Config{Set: parse(t, good)})
	limits, caps, err := book.Names()
	if err != nil || !slices.Equal(limits, []string{"a", "b"}) || !slices.Equal(caps, []string{"s"}) {
		t.Fatal(limits, caps, err)
	}
	pro := "  pro: {limits: {a: deny}}\n"
	for name, c := range map[string]struct{ set, fault string }{
		"more":             {good + strings.Replace(pro, "a: deny}", "a: deny, b: deny, c: deny}, caps: {s: 2}", 1), "the limit c"},
		"a limit missing":  {good + pro, "plans.pro.limits do not name b"},
		"a cap missing":    {good + pro, "plans.pro.caps do not name s"},
		"another cap":      {strings.Replace(good, "s: 1", "s: 1, t: 1", 1), "the cap t"},
		"only by a model":  {strings.Replace(good, ", b: deny", "", 1), "plans.free.limits do not name b"},
		"the same, higher": {strings.Replace(good, "s: 1", "s: 7", 1), ""},
	} {
		err := book.Replace(parse(t, c.set))
		if (c.fault == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), c.fault) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, _, err := newBook(t, plans.Config{Set: parse(t, good+pro)}).Names(); err == nil {
		t.Error("Names tells no fault")
	}
}

// What a file has for then are limits of their own, of the same periods.
func TestThenOfAFile(t *testing.T) {
	t.Parallel()
	month := func(n int64) core.Calendar { return core.Calendar{Limit: n, Every: core.PeriodMonth, In: time.UTC} }
	kept := core.TokenBucket{Burst: 1e15, Per: (32 + 40) * 24 * time.Hour}
	set := parse(t, `
default: a
plans:
  a:
    limits:
      calendar: {limit: 9, calendar: month, in: UTC, then: {overage: 5, slow: {rate: 1, per: 1m}}}
      subscription: {limit: 9, calendar: month, in: UTC, anchor: subscription, then: {overage: 5}, keep: 40d}
      window: unlimited
      window/large: {limit: 9, fixed_window: 1h, then: {overage: 5}}
      credits: {rate: 0, burst: 9, then: {slow: unlimited}}
`)
	want := map[string]core.Algorithm{
		"calendar": month(9), "calendar.overage": month(5), "calendar.slow": core.PerMinute(1),
		"subscription": plans.Subscribed{Calendar: month(9)}, "subscription.overage": plans.Subscribed{Calendar: month(5)},
		"subscription.kept": kept, "subscription.overage.kept": kept,
		"window":               core.Unlimited{},
		"window/large":         core.FixedWindow{Limit: 9, Window: time.Hour},
		"window.overage/large": core.FixedWindow{Limit: 5, Window: time.Hour},
		"credits":              core.TokenBucket{Burst: 9}, "credits.slow": core.Unlimited{},
	}
	p, _ := set.Plan("a")
	if !reflect.DeepEqual(p.Limits, want) {
		t.Errorf("%v, want %v", p.Limits, want)
	}
	book := newBook(t, plans.Config{Set: set})
	if limits, _, err := book.Names(); err != nil || !slices.Equal(limits, []string{"calendar", "credits", "subscription", "window"}) {
		t.Errorf("%v, %v", limits, err)
	}
	if long := book.Then(strings.Repeat("x", 58)); len(long) != 1 || !strings.HasSuffix(long[0], "x.slow") {
		t.Errorf("%v", long)
	}
}
