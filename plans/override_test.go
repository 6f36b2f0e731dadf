package plans_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"pgregory.net/rapid"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/plans"
)

// eachStore runs f with two processes' Plans on each server and on a cluster, which follow its
// changes, and with one in memory twice.
func eachStore(t *testing.T, f func(t *testing.T, a, b *plans.Book)) {
	t.Run("memory", func(t *testing.T) {
		p := newBook(t, plans.Config{})
		f(t, p, p)
	})
	two := func(t *testing.T, client func() redis.UniversalClient, prefix string) {
		f(t, newBook(t, plans.Config{Client: client(), Prefix: prefix}), newBook(t, plans.Config{Client: client(), Prefix: prefix}))
	}
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		two(t, func() redis.UniversalClient { return s.Client(t) }, s.Prefix)
	})
	t.Run("cluster", func(t *testing.T) {
		c := redistest.StartCluster(t, 3)
		two(t, func() redis.UniversalClient { return c.Client(t) }, "")
	})
}

// becomes waits until a tenant has a limit under api. On a busy machine a read of Redis may be late.
func becomes(t *testing.T, p *plans.Book, tenant string, want core.Algorithm) {
	t.Helper()
	gatetest.Eventually(t, fmt.Sprint(tenant, " has ", want), func() bool { return limit(t, p, tenant) == want })
}

func setOverride(t testing.TB, p *plans.Book, tenant string, o plans.Override) {
	t.Helper()
	gatetest.NoError(t, p.SetOverride(t.Context(), tenant, o))
}

func TestOverride(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, a, b *plans.Book) {
		const tenant = "tenant {with} braces: and more"
		expect(t, b, tenant, free)
		setOverride(t, a, tenant, plans.Override{Plan: "pro"})
		becomes(t, a, tenant, pro)
		becomes(t, b, tenant, pro)

		own := core.PerHour(7)
		setOverride(t, a, tenant, plans.Override{
			Limits: map[string]core.Algorithm{"api": own}, Caps: map[string]plans.Cap{"streams": {Limit: 3, Share: 2}},
		})
		becomes(t, b, tenant, own)
		plan := gatetest.Must(b.For(t.Context(), tenant))(t)
		if limit, share, floor := plan.Cap("streams"); limit != 3 || share != 2 || floor != 0 {
			t.Errorf("cap %d, %d, %d", limit, share, floor)
		}
		o, ok, err := b.Override(t.Context(), tenant)
		if !ok || err != nil || o.Plan != "" || o.Limits["api"] != own || o.Caps["streams"] != (plans.Cap{Limit: 3, Share: 2}) || !o.Until.IsZero() {
			t.Errorf("%v, %t, %v", o, ok, err)
		}
		for _, want := range []bool{true, false} {
			if was, err := a.DeleteOverride(t.Context(), tenant); was != want || err != nil {
				t.Errorf("deleted: %t, %v", was, err)
			}
		}
		expect(t, a, tenant, free)
		becomes(t, b, tenant, free)
		if _, ok, err := b.Override(t.Context(), tenant); ok || err != nil {
			t.Error(ok, err)
		}
	})
}

// An override ends at its time even if it was just read, and even if the store does not answer then.
func TestOverrideEndsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newBook(t, plans.Config{})
		setOverride(t, p, "acme", plans.Override{Plan: "pro", Until: time.Now().Add(10 * time.Second)})
		expect(t, p, "acme", pro)
		time.Sleep(10*time.Second - 1)
		expect(t, p, "acme", pro)
		time.Sleep(time.Nanosecond)
		expect(t, p, "acme", free)
	})
}

// The process that sets an override obeys it at once, even if it was just reading the one before.
func TestOverrideWhileResolveRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newBook(t, plans.Config{Resolve: func(context.Context, string) (string, error) {
			time.Sleep(100 * time.Millisecond)
			return "", nil
		}})
		defer p.Close()
		go func() { _, _ = p.Subscription(t.Context(), "acme") }()
		time.Sleep(50 * time.Millisecond)
		setOverride(t, p, "acme", plans.Override{Plan: "pro"})
		expect(t, p, "acme", pro)
	})
}

