package core_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/hub"
)

// checkFaults checks that an error has one line for each of the words, and holds all of them.
func checkFaults(t *testing.T, err error, words []string) {
	t.Helper()
	if (err != nil) != (len(words) > 0) {
		t.Fatalf("error %v, want %q", err, words)
	}
	if err == nil {
		return
	}
	if lines := strings.Split(err.Error(), "\n"); len(lines) != len(words) {
		t.Errorf("%d faults, want %d: %v", len(lines), len(words), err)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%q does not say %q", err, w)
		}
	}
}

func TestConfigFaults(t *testing.T) {
	tests := []struct {
		name  string
		cfg   core.Config
		words []string
	}{
		{"zero", core.Config{}, nil},
		{"full", core.Config{Prefix: "My_app-1.x", Timeout: time.Minute, Replicas: 1_000_000, Topology: core.TopologyCluster, MaxKeys: 1}, nil},
		{"long prefix", core.Config{Prefix: strings.Repeat("x", 33)}, []string{"Config.Prefix is 33 bytes"}},
		{"prefix with a brace", core.Config{Prefix: "a{b}"}, []string{`Config.Prefix is "a{b}"`}},
		{"short timeout", core.Config{Timeout: time.Microsecond}, []string{"Config.Timeout is 1µs"}},
		{"long timeout", core.Config{Timeout: time.Hour}, []string{"Config.Timeout is 1h"}},
		{
			"everything",
			core.Config{Prefix: "a b", Timeout: -1, Replicas: -1, Topology: 7, MaxKeys: -3},
			[]string{"Config.Prefix", "Config.Timeout", "Config.Replicas is -1", "Config.Topology is 7", "Config.MaxKeys is -3"},
		},
	}
	client := redis.NewClient(&redis.Options{})
	t.Cleanup(func() { _ = client.Close() })
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g, err := core.NewMemory(tt.cfg)
			checkFaults(t, err, tt.words)
			gatetest.Equal(t, g == nil, err != nil, "gate %v with error %v", g, err)
			_, err = core.NewRedis(client, tt.cfg)
			checkFaults(t, err, tt.words)
		})
	}
}

func TestNilClient(t *testing.T) {
	for _, client := range []redis.UniversalClient{nil, (*redis.Client)(nil), (*redis.ClusterClient)(nil), (*redis.Ring)(nil)} {
		g, err := core.NewRedis(client, core.Config{Replicas: -1})
		checkFaults(t, err, []string{"client is nil", "Config.Replicas"})
		gatetest.Equal(t, g, nil, "a Gate of %T", client)
	}
}

