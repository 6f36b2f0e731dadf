package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/once"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/hub"
	"github.com/headgate/headgate/internal/inspect"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/plans"
)

const changedPlans = `
default: free
plans:
  free:
    limits:
      api: {rate: 1, per: 1h, burst: 3}
      fast: {rate: 1, per: 2s, burst: 3}
      tokens: {limit: 100, calendar: month, in: UTC}
      minute: {limit: 5, sliding_window: 1m}
      chat/large: {rate: 1, per: 1m}
  pro:
    limits:
      fast: {rate: 5, per: 1s, burst: 100}
      api: {rate: 1, per: 1h, burst: 9}
`

// application is a Gate as an application has it, whose limits the command looks at.
type application struct {
	t      *testing.T
	client redis.UniversalClient
	gate   *core.Gate
	key    core.Key
	flags  []string // of the command, for this Redis
}

func newApplication(t *testing.T, client redis.UniversalClient, flags ...string) *application {
	t.Helper()
	gate := core.Must(core.NewRedis(client, core.Config{Timeout: 30 * time.Second, DisableDenialCache: true}))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = gate.Close(ctx)
	})
	return &application{t, client, gate, core.Must(core.NewKey("acme", "user-1")), flags}
}

func limitBy(name string, a core.Algorithm) *core.Policy {
	return core.Must(core.NewPolicy(core.PolicyConfig{Name: name, Algorithm: a}))
}

var (
	apiPolicy    = limitBy("api", core.TokenBucket{Rate: 1, Per: time.Hour, Burst: 3})
	tokensPolicy = core.Must(core.NewPolicy(core.PolicyConfig{
		Name: "tokens", Raisable: true, Algorithm: core.Calendar{Limit: 100, Every: core.PeriodMonth, In: time.UTC},
	}))
	minutePolicy = limitBy("minute", core.SlidingWindow{Limit: 5, Window: time.Minute})
	fixedPolicy  = limitBy("fixed", core.FixedWindow{Limit: 5, Window: time.Hour})
	loginsPolicy = limitBy("logins", core.Block{Strikes: 3, Within: time.Minute, For: time.Hour})
)