// A tenant whose override names a plan that a new Set does not have gets the plan that it would
// have without the override.
func TestPlanOfAnOverrideIsRemoved(t *testing.T) {
	p := newBook(t, plans.Config{
		Set:     parse(t, "default: free\nplans: {free: {}, pro: {}, big: {}}"),
		Resolve: func(context.Context, string) (string, error) { return "pro", nil },
	})
	setOverride(t, p, "acme", plans.Override{Plan: "big"})
	for _, want := range []string{"big", "pro"} {
		if got, err := p.Subscription(t.Context(), "acme"); got.Plan != want || err != nil {
			t.Errorf("plan %s, %v; want %s", got.Plan, err, want)
		}
		gatetest.NoError(t, p.Replace(parse(t, "default: free\nplans: {free: {}, pro: {}}")))
	}
}

// A bad override is an error that names its fields, and nothing changes.
func TestOverrideFaults(t *testing.T) {
	p := newBook(t, plans.Config{
		Set: parse(t, strings.Replace(twoPlans, "Berlin}", "Berlin, keep: 1d}", 1)),
	})
	limits := func(a core.Algorithm) plans.Override {
		return plans.Override{Limits: map[string]core.Algorithm{"api": a}}
	}
	here := time.FixedZone("here", 3600)
	for name, c := range map[string]struct {
		o    plans.Override
		want []string
	}{
		"empty":        {plans.Override{Until: time.Now().Add(time.Hour)}, []string{"override is empty"}},
		"unknown plan": {plans.Override{Plan: "gold"}, []string{`override.plan is "gold"`}},
		"over":         {plans.Override{Plan: "pro", Until: time.Now().Add(-time.Hour)}, []string{"override.until is over"}},
		"limit":        {limits(core.PerMinute(-5)), []string{"override.limits.api.rate is -5", "override.limits.api.burst is -5"}},
		"nil":          {limits(nil), []string{"override.limits.api is nil"}},
		"zone":         {limits(core.Calendar{Limit: 1, Every: core.PeriodDay, In: here}), []string{`override.limits.api in is "here": it must be a time zone that has a name`}},
		"no zone":      {limits(core.Calendar{Limit: 1, Every: core.PeriodDay, In: time.FixedZone("", 3600)}), []string{`override.limits.api in is ""`}},
		"false zone":   {limits(core.Calendar{Limit: 1, Every: core.PeriodDay, In: time.FixedZone("UTC", 3600)}), []string{`override.limits.api in is "UTC"`}},
		"far":          {plans.Override{Plan: "pro", Until: time.Date(12000, 1, 1, 0, 0, 0, 0, time.UTC)}, []string{"override.until is in the year 12000: it must be at most 9999"}},
		"block":        {limits(core.Block{Strikes: 1, Within: time.Hour, For: time.Hour}), []string{"override.limits.api is a core.Block, which cannot be stored"}},
		"cap":          {plans.Override{Caps: map[string]plans.Cap{"streams": {}}}, []string{"override.caps.streams is 0"}},
		"kept":         {plans.Override{Limits: map[string]core.Algorithm{"tokens.kept": free}}, []string{"override.limits.tokens.kept has the name of what is kept"}},
	} {
		t.Run(name, func(t *testing.T) {
			err := p.SetOverride(t.Context(), "acme", c.o)
			if err == nil || len(strings.Split(err.Error(), "\n")) != len(c.want) {
				t.Fatalf("%v", err)
			}
			for _, w := range c.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%v\ndoes not say %q", err, w)
				}
			}
			if (name == "unknown plan") != errors.Is(err, plans.ErrUnknownPlan) {
				t.Errorf("%v wraps the wrong error", err)
			}
			if _, ok, err := p.Override(t.Context(), "acme"); ok || err != nil {
				t.Error("it was stored", err)
			}
			expect(t, p, "acme", free)
		})
	}
	gatetest.Is(t, p.SetOverride(t.Context(), "", plans.Override{Plan: "pro"}), plans.ErrTenant, "got")
}

// Once the names are fixed, a name that is misspelt would change nothing.
func TestOverrideOfAnotherName(t *testing.T) {
	p := newBook(t, plans.Config{
		Set: parse(t, "default: a\nplans: {a: {limits: {api: {limit: 9, calendar: month, in: UTC, then: {slow: {rate: 1, per: 1s}}}}, caps: {streams: 1}}}"),
	})
	if _, _, err := p.Names(); err != nil {
		t.Fatal(err)
	}
	o := plans.Override{
		Limits: map[string]core.Algorithm{"api": free, "apy": free, "api.slow": free, "api/gpt": free},
		Caps:   map[string]plans.Cap{"streams/gpt": {Limit: 1}, "steams": {Limit: 1}},
	}
	gatetest.Fails(t, p.SetOverride(t.Context(), "acme", o), "a misspelt name was stored")
	delete(o.Limits, "apy")
	delete(o.Caps, "steams")
	gatetest.NoError(t, p.SetOverride(t.Context(), "acme", o))
}