func TestPolicyFaults(t *testing.T) {
	good := core.PerSecond(1)
	block := func(change func(*core.Block)) core.PolicyConfig {
		b := core.Block{Strikes: 5, Within: time.Minute, For: time.Minute, Most: time.Hour, Forgive: time.Hour}
		change(&b)
		return core.PolicyConfig{Name: "p", Algorithm: b}
	}
	tests := []struct {
		name  string
		cfg   core.PolicyConfig
		words []string
	}{
		{"good", core.PolicyConfig{Name: "a-B_9.", Algorithm: good, Unit: core.UnitMicroDollars, OnFailure: core.FailClosed, Shadow: true}, nil},
		{"longest name", core.PolicyConfig{Name: strings.Repeat("x", 64), Algorithm: good}, nil},
		{"zero", core.PolicyConfig{}, []string{"PolicyConfig.Name is empty", "PolicyConfig.Algorithm is nil"}},
		{"name too long", core.PolicyConfig{Name: strings.Repeat("x", 65), Algorithm: good}, []string{"PolicyConfig.Name is 65 bytes"}},
		{"name with a colon", core.PolicyConfig{Name: "a:b", Algorithm: good}, []string{`PolicyConfig.Name is "a:b"`}},
		{"name beyond ASCII", core.PolicyConfig{Name: "ä", Algorithm: good}, []string{"PolicyConfig.Name"}},
		{"zero bucket", core.PolicyConfig{Name: "p", Algorithm: core.TokenBucket{}}, []string{"PolicyConfig.Algorithm: TokenBucket.Burst is 0"}},
		{"hold of a millisecond", core.PolicyConfig{Name: "p", Algorithm: good, Hold: time.Millisecond}, nil},
		{"hold of ten years", core.PolicyConfig{Name: "p", Algorithm: good, Hold: 87_660 * time.Hour}, nil},
		{"negative hold", core.PolicyConfig{Name: "p", Algorithm: good, Hold: -1}, []string{"PolicyConfig.Hold"}},
		{"hold below a millisecond", core.PolicyConfig{Name: "p", Algorithm: good, Hold: time.Microsecond}, []string{"PolicyConfig.Hold"}},
		{"hold above ten years", core.PolicyConfig{Name: "p", Algorithm: good, Hold: 87_661 * time.Hour}, []string{"PolicyConfig.Hold"}},
		{"hold of a block", core.PolicyConfig{Name: "p", Algorithm: core.Block{Strikes: 1, Within: time.Second, For: time.Second}, Hold: time.Second},
			[]string{"PolicyConfig.Hold"}},
		{"a rate that is raisable", core.PolicyConfig{Name: "p", Algorithm: good, Raisable: true}, []string{"PolicyConfig.Raisable"}},
		{"a log with a ledger", core.PolicyConfig{Name: "p", Ledger: spentIn,
			Algorithm: core.SlidingLog{Windows: []core.Window{{Limit: 1, Width: time.Hour}}}}, []string{"PolicyConfig.Ledger"}},
		{"the limit of each key, which For says", core.PolicyConfig{Name: "p", Algorithm: core.Unlimited{}, Ledger: spentIn, Raisable: true}, nil},
		{"block without strikes", block(func(b *core.Block) { b.Strikes = 0 }), []string{"Block.Strikes is 0"}},
		{"block of many strikes", block(func(b *core.Block) { b.Strikes = 101 }), []string{"Block.Strikes is 101"}},
		{"block within nothing", block(func(b *core.Block) { b.Within = 0 }), []string{"Block.Within is 0s"}},
		{"block for less", block(func(b *core.Block) { b.For = -time.Second }), []string{"Block.For is -1s"}},
		{"block for at most less", block(func(b *core.Block) { b.Most = time.Second }), []string{"Block.Most is 1s"}},
		{"block for too long", block(func(b *core.Block) { b.Most = 30 * 365 * 24 * time.Hour }), []string{"Block.Most is 262800h"}},
		{"block forgiven at once", block(func(b *core.Block) { b.Forgive = time.Nanosecond }), []string{"Block.Forgive is 1ns"}},
		{
			"everything", core.PolicyConfig{Name: "a{", Algorithm: core.TokenBucket{Rate: -1, Per: -1, Burst: -1}, Unit: 9, OnFailure: 3},
			[]string{"PolicyConfig.Name", "PolicyConfig.Unit is 9", "PolicyConfig.OnFailure is 3", "TokenBucket.Rate is -1", "TokenBucket.Per is -1ns", "TokenBucket.Burst is -1"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p, err := core.NewPolicy(tt.cfg)
			checkFaults(t, err, tt.words)
			gatetest.Equal(t, p == nil, err != nil, "policy %v with error %v", p, err)
		})
	}
}

func TestZeroValuesAreRejected(t *testing.T) {
	for _, a := range []core.Algorithm{&core.DenyAll{}, (*core.TokenBucket)(nil), &core.TokenBucket{Burst: 1}} {
		if _, err := core.NewPolicy(core.PolicyConfig{Name: "p", Algorithm: a}); err == nil {
			t.Errorf("NewPolicy accepts %T", a)
		}
	}
	key := newKey(t, "k")
	if _, err := memoryGate(t, core.Config{}).Decide(t.Context(), core.Charge{Policy: new(core.Policy), Key: key, Cost: 1}); !errors.Is(err, core.ErrCharge) {
		t.Errorf("zero Policy: %v", err)
	}
	var g core.Gate
	if _, err := g.Decide(t.Context(), core.Charge{Policy: limited(t, "p", frozen(1)), Key: key, Cost: 1}); !errors.Is(err, core.ErrClosed) {
		t.Errorf("zero Gate: %v", err)
	}
	if err := errors.Join(g.Ping(t.Context()), g.Reset(t.Context(), core.Charge{Policy: nil, Key: key}), g.Close(t.Context())); !errors.Is(err, core.ErrClosed) {
		t.Errorf("zero Gate: %v", err)
	}
	if _, err := core.NewMemory(core.Config{Clock: core.NewManualClock(time.Time{}).Now}); err == nil {
		t.Error("NewMemory accepts a clock in the year 1")
	}
}

func TestQuota(t *testing.T) {
	for _, tt := range []struct {
		algorithm core.Algorithm
		limit     int64
		window    time.Duration
		ok        bool
	}{
		{core.PerMinute(100), 100, time.Minute, true},
		{core.TokenBucket{Rate: 3, Per: time.Second, Burst: 1}, 1, 333_334 * time.Microsecond, true},
		{frozen(5), 5, core.Never, true},
		{core.Unlimited{}, 0, core.Never, false},
		{core.DenyAll{}, 0, core.Never, true},
	} {
		p := limited(t, "p", tt.algorithm)
		limit, window, ok := p.Quota()
		if limit != tt.limit || window != tt.window || ok != tt.ok || p.Algorithm() != tt.algorithm || p.Name() != "p" || p.Shadow() {
			t.Errorf("%#v: %d %v %v", tt.algorithm, limit, window, ok)
		}
	}
}