// states has the application state its policies in Redis, and waits until they stand there.
func (a *application) states(policies ...*core.Policy) {
	a.t.Helper()
	for _, p := range policies {
		core.Inside(hub.Pass{}).State(a.gate, p, false)
	}
	for {
		all := gatetest.Must(inspect.ReadStated(a.t.Context(), a.client, core.Inside(hub.Pass{}).Of(a.gate).Prefix))(a.t)
		stated := func(p *core.Policy) bool {
			return slices.ContainsFunc(all, func(s inspect.Stated) bool { return s.Name == p.Name() })
		}
		if !slices.ContainsFunc(policies, func(p *core.Policy) bool { return !stated(p) }) {
			return
		}
		select {
		case <-a.t.Context().Done():
			a.t.Fatal("the policies are not stated")
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// spend spends as a request of the application does, and returns how that stands.
func (a *application) spend(p *core.Policy, cost int64) core.Result {
	a.t.Helper()
	d := gatetest.Must(a.gate.Decide(a.t.Context(), core.Charge{Policy: p, Key: a.key, Cost: cost}))(a.t)
	return d.At(0)
}

// whyJSON is the answer of why, as a script reads it.
type whyJSON struct {
	Key        string
	Passes     bool
	RetryAfter *float64 `json:"retry_after_seconds"`
	Opens      string
	Plan       string
	Override   bool
	Reasons    []struct {
		Rule, Key, Text string
		IsSlot          bool `json:"is_slot"`
	}
	Counts []any `json:"unknown_counts"`
}

// Each test of a command that changes something runs on one server and on a cluster.
func eachTopology(t *testing.T, f func(t *testing.T, a *application)) {
	t.Helper()
	t.Parallel()
	t.Run("server", func(t *testing.T) {
		t.Parallel()
		srv := redistest.Start(t)
		f(t, newApplication(t, srv.Client(t), "--redis", urlOf(srv)))
	})
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		c := redistest.StartCluster(t, 3)
		f(t, newApplication(t, c.Client(t), "--redis", "redis://"+c.Addrs[2]))
	})
}

// run runs the command.
func (a *application) run(args ...string) result {
	a.t.Helper()
	return headgate(a.t, slices.Concat(args, a.flags)...)
}

// why asks why the next request of the key would be denied.
func (a *application) why(more ...string) (whyJSON, result) {
	a.t.Helper()
	return headgateJSON[whyJSON](a.t, slices.Concat([]string{"why", "acme/user-1"}, more, a.flags)...)
}

// peek returns how the key stands under a policy.
func (a *application) peek(p *core.Policy) core.Result {
	a.t.Helper()
	d := gatetest.Peek(a.t, a.gate, core.Charge{Policy: p, Key: a.key})
	return d.At(0)
}

// Why names each rule that denies, and the second at which it opens.
func TestWhy(t *testing.T) {
	eachTopology(t, func(t *testing.T, a *application) {
		file := write(t, "plans.yaml", changedPlans)
		why := func(more ...string) whyJSON {
			t.Helper()
			v, r := a.why(append(more, "--policies", file)...)
			gatetest.Equal(t, r.code, map[bool]int{true: exitOK, false: exitNo}[v.Passes], "exit code")
			return v
		}
		if v := why(); !v.Passes || len(v.Reasons) != 0 || v.Plan != "free" || v.Override {
			t.Errorf("untouched: %+v", v)
		}
		for a.spend(apiPolicy, 1).Allowed {
		}
		v := why()
		opens, err := time.Parse(time.RFC3339, v.Opens)
		if len(v.Reasons) != 1 || v.Reasons[0].Rule != "api" || v.Reasons[0].Key != "acme/user-1" || err != nil || time.Until(opens) > time.Hour+time.Second {
			t.Errorf("exhausted: %+v, %v", v, err)
		}
		gatetest.Contains(t, a.run("why", "acme/user-1", "--policies", file).out, "api", "the table lacks api")
		if v := why("--name", "pro"); !v.Passes || v.Plan != "pro" {
			t.Errorf("under pro: %+v", v)
		}
		gatetest.NoError(t, a.gate.Reset(t.Context(), core.Charge{Policy: apiPolicy, Key: a.key}))
		for a.spend(loginsPolicy, 1).Allowed {
		}
		if v := why(); len(v.Reasons) != 1 || v.Reasons[0].Rule != "logins" || *v.RetryAfter < 3000 {
			t.Errorf("block: %+v", v)
		}
		gatetest.NoError(t, a.gate.Reset(t.Context(), core.Charge{Policy: loginsPolicy, Key: a.key}))
		streams := core.Must(semaphore.New(a.gate, semaphore.Config{Name: "streams"}))
		lease := gatetest.Must(streams.Acquire(t.Context(), semaphore.Request{Caps: []semaphore.Cap{{Key: a.key, Limit: 1}}}))(t)
		if v := why(); len(v.Reasons) != 1 || v.Reasons[0].Rule != "streams" || !v.Reasons[0].IsSlot {
			t.Errorf("slot: %+v", v)
		}
		gatetest.NoError(t, lease.Release(t.Context()))
		if v := why(); !v.Passes {
			t.Errorf("released: %+v", v)
		}
		set := gatetest.Must(plans.ReadSet(file))(t)
		// What the tenant has spent counts for its users.
		tenant := core.Charge{Policy: tokensPolicy, Key: core.Must(core.NewKey("acme")), Cost: 100}
		gatetest.Decide(t, a.gate, tenant)
		if v := why(); len(v.Reasons) != 1 || v.Reasons[0].Rule != "tokens" || v.Reasons[0].Key != "acme" {
			t.Errorf("tenant: %+v", v)
		}
		gatetest.NoError(t, a.gate.Reset(t.Context(), tenant))
		book := core.Must(plans.New(plans.Config{Set: set, Client: a.client}))
		defer book.Close()
		gatetest.NoError(t, book.SetOverride(t.Context(), "acme", plans.Override{Limits: map[string]core.Algorithm{"beta": core.DenyAll{}}}))
		if v := why(); !v.Override || len(v.Reasons) != 1 || v.Reasons[0].Rule != "beta" || v.RetryAfter != nil {
			t.Errorf("override: %+v", v)
		}
	})
}

func TestReset(t *testing.T) {
	eachTopology(t, func(t *testing.T, a *application) {
		spendAll := func() {
			for _, p := range []*core.Policy{apiPolicy, tokensPolicy, loginsPolicy} {
				for a.spend(p, 1).Allowed {
				}
			}
		}
		allowed := func() string {
			var all []bool
			for _, p := range []*core.Policy{apiPolicy, tokensPolicy, loginsPolicy} {
				all = append(all, a.peek(p).Allowed)
			}
			return fmt.Sprint(all)
		}
		reset := func(more ...string) result { return a.run(append([]string{"reset", "acme/user-1"}, more...)...) }
		reset().want(t, exitNothing)
		spendAll()
		reset("--policy", "api").want(t, exitOK)
		gatetest.Equal(t, allowed(), "[true false false]", "allowed")
		spendAll()
		reset("--policy", "tokens,logins").want(t, exitOK)
		gatetest.Equal(t, allowed(), "[false true true]", "allowed")
		spendAll()
		reset("--json").want(t, exitOK, `"tokens"`)
		gatetest.Equal(t, allowed(), "[true true true]", "allowed")
		reset("--policy", "none").want(t, exitNothing)
	})
}

// What a Once has handled is handled once, unless the Once itself is reset.
func TestResetLeavesOnce(t *testing.T) {
	eachTopology(t, func(t *testing.T, a *application) {
		payments := core.Must(once.New(a.gate, once.Config{Name: "payments", Window: time.Hour}))
		handled := 0
		pay := func(want int) {
			t.Helper()
			err := payments.Do(t.Context(), a.key, 0, func(context.Context) error { handled++; return nil })
			if handled != want || err != nil && !errors.Is(err, once.ErrDone) {
				t.Errorf("handled %d times, want %d: %v", handled, want, err)
			}
		}
		pay(1)
		a.run("reset", "acme/user-1").want(t, exitNothing)
		a.spend(apiPolicy, 3)
		a.run("reset", "acme/user-1").want(t, exitOK)
		gatetest.Equal(t, a.peek(apiPolicy).Used, 0, "used")
		pay(1)
		a.run("reset", "acme/user-1", "--policy", "payments.once").want(t, exitOK)
		pay(2)
	})
}

// A limit of the plan is under the policy that programs state: what running requests hold is not
// given back, and nothing is charged before the ledger is asked.
func TestAdjustHeedsWhatIsStated(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	a := newApplication(t, srv.Client(t), "--redis", urlOf(srv))
	month := core.Calendar{Limit: 100, Every: core.PeriodYear, In: time.UTC}
	here := month
	here.In = time.FixedZone("here", 3600) // which the command does not know
	held := core.Must(core.NewPolicy(core.PolicyConfig{Name: "held", Algorithm: here, Hold: time.Hour}))
	sold := core.Must(core.NewPolicy(core.PolicyConfig{
		Name: "sold", Algorithm: month,
		Ledger: func(context.Context, core.Key, core.Span) (int64, error) { return 50, nil },
	}))
	r, _, err := a.gate.Charge(t.Context(), core.Charge{Policy: held, Key: a.key, Cost: 60, Limit: month})
	gatetest.NoError(t, err)
	defer func() { _ = r.Cancel(context.Background()) }()
	a.states(held, sold)
	file := write(t, "plans.yaml", "default: free\nplans: {free: {limits: {held: {limit: 100, calendar: year, in: UTC}}}}\n")
	adjust := func(more ...string) result { return a.run(append([]string{"adjust", "acme/user-1"}, more...)...) }
	adjust("held", "--policies", file, "--give", "10").want(t, exitNo)
	adjust("sold", "--charge", "10").want(t, exitNo, "asks the ledger")
	a.run("why", "acme/user-1", "--policies", file).want(t, exitUnknown, "asks the ledger")
	gatetest.Equal(t, a.spend(sold, 1).Used, 51, "used")
	adjust("sold", "--charge", "10").want(t, exitOK)
	gatetest.Equal(t, a.peek(sold).Used, 61, "used")
}

func TestAdjust(t *testing.T) {
	eachTopology(t, func(t *testing.T, a *application) {
		file := write(t, "plans.yaml", changedPlans)
		adjust := func(policy string, more ...string) result {
			return a.run(append([]string{"adjust", "acme/user-1", policy, "--policies", file, "--json"}, more...)...)
		}
		adjust("tokens", "--give", "10").want(t, exitNo, "no program states")
		a.spend(tokensPolicy, 90)
		a.states(apiPolicy, tokensPolicy, minutePolicy, fixedPolicy, limitBy("fast", core.DenyAll{}))
		for _, c := range []struct {
			args        []string
			used, limit int64
			code        int
		}{
			{[]string{"--give", "10", "--id", "a"}, 80, 100, exitOK},
			{[]string{"--give", "10", "--id", "a"}, 80, 100, exitNo},
			{[]string{"--charge", "5"}, 85, 100, exitOK},
			{[]string{"--give", "1000"}, 0, 100, exitOK},
			{[]string{"--give", "1"}, 0, 100, exitNo},
			{[]string{"--raise", "50", "--until", "72h", "--id", "r"}, 0, 150, exitOK},
			{[]string{"--raise", "50", "--until", "72h", "--id", "r"}, 0, 150, exitNo},
			{[]string{"--raise", "7", "--until", "2099-12-31T00:00:00Z"}, 0, 157, exitOK},
		} {
			adjust("tokens", c.args...).want(t, c.code, fmt.Sprintf(`"changed": %v`, c.code == exitOK))
			if now := a.peek(tokensPolicy); now.Used != c.used || now.Limit != c.limit {
				t.Errorf("%v: used %d of %d, want %d of %d", c.args, now.Used, now.Limit, c.used, c.limit)
			}
		}
		a.run("why", "acme/user-1", "--policies", file).want(t, exitOK, "0 of 157") // sees the raises
		adjust("fast", "--charge", "2").want(t, exitOK, `"units": -2`)              // only plans give it a limit
		a.spend(apiPolicy, 3)
		adjust("api", "--give", "2").want(t, exitOK)
		if now := a.peek(apiPolicy); now.Used > 1 {
			t.Errorf("bucket: %d used", now.Used)
		}
		for want, args := range map[string][]string{
			"cannot be given back":      {"minute", "--give", "1"},
			"--raise needs --until":     {"tokens", "--raise", "1"},
			"must be a time such as":    {"tokens", "--raise", "1", "--until", "soon"},
			"at least one of the flags": {"tokens"},
			"must not be negative":      {"tokens", "--give=-1"},
			"the period has passed":     {"tokens", "--raise", "1", "--until", "2001-01-01T00:00:00Z"},
			"none of the others can be": {"tokens", "--give", "1", "--charge", "1"},
			"it must be a time":         {"tokens", "--raise", "1", "--until", "1 day"},
			"--until is for --raise":    {"tokens", "--give", "1", "--until", "1h"},
		} {
			adjust(args[0], args[1:]...).want(t, exitUsage, want)
		}
		// What no program heeds is refused.
		for want, args := range map[string][]string{
			`states a policy "none"`: {"none", "--give", "1"},
			"fixed is not Raisable":  {"fixed", "--raise", "1", "--until", "1h"},
			"api is not Raisable":    {"api", "--raise", "1", "--until", "1h"},
		} {
			adjust(args[0], args[1:]...).want(t, exitNo, want)
		}
	})
}

// A raise of a key needs no file: programs state their policies.
func TestWhyAsksPrograms(t *testing.T) {
	eachTopology(t, func(t *testing.T, a *application) {
		if v, r := a.why(); r.code != exitUnknown || v.Passes {
			t.Errorf("nothing is stated: exit code %d: %s%s", r.code, r.out, r.err)
		}
		a.spend(tokensPolicy, 90)
		a.states(tokensPolicy)
		if v, r := a.why(); r.code != exitOK || !v.Passes {
			t.Errorf("exit code %d: %s%s", r.code, r.out, r.err)
		}
		a.spend(tokensPolicy, 10)
		if v, r := a.why(); r.code != exitNo || len(v.Reasons) != 1 || v.Reasons[0].Rule != "tokens" {
			t.Errorf("spent: exit code %d: %s%s", r.code, r.out, r.err)
		}
	})
}

func TestBlock(t *testing.T) {
	eachTopology(t, func(t *testing.T, a *application) {
		block := func(args ...string) result { return a.run(append([]string{"block"}, args...)...) }
		blocked := func() bool { return !a.peek(loginsPolicy).Allowed }
		block("acme/user-1", "logins", "--lift").want(t, exitNothing)
		for _, name := range []string{"logins", "api"} {
			block("acme/user-1", name, "--for", "2h").want(t, exitNo)
			gatetest.Equal(t, blocked(), false, "blocked under %s, which is not stated", name)
		}
		a.states(loginsPolicy, apiPolicy)
		block("acme/user-1", "api", "--for", "2h").want(t, exitNo, "is no Block")
		block("acme/user-1", "logins", "--for", "2h").want(t, exitOK)
		gatetest.Equal(t, blocked(), true, "blocked")
		block("acme/user-1", "logins", "--for", "1h").want(t, exitOK, "acme/user-1 is blocked under logins until")
		block("--list", "logins").want(t, exitOK, "acme/user-1  2 h")
		a.run("show", "acme/user-1").want(t, exitOK, "blocked")
		block("acme/user-1", "logins", "--lift").want(t, exitOK)
		gatetest.Equal(t, blocked(), false, "blocked")
		block("--list", "logins", "--json").want(t, exitOK, `"blocked": []`)
		for want, args := range map[string][]string{
			"2 are needed":                         {"logins", "--for", "1h"},
			"at least one of the flags":            {"acme", "logins"},
			"headgate: the block would have ended": {"acme", "logins", "--for", "-1h"},
			"POLICY is \"a b\"":                    {"acme", "a b", "--for", "1h"},
		} {
			block(args...).want(t, exitUsage, want)
		}
	})
}

func TestEvict(t *testing.T) {
	eachTopology(t, func(t *testing.T, a *application) {
		streams := core.Must(semaphore.New(a.gate, semaphore.Config{Name: "streams", TTL: 30 * time.Second}))
		tenant := core.Must(core.NewKey("acme"))
		acquire := func(key core.Key) *semaphore.Lease {
			lease := gatetest.Must(streams.Acquire(t.Context(), semaphore.Request{Caps: []semaphore.Cap{{Key: tenant, Limit: 9}, {Key: key, Limit: 9}}}))(t)
			t.Cleanup(func() { _ = lease.Release(context.Background()) })
			return lease
		}
		one, two, other := acquire(a.key), acquire(a.key), acquire(core.Must(core.NewKey("acme", "user-2")))
		evict := func(args ...string) result {
			return a.run(append([]string{"evict", "acme/user-1", "streams"}, args...)...)
		}
		lost := func(l *semaphore.Lease) {
			t.Helper()
			select {
			case <-l.Context().Done():
				gatetest.Is(t, context.Cause(l.Context()), semaphore.ErrLeaseLost, "got")
			case <-time.After(time.Minute): // on a cluster it learns of it when it renews
				t.Error("the holder goes on")
			}
		}
		a.run("why", "acme/user-1").want(t, exitUnknown, "streams has a slot for it")
		evict("nobody").want(t, exitNothing)
		evict(one.ID()).want(t, exitOK, "streams has evicted 1 of its holders and waiters.")
		lost(one)
		evict(two.ID(), "--json").want(t, exitOK, `"units": 1`)
		lost(two)
		if other.Context().Err() != nil {
			t.Error("the holder of another key has lost its lease")
		}
		evict(other.ID()).want(t, exitOK, "streams has evicted 1 of its holders and waiters.") // below acme too
		lost(other)
		evict().want(t, exitUsage, "at least 3 arg")
	})
}

// A person is asked before something changes, and a script is not.
func TestPersonIsAsked(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	a := newApplication(t, srv.Client(t))
	for _, c := range []struct {
		says  string
		more  []string
		code  int
		asked bool
	}{
		{"n\n", nil, exitNo, true}, {"\n", nil, exitNo, true}, {"yes\n", nil, exitOK, true}, {"", []string{"--yes"}, exitOK, false},
	} {
		for a.spend(apiPolicy, 1).Allowed {
		}
		cmd := process(t.Context(), append([]string{"reset", "acme/user-1", "--policy", "api", "--redis", urlOf(srv)}, c.more...)...)
		terminal := gatetest.Must(pty.Start(cmd))(t)
		gatetest.Must(io.WriteString(terminal, c.says))(t)
		text, _ := io.ReadAll(terminal) // until the other side is closed
		_ = cmd.Wait()
		_ = terminal.Close()
		if code := cmd.ProcessState.ExitCode(); code != c.code || strings.Contains(string(text), "Forget what acme/user-1 has spent under api? [y/N]") != c.asked {
			t.Errorf("%q %v: exit code %d, want %d: %q", c.says, c.more, code, c.code, text)
		}
		d := gatetest.Must(a.gate.Peek(t.Context(), core.Charge{Policy: apiPolicy, Key: a.key, Cost: 3}))(t)
		gatetest.Equal(t, d.Allowed, c.code == exitOK, "%q %v", c.says, c.more)
	}
}

// A limit that the program gives a key itself is not known, so why never says that it passes.
func TestWhyDoesNotKnowLimitsOfCharges(t *testing.T) {
	eachTopology(t, func(t *testing.T, a *application) {
		own := core.Calendar{Limit: 3, Every: core.PeriodMonth, In: time.UTC}
		charge := core.Charge{Policy: core.Must(core.NewPolicy(core.PolicyConfig{
			Name: "month", Algorithm: core.Calendar{Limit: 1000, Every: core.PeriodMonth, In: time.UTC},
		})), Key: a.key, Cost: 3, Limit: own}
		shadow := core.Charge{Policy: core.Must(core.NewPolicy(core.PolicyConfig{
			Name: "shadow", Shadow: true, Algorithm: core.PerMinute(10),
		})), Key: a.key, Cost: 3, Limit: core.PerMinute(10)}
		if d, err := a.gate.Decide(t.Context(), charge, shadow); err != nil || !d.Allowed {
			t.Fatal(d, err)
		}
		a.states(charge.Policy)
		a.states(shadow.Policy)
		r := a.run("why", "acme/user-1")
		if r.code != exitUnknown || !strings.Contains(r.out, "is not known") ||
			strings.Contains(r.out, "month at acme/user-1 passes") ||
			!strings.Contains(r.out, "fits no limit that is known: calendar, ") ||
			strings.Contains(r.out, "known: bucket") { // a Shadow denies nothing, so its limit is listed
			t.Errorf("exit code %d: %s%s", r.code, r.out, r.err)
		}
		// A file of plans that has it, makes it known.
		file := write(t, "plans.yaml",
			"default: free\nplans: {free: {limits: {month: {limit: 3, calendar: month, in: UTC}}}}\n")
		a.run("why", "acme/user-1", "--policies", file).want(t, exitNo, "3 of 3")
	})
}

// A file whose plan has limits for one model alone makes no limit of the key known.
func TestWhyDoesNotKnowLimitsOfModels(t *testing.T) {
	eachTopology(t, func(t *testing.T, a *application) {
		file := write(t, "plans.yaml", "default: free\nplans: {free: {limits: {chat/large: {rate: 5, per: 1m}}}}\n")
		a.run("why", "acme/user-1", "--policies", file).want(t, exitUnknown, "passes under plan free is not known")
	})
}

// What a process held that died has come back when its hold is over.
func TestHoldsThatAreOverDoNotCount(t *testing.T) {
	eachTopology(t, func(t *testing.T, a *application) {
		for name, limit := range map[string]core.Algorithm{
			"month":   core.Calendar{Limit: 10, Every: core.PeriodMonth, In: time.UTC},
			"window":  core.FixedWindow{Limit: 10, Window: 24 * time.Hour},
			"credits": core.TokenBucket{Burst: 10},
		} {
			dead := newApplication(t, a.client, append([]string{"acme/" + name}, a.flags...)...)
			dead.key = core.Must(core.NewKey("acme", name))
			p := core.Must(core.NewPolicy(core.PolicyConfig{Name: name, Algorithm: limit, Hold: 2 * time.Second}))
			if _, d, err := dead.gate.Charge(t.Context(), core.Charge{Policy: p, Key: dead.key, Cost: 10}); err != nil || !d.Allowed {
				t.Fatal(d, err)
			}
			dead.states(p)
			if err := dead.gate.Close(t.Context()); err != nil { // nobody renews the hold
				t.Fatal(err)
			}
			for r := dead.run("show"); strings.Contains(r.out, "10 of 10"); r = dead.run("show") {
				if t.Context().Err() != nil || r.code != exitOK {
					t.Fatalf("%s: exit code %d: %s%s", name, r.code, r.out, r.err)
				}
			}
			dead.run("why").want(t, exitOK, "0 of 10")
		}
	})
}

// The rights that docs/reference/command.md states for each command suffice for it.
func TestRightsSuffice(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	a := newApplication(t, srv.Client(t))
	file := write(t, "plans.yaml", changedPlans)
	buckets := write(t, "buckets.yaml", "default: free\nplans: {free: {limits: {api: {rate: 1, per: 1h, burst: 3}}}}\n")
	streams := core.Must(semaphore.New(a.gate, semaphore.Config{Name: "streams", TTL: time.Hour}))
	lease := gatetest.Must(streams.Acquire(t.Context(), semaphore.Request{Caps: []semaphore.Cap{{Key: a.key, Limit: 4}}}))(t)
	defer func() { _ = lease.Release(context.Background()) }()
	a.spend(tokensPolicy, 10)
	a.spend(apiPolicy, 1)
	other := core.Must(core.NewKey("other"))
	gatetest.Must(a.gate.Decide(t.Context(), core.Charge{Policy: apiPolicy, Key: other}))(t)
	a.states(apiPolicy, tokensPolicy, loginsPolicy)
	for _, c := range []struct {
		lines []int // of docs/redis.md, from 1
		args  []string
	}{
		{[]int{1, 2, 5, 7}, []string{"show", "acme/user-1"}},
		{[]int{1, 2, 7}, []string{"why", "other", "--policies", buckets}},
		{[]int{1, 2, 7}, []string{"why", "acme/user-1", "--policies", file}},
		{[]int{1}, []string{"adjust", "other", "api", "--policies", buckets, "--give", "1"}},
		{[]int{1, 2, 5}, []string{"adjust", "acme/user-1", "tokens", "--policies", file, "--raise", "5", "--until", "1h"}},
		{[]int{1, 2, 5, 7}, []string{"why", "acme/user-1", "--policies", file}},
		{[]int{1, 7}, []string{"reset", "acme/user-1"}},
		{[]int{1}, []string{"block", "acme/user-1", "logins", "--for", "1h"}},
		{[]int{1, 4}, []string{"block", "--list", "logins"}},
		{[]int{1}, []string{"block", "acme/user-1", "logins", "--lift"}},
		{[]int{1, 2}, []string{"evict", "acme/user-1", "streams", lease.ID()}},
		{[]int{1}, []string{"ping"}},
	} {
		words := "reset on >secret ~hg:* &hg:*"
		for _, line := range c.lines {
			words += " " + rights(t, line)
		}
		acl(t, srv.Client(t), "app", words)
		start := time.Now()
		r := headgate(t, append(c.args, "--redis", "redis://app:secret@"+srv.Addr)...)
		if r.code != exitOK || strings.Contains(r.err, "NOPERM") {
			t.Errorf("%v with lines %v: exit code %d after %v: %s%s", c.args, c.lines, r.code, time.Since(start), r.out, r.err)
		}
	}
}

// The periods of a subscription begin where its anchor says, and the command asks for it.
func TestWhyOfASubscription(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	a := newApplication(t, srv.Client(t), "--redis", urlOf(srv))
	file := write(t, "plans.yaml", "default: free\nplans: {free: {limits: "+
		"{month: {limit: 3, calendar: month, in: UTC, anchor: subscription}}}}\n")
	berlin := core.Must(time.LoadLocation("Europe/Berlin"))
	month := core.Calendar{Limit: 3, Every: core.PeriodMonth, In: berlin, Anchor: time.Date(2026, 1, 17, 9, 0, 0, 0, berlin)}
	p := limitBy("month", month)
	a.spend(p, 3)
	gatetest.NoError(t, newOverrides(t, a.client).SetOverride(t.Context(), "acme", plans.Override{Limits: map[string]core.Algorithm{
		"month": core.Calendar{Limit: 2, Every: core.PeriodMonth, In: time.UTC},
	}}))
	for anchor, passes := range map[string]bool{
		"2026-03-17 09:00 Europe/Berlin": false, "2020-12-17T08:00:00Z Europe/Berlin": false,
		"2026-03-17 09:00": true, "2026-01-17 Europe/Berlin": true, "none": true,
	} {
		if v, r := a.why("--policies", file, "--anchor", anchor); v.Passes != passes {
			t.Errorf("%s: %+v %s", anchor, v, r.err)
		}
	}
	for _, bad := range []string{"", " ", "17", "2026-03-17 Europe/Atlantis"} {
		a.run("why", "acme/user-1", "--policies", file, "--anchor", bad).want(t, exitUsage, "--anchor")
	}
}

// newOverrides returns a Book of a program that sets overrides.
func newOverrides(t *testing.T, client redis.UniversalClient) *plans.Book {
	t.Helper()
	set := core.Must(plans.NewSet(plans.SetConfig{Default: "free", Plans: map[string]plans.Plan{"free": {}}}))
	book := core.Must(plans.New(plans.Config{Set: set, Client: client}))
	t.Cleanup(book.Close)
	return book
}