// An override that is over by Redis's clock is an error, and the one before stays.
func TestOverrideIsOverByTheClockOfRedis(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t) // the clock of miniredis stands still, and on 32 bits it reads no time
	client := s.Client(t)
	client.AddHook(gatetest.OnScripts(func(_ context.Context, _ []redis.Cmder, send func() error) error {
		time.Sleep(600 * time.Millisecond) // as on a slow link, so that Redis's clock is ahead
		return send()
	}))
	p := redisBook(t, client, new(seen), plans.Config{})
	until := time.Now().Add(time.Hour).Truncate(time.Millisecond)
	setOverride(t, p, "acme", plans.Override{Plan: "pro", Until: until})
	err := p.SetOverride(t.Context(), "acme", plans.Override{
		Caps: map[string]plans.Cap{"streams": {Limit: 9}}, Until: time.Now().Add(500 * time.Millisecond),
	})
	if err == nil || !strings.Contains(err.Error(), "override.until is over by the clock of Redis") {
		t.Error(err)
	}
	if o, ok, err := p.Override(t.Context(), "acme"); !ok || err != nil || o.Plan != "pro" || !o.Until.Equal(until) {
		t.Error(o, ok, err)
	}
}

// Every limit comes back as it was stored.
func TestOverrideKeepsLimits(t *testing.T) {
	p := newBook(t, plans.Config{})
	rapid.Check(t, func(rt *rapid.T) {
		n := func(name string) int64 { return rapid.Int64Range(1, 10_000).Draw(rt, name) }
		d := func(name string) time.Duration {
			return time.Duration(rapid.Int64Range(1, 1<<38).Draw(rt, name)) * time.Microsecond
		}
		var limit core.Algorithm
		switch rapid.IntRange(0, 7).Draw(rt, "algorithm") {
		case 0:
			limit = core.TokenBucket{Rate: n("rate"), Per: d("per"), Burst: n("burst")}
		case 1:
			limit = core.TokenBucket{Burst: n("burst"), Per: rapid.SampledFrom([]time.Duration{0, time.Hour}).Draw(rt, "lifetime")}
		case 2:
			limit = core.LeakyBucket{Rate: n("rate"), Per: d("per"), Capacity: n("capacity")}
		case 3:
			limit = core.FixedWindow{Limit: n("limit"), Window: d("window"), FromFirst: rapid.Bool().Draw(rt, "from first")}
		case 4:
			limit = core.SlidingWindow{Limit: n("limit"), Window: time.Hour, Buckets: rapid.SampledFrom([]int{0, 1, 60, 1000}).Draw(rt, "buckets")}
		case 5:
			limit = core.SlidingLog{Windows: []core.Window{{Limit: n("limit"), Width: time.Minute}, {Limit: n("limit"), Width: time.Hour}}}
		case 6:
			zone := gatetest.Must(time.LoadLocation(rapid.SampledFrom([]string{"UTC", "Europe/Berlin", "Asia/Kathmandu"}).Draw(rt, "zone")))(rt)
			limit = core.Calendar{
				Limit: n("limit"), Every: core.Period(rapid.IntRange(int(core.PeriodMinute), int(core.PeriodYear)).Draw(rt, "every")), In: zone,
				Anchor: time.Unix(rapid.Int64Range(0, 1<<31).Draw(rt, "anchor"), 0),
			}
		default:
			limit = core.DenyAll{}
		}
		setOverride(t, p, "acme", plans.Override{Limits: map[string]core.Algorithm{"api": limit}})
		o, ok, err := p.Override(t.Context(), "acme")
		if !ok || err != nil {
			rt.Fatal(ok, err)
		}
		got := o.Limits["api"]
		if c, ok := limit.(core.Calendar); ok {
			back, _ := got.(core.Calendar)
			if back.Limit != c.Limit || back.Every != c.Every || back.In.String() != c.In.String() || !back.Anchor.Equal(c.Anchor) {
				rt.Fatalf("%v is %v", c, got)
			}
		} else if !reflect.DeepEqual(got, limit) {
			rt.Fatalf("%v is %v", limit, got)
		}
		text := gatetest.Must(o.MarshalText())(rt)
		var again plans.Override
		if err := again.UnmarshalText(text); err != nil || !reflect.DeepEqual(again, o) {
			rt.Fatalf("%s is read as %v, %v", text, again, err)
		}
	})
}