func TestKeyFaults(t *testing.T) {
	for name, path := range map[string][]string{
		"empty": {""}, "empty inner part": {"a", ""}, "empty middle part": {"a", "", "c"}, "nine parts": strings.Split("123456789", ""),
	} {
		if k, err := core.NewKey(path[0], path[1:]...); !errors.Is(err, core.ErrKey) || k != (core.Key{}) || k.Parts() != nil {
			t.Errorf("%s: %v, %v", name, k, err)
		}
	}
}

func TestKeyEncoding(t *testing.T) {
	for name, tt := range map[string]struct {
		path []string
		want string // empty for a hash
	}{
		"plain ASCII":  {[]string{"acme", "user-1", "x@y.z="}, "{acme}:user-1:x@y.z="},
		"colons":       {[]string{"a:b", "c"}, "{a%3Ab}:c"},
		"braces":       {[]string{"{a}", "}"}, "{%7Ba%7D}:%7D"},
		"control":      {[]string{"\x00\n\r\x7f"}, "{%00%0A%0D%7F}"},
		"percent":      {[]string{"%41"}, "{%2541}"},
		"tilde":        {[]string{"~x"}, "{%7Ex}"},
		"64 bytes":     {[]string{strings.Repeat("x", 64)}, "{" + strings.Repeat("x", 64) + "}"},
		"65 bytes":     {[]string{strings.Repeat("x", 65)}, ""},
		"22 escaped":   {[]string{strings.Repeat("ä", 11)}, ""},
		"1 MiB":        {[]string{strings.Repeat("x", 1<<20)}, ""},
		"1 MiB, inner": {[]string{"a", strings.Repeat("\n", 1<<20)}, ""},
	} {
		k := newKey(t, tt.path[0], tt.path[1:]...)
		if tt.want == "" && !(strings.Contains(k.String(), "~") && len(k.String()) < 40) || tt.want != "" && k.String() != tt.want {
			t.Errorf("%s: %s", name, k)
		}
	}
}

func TestKeysAreInjective(t *testing.T) {
	part := rapid.OneOf(
		rapid.StringN(1, 5, -1),
		rapid.StringMatching(`[a%:{}~]{1,4}`),
		rapid.StringN(20, 80, -1),
		rapid.Map(rapid.SliceOfN(rapid.Byte(), 1, 30), func(b []byte) string { return string(b) }),
	).Filter(func(s string) bool { return s != "" })
	path := rapid.SliceOfN(part, 1, 8)
	rapid.Check(t, func(t *rapid.T) {
		a, b := path.Draw(t, "a"), path.Draw(t, "b")
		if rapid.Bool().Draw(t, "rejoined") && len(a) > 1 {
			// The likeliest collision: the same text, split elsewhere.
			b = append([]string{a[0] + ":" + a[1]}, a[2:]...)
		}
		one, err1 := core.NewKey(a[0], a[1:]...)
		two, err2 := core.NewKey(b[0], b[1:]...)
		if err1 != nil || err2 != nil {
			t.Fatal(err1, err2)
		}
		if same := fmt.Sprintf("%q", a) == fmt.Sprintf("%q", b); (one.String() == two.String()) != same || (one == two) != same {
			t.Fatalf("%q is %s and %q is %s", a, one, b, two)
		}
		if got := one.Parts(); !slices.Equal(got, a) {
			t.Fatalf("%q: parts %q, want %q", one, got, a)
		}
		k := one.String()
		if len(k) > 8*65+2 || k[0] != '{' || strings.Count(k, "{") != 1 || strings.Count(k, "}") != 1 {
			t.Fatalf("%q is %s", a, k)
		}
		if strings.ContainsFunc(k, func(r rune) bool { return r <= ' ' || r > '~' }) {
			t.Fatalf("%q is %q", a, k)
		}
		// The text in braces decides the hash slot, and it is the outermost part alone.
		alone, _ := core.NewKey(a[0])
		if !strings.HasPrefix(k, alone.String()) || strings.Index(k, "}") != len(alone.String())-1 {
			t.Fatalf("the slot of %s is not that of %s", k, alone)
		}
		gatetest.Equal(t, core.Inside(hub.Pass{}).Outermost(one), alone.String(), "outermost part of %s", k)
	})
}