func TestTextOfAnOverride(t *testing.T) {
	var o plans.Override
	gatetest.NoError(t, o.UnmarshalText([]byte("{plan: pro, limits: {api: {rate: 5, per: 1m}}, caps: {streams: 2}}")))
	text, err := o.MarshalText()
	if want := `{"plan":"pro","limits":{"api":{"burst":5,"per":"1m0s","rate":5}},"caps":{"streams":{"limit":2}}}`; string(text) != want || err != nil {
		t.Errorf("%s, %v", text, err)
	}
	before := o
	for _, bad := range []string{"{}", "{limits: {api: {rate: x}}}", "{plan: a, plan: b}", "{limit: {}}"} {
		if err := o.UnmarshalText([]byte(bad)); err == nil || !reflect.DeepEqual(o, before) {
			t.Errorf("%s is %v, %v", bad, o, err)
		}
	}
	block := plans.Override{Limits: map[string]core.Algorithm{
		"bans": core.Block{Strikes: 1, Within: time.Hour, For: time.Hour},
	}}
	if text, err := block.MarshalText(); err == nil {
		t.Errorf("%s", text)
	}
}

// redisBook returns a Book that follow the changes of a server.
func redisBook(t *testing.T, client redis.UniversalClient, s *seen, cfg plans.Config) *plans.Book {
	t.Helper()
	cfg.Client, cfg.Observe = client, s.observe
	return newBook(t, cfg)
}

// A process that has missed more changes than Redis keeps, or that finds them lost, reads all again.
func TestChangesThatAreLost(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(t *testing.T, client *redis.Client, changes string){
		"too many": func(t *testing.T, client *redis.Client, changes string) {
			var many []any
			for i := range 2000 {
				many = append(many, fmt.Sprintf("%d other%d", i, i))
			}
			_, err := client.TxPipelined(t.Context(), func(tx redis.Pipeliner) error { // nobody sees the list between
				return errors.Join(tx.LPush(t.Context(), changes, many...).Err(), tx.LTrim(t.Context(), changes, 0, 999).Err())
			})
			gatetest.NoError(t, err)
		},
		"deleted": func(t *testing.T, client *redis.Client, changes string) {
			gatetest.NoError(t, client.Del(t.Context(), changes).Err())
		},
		"a failover lost the last": func(t *testing.T, client *redis.Client, changes string) {
			// Both changes: a process that is slow may have read the override before it saw the second.
			gatetest.NoError(t, client.Del(t.Context(), changes).Err())
			gatetest.NoError(t, client.LPush(t.Context(), changes, "1 other").Err())
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			redistest.Each(t, func(t *testing.T, s *redistest.Server) {
				client := s.Client(t)
				var events seen
				p := redisBook(t, client, &events, plans.Config{Prefix: s.Prefix, TTL: time.Hour})
				expect(t, p, "acme", free)
				other := redisBook(t, client, new(seen), plans.Config{Prefix: s.Prefix})
				for _, want := range []core.Algorithm{core.PerHour(7), pro} { // it may learn of the first as it starts
					setOverride(t, other, "acme", plans.Override{Limits: map[string]core.Algorithm{"api": want}})
					becomes(t, p, "acme", want)
				}
				// Nothing tells of this but the list that is lost.
				gatetest.NoError(t, client.Del(t.Context(), s.Prefix+":{plans}:acme:ov1").Err())
				lose(t, client, s.Prefix+":{plans}:ov1")
				becomes(t, p, "acme", free)
			})
		})
	}
}

// While Redis is down the last known override holds. When it is back, overrides are obeyed again.
func TestOverrideWhileRedisIsDown(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	var events seen
	p := redisBook(t, s.Client(t, func(o *redis.Options) { o.DialerRetries = 1 }), &events, plans.Config{TTL: time.Second})
	setOverride(t, p, "acme", plans.Override{Plan: "pro"})
	becomes(t, p, "acme", pro)
	follows := true
	gatetest.Eventually(t, "it follows", func() bool { // a busy machine may have answered a poll late
		for _, e := range events.take(plans.OpFollow) {
			follows = e.Err == nil
		}
		return follows
	})
	s.Kill()
	gatetest.Eventually(t, "an event", func() bool { return len(events.take(plans.OpFollow)) > 0 })
	for range 20 {
		expect(t, p, "acme", pro)
		expect(t, p, "stranger", free)
		time.Sleep(100 * time.Millisecond) // beyond the TTL
	}
	if e := events.take(plans.OpFollow, plans.OpResolve); len(e) > 0 {
		t.Errorf("an outage is told again: %v", e)
	}
	gatetest.Fails(t, p.SetOverride(t.Context(), "stranger", plans.Override{Plan: "pro"}), "an override was set")
	s.Restart()
	gatetest.Eventually(t, "it is back", func() bool {
		e := events.take(plans.OpFollow)
		return len(e) > 0 && e[len(e)-1].Err == nil
	})
	becomes(t, p, "acme", free)
	setOverride(t, p, "stranger", plans.Override{Plan: "pro"})
	becomes(t, p, "stranger", pro)
}

// While Redis is down, it is asked for changes at least twice a second, so that a Book obeys them within a
// second of an answer. Resolve is called once a TTL, whatever becomes of Redis and of an override meanwhile.
func TestRedisThatIsDownAsksNoResolve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := redis.NewClient(&redis.Options{
			MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
			Addr:                     "127.0.0.1:1", // a name that is looked up in a bubble makes the process's resolver part of it
		})
		var polls atomic.Int64
		var down atomic.Bool
		client.AddHook(gatetest.OnCommands(func(_ context.Context, cmds []redis.Cmder, _ func() error) error {
			if cmds[0].Name() == "lindex" {
				polls.Add(1)
			}
			if down.Load() {
				return gatetest.Fail(cmds, io.EOF)
			}
			if len(cmds) == 1 {
				return gatetest.Fail(cmds, redis.Nil) // no change
			}
			cmds[0].(*redis.StringCmd).SetVal(`{"plan":"free"}`)
			cmds[1].(*redis.DurationCmd).SetVal(10 * time.Second)
			return nil
		}))
		t.Cleanup(func() { _ = client.Close() })
		var calls atomic.Int64
		down.Store(true)
		p := newBook(t, plans.Config{Client: client, TTL: time.Minute, Resolve: func(context.Context, string) (string, error) {
			calls.Add(1)
			return "pro", nil
		}})
		ask := func(times int, limit core.Algorithm, want int64) {
			t.Helper()
			for range times {
				expect(t, p, "acme", limit)
				time.Sleep(1100 * time.Millisecond)
				synctest.Wait()
			}
			gatetest.Equal(t, calls.Load(), want, "calls of Resolve")
		}
		ask(30, pro, 1) // in half a TTL
		if n := polls.Load(); n < 66 {
			t.Errorf("Redis was asked %d times for changes in 33 s", n)
		}
		down.Store(false)
		time.Sleep(time.Second)
		ask(9, free, 2) // the first answer of Redis may tell of a change
		down.Store(true)
		time.Sleep(50 * time.Second) // beyond the TTL, and the end of the override
		ask(10, pro, 3)
		down.Store(false)
		time.Sleep(time.Second)
		ask(1, pro, 3)
		ask(8, free, 3)
		time.Sleep(40 * time.Second) // beyond the TTL
		ask(1, free, 4)
	})
}

// Only overrides without an end have no TTL, and nothing stays of one that has ended.
func TestKeysOfOverrides(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	client := s.Client(t)
	p := redisBook(t, client, new(seen), plans.Config{})
	setOverride(t, p, "for ever", plans.Override{Plan: "pro"})
	setOverride(t, p, "for a while", plans.Override{Plan: "pro", Until: time.Now().Add(time.Hour)})
	gatetest.NoError(t, p.Refresh(t.Context(), "refreshed"))
	keys := gatetest.Must(client.Keys(t.Context(), "*").Result())(t)
	ttl := make(map[string]time.Duration)
	for _, key := range keys {
		ttl[key] = client.PTTL(t.Context(), key).Val()
	}
	if len(ttl) != 3 || ttl["hg:{plans}:for%20ever:ov1"] != -1 || ttl["hg:{plans}:for%20a%20while:ov1"] <= 0 || ttl["hg:{plans}:ov1"] <= 0 {
		t.Errorf("keys and TTLs: %v", ttl)
	}
}

// A text in Redis that is no override is reported, and the last known override holds.
func TestOverrideThatIsGarbage(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	client := s.Client(t)
	for text, want := range map[string]string{
		`{"plan": 5}`: "plan is 5: it must be a text", "": "override: is empty", "{}": "override: is empty", "null": "override",
	} {
		t.Run(text, func(t *testing.T) {
			var events seen
			p := redisBook(t, client, &events, plans.Config{TTL: time.Second})
			tenant := fmt.Sprintf("acme%d", len(text))
			setOverride(t, p, tenant, plans.Override{Plan: "pro"})
			becomes(t, p, tenant, pro)
			events.take(plans.OpOverride)
			gatetest.NoError(t, client.Set(context.Background(), "hg:{plans}:"+tenant+":ov1", text, 0).Err())
			gatetest.NoError(t, p.Refresh(t.Context(), tenant))
			var e []plans.Event
			gatetest.Eventually(t, "the event", func() bool {
				expect(t, p, tenant, pro)
				e = events.take(plans.OpOverride)
				return len(e) > 0
			})
			if e[0].Tenant != tenant || e[0].Err == nil || !strings.Contains(e[0].Err.Error(), want) {
				t.Errorf("events %v", e)
			}
			if _, _, err := p.Override(t.Context(), tenant); err == nil {
				t.Error("it is an override")
			}
			// A process that knows none has the plan.
			expect(t, redisBook(t, client, new(seen), plans.Config{}), tenant, free)
		})
	}
}

// The permissions in docs/redis.md are enough for overrides, and each one is needed.
func TestDocumentedPermissions(t *testing.T) {
	t.Parallel()
	page := gatetest.Must(os.ReadFile("../docs/redis.md"))(t)
	line := regexp.MustCompile(`(?m)^ACL SETUSER app (.*\+lpush.*)$`).FindStringSubmatch(string(page))
	if line == nil {
		t.Fatal("docs/redis.md has no line for plans")
	}
	rules := []any{"ACL", "SETUSER", "app", "on", ">secret", "resetchannels", "~hg:*"}
	for rule := range strings.FieldsSeq(line[1]) {
		rules = append(rules, rule)
	}
	s := redistest.Start(t)
	admin := s.Client(t)
	gatetest.NoError(t, admin.Do(t.Context(), rules...).Err())
	gatetest.NoError(t, admin.ConfigResetStat(t.Context()).Err())
	var events seen
	user := func(o *redis.Options) { o.Username, o.Password = "app", "secret" }
	a := redisBook(t, s.Client(t, user), &events, plans.Config{})
	b := redisBook(t, s.Client(t, user), &events, plans.Config{})
	expect(t, b, "acme", free)
	setOverride(t, a, "acme", plans.Override{Plan: "pro", Until: time.Now().Add(time.Hour)})
	becomes(t, b, "acme", pro)
	if was, err := a.DeleteOverride(t.Context(), "acme"); !was || err != nil {
		t.Error(was, err)
	}
	becomes(t, b, "acme", free)
	gatetest.Worked(t, a.Refresh(t.Context(), "acme"))
	for _, e := range events.take(plans.OpFollow, plans.OpOverride) {
		if errors.As(e.Err, new(redis.Error)) { // and not a machine that is slow
			t.Errorf("event %v", e)
		}
	}
	stats := gatetest.Must(admin.Info(t.Context(), "commandstats").Result())(t)
	for command := range strings.FieldsSeq(line[1]) {
		gatetest.Contains(t, stats, "cmdstat_"+command[1:]+":", "%s is not used", command)
	}
}

// A change of a plan is obeyed by 4 Books, which share Redis and the file alone: one of an override, one that
// Refresh tells of, and one of the file.
func TestBooksObeyChanges(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	dir := t.TempDir()
	file, directory := filepath.Join(dir, "plans.yaml"), filepath.Join(dir, "acme")
	write(t, file, twoPlans)
	write(t, directory, "free")
	var books []*plans.Book
	for range 4 {
		books = append(books, newBook(t, plans.Config{
			File: file, Client: s.Client(t), TTL: time.Hour,
			Resolve: func(context.Context, string) (string, error) {
				name, err := os.ReadFile(directory)
				return string(name), err
			},
		}))
	}
	p := redisBook(t, s.Client(t), new(seen), plans.Config{Set: parse(t, twoPlans)})
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
		gatetest.NoError(t, c.change())
		for _, book := range books {
			gatetest.Eventually(t, c.name, func() bool { return limit(t, book, "acme") == core.PerMinute(c.want) })
		}
	}
}
