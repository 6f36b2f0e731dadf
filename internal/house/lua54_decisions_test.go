package house_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/internal/gatetest"
)

// clockHook runs the scripts of a Gate with an injected clock on miniredis and records their calls.
type clockHook struct {
	scripts map[string]int // index in injected, by the hash of the script that the Gate calls
	hashes  []string       // of injected
	plain   *redis.Client  // without the hook

	mu    sync.Mutex
	now   int64
	calls []scriptCall
	ran   map[string]int // calls by operation and algorithm
}

func newClockHook() *clockHook {
	h := &clockHook{
		now: 1_763_700_000_123_456, ran: make(map[string]int),
		scripts: map[string]int{
			redis.NewScript(headgate.Script("lease")).Hash():          leaseScript,
			redis.NewScript(headgate.Script("slot")).Hash():           slotScript,
			redis.NewScript(headgate.Script("decide")).Hash():         decideScript,
			redis.NewScript(headgate.Script("admit")).Hash():          admitScript,
			redis.NewScript(headgate.Script("window")).Hash():         windowScript,
			redis.NewScript(headgate.Script("sliding_window")).Hash(): slidingWindowScript,
		},
	}
	for _, source := range injected {
		h.hashes = append(h.hashes, redis.NewScript(source).Hash())
	}
	return h
}

func (h *clockHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *clockHook) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	one := h.ProcessHook(func(ctx context.Context, cmd redis.Cmder) error { return h.plain.Process(ctx, cmd) })
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			if err := one(ctx, cmd); err != nil {
				cmd.SetErr(err)
			}
		}
		return nil
	}
}

func (h *clockHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() != "evalsha" {
			return next(ctx, cmd)
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		args := deref(cmd.Args())
		script, known := h.scripts[args[1]]
		keys, err := strconv.Atoi(args[2])
		if !known || err != nil {
			return fmt.Errorf("unknown script call %q", args)
		}
		c := scriptCall{script: script, keys: args[3 : 3+keys], argv: args[3+keys:]}
		for _, name := range operations(c) {
			h.ran[name]++
		}
		c.argv = append(c.argv, strconv.FormatInt(h.now, 10))
		all := []any{"evalsha", h.hashes[script], keys}
		for _, arg := range slices.Concat(c.keys, c.argv) {
			all = append(all, arg)
		}
		inner := redis.NewCmd(ctx, all...)
		err = next(ctx, inner)
		cmd.SetErr(err)
		if err != nil {
			return err
		}
		c.reply = showReply(inner.Val())
		h.calls = append(h.calls, c)
		switch cmd := cmd.(type) {
		case interface{ SetVal([]int64) }:
			integers, err := inner.Int64Slice()
			cmd.SetVal(integers)
			return err
		case interface{ SetVal(any) }:
			cmd.SetVal(inner.Val())
		}
		return nil
	}
}

// deref returns the arguments as go-redis sends them. The Gate passes pointers.
func deref(args []any) []string {
	texts := make([]string, len(args))
	for i, arg := range args {
		switch v := arg.(type) {
		case *string:
			texts[i] = *v
		case *int64:
			texts[i] = strconv.FormatInt(*v, 10)
		default:
			texts[i] = fmt.Sprint(v)
		}
	}
	return texts
}

// operations returns "operation algorithm" for every charge of a call of the decision script, and
// the operation for a call of the lease script. The contract at the head of lua/decide/decide.lua
// defines the arguments. ARGV has no clock yet.
func operations(c scriptCall) (names []string) {
	argv := c.argv
	switch {
	case c.script == leaseScript:
		if len(c.keys) == 5 {
			return []string{argv[0]}
		}
		for at := 0; at < len(argv); {
			n, err := strconv.Atoi(argv[at])
			if err != nil {
				panic(fmt.Sprintf("ARGV[%d] of %q: %v", at+1, argv, err))
			}
			names = append(names, argv[at+1])
			at += 1 + n
		}
		return names
	case c.script == windowScript:
		return []string{"straight window"}
	case c.script == slidingWindowScript:
		return []string{"straight sliding_window"}
	case c.script == slotScript:
		return []string{"slot"}
	case argv[0] == "-1":
		return []string{"short"}
	case strings.HasPrefix(argv[0], "-"):
		return []string{"short of several"}
	case argv[0] == "0":
		return []string{"short with one key twice"}
	case c.script == admitScript:
		tail := argv[len(argv)-4:] // keys, arguments of holds, of adjustments and of a slot
		argv = argv[:len(argv)-4]
		for i, own := range []int{3, 2, 1} {
			n, _ := strconv.Atoi(tail[own])
			if part := argv[len(argv)-n:]; i > 0 && n > 0 && part[0] != "" {
				names = append(names, part[0])
			}
			argv = argv[:len(argv)-n]
		}
	}
	number := func(i int) int {
		n, err := strconv.Atoi(argv[i])
		if err != nil {
			panic(fmt.Sprintf("ARGV[%d] of %q: %v", i+1, argv, err))
		}
		return n
	}
	for at := number(0) - 1; at < len(argv); {
		operation, charges, width := argv[at], number(at+2), 4
		at += 4
		switch operation {
		case "atmost", "reserve":
			at++
		case "give":
			width = 5
		}
		if c.script == admitScript {
			operation = "admit"
		}
		for range charges {
			names = append(names, operation+" "+argv[number(at+1)-1])
			at += width
		}
	}
	return names
}

// decisions is a Gate whose script calls are recorded, with limits of every algorithm.
type decisions struct {
	*testing.T
	*clockHook
	rng      *rand.Rand
	gate     *core.Gate
	slots    *semaphore.Semaphore
	policies []*core.Policy
	quotas   []*core.Policy // some of the policies
	bursts   []*core.Policy // for requests that share a round trip
	held     []reserved
}

type reserved struct {
	*core.Reservation
	charges int
}

func newDecisions(t *testing.T) *decisions {
	t.Helper()
	h := newClockHook()
	addr := miniredis.RunT(t).Addr()
	client, plain := redis.NewClient(&redis.Options{Addr: addr}), redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { _, _ = client.Close(), plain.Close() })
	h.plain = plain
	for _, source := range injected {
		gatetest.NoError(t, client.ScriptLoad(t.Context(), source).Err())
	}
	client.AddHook(h)
	gate := gatetest.Must(core.NewRedis(client, core.Config{DisableDenialCache: true, Timeout: time.Minute}))(t)
	// The context has ended then, so Close releases the slots that are still held.
	t.Cleanup(func() { _ = gate.Close(t.Context()) })
	slots := gatetest.Must(semaphore.New(gate, semaphore.Config{Name: "slots"}))(t)
	d := &decisions{T: t, clockHook: h, rng: seededRand(t), gate: gate, slots: slots}
	for i, algorithm := range []core.Algorithm{
		core.PerSecond(10), core.TokenBucket{Rate: 7, Per: time.Second, Burst: 9},
		core.TokenBucket{Burst: 1_000_000}, core.LeakyBucket{Rate: 3, Per: time.Second, Capacity: 20},
		core.TokenBucket{Rate: 1, Per: 30 * 24 * time.Hour, Burst: 20},
		core.FixedWindow{Limit: 9, Window: 3 * time.Second},
		core.FixedWindow{Limit: 9, Window: time.Second, FromFirst: true},
		core.Calendar{Limit: 30, Every: core.PeriodMinute, In: time.UTC},
		core.SlidingWindow{Limit: 10, Window: 5 * time.Second},
		core.SlidingWindow{Limit: 30, Window: time.Second, Buckets: 20},
		core.SlidingLog{Windows: []core.Window{
			{Limit: 4, Width: time.Second}, {Limit: 10, Width: time.Minute},
		}},
		core.Block{Strikes: 4, Within: time.Minute, For: time.Second, Most: time.Hour, Forgive: time.Minute},
	} {
		for _, shadow := range []bool{false, true} {
			d.policies = append(d.policies, d.policy(core.PolicyConfig{
				Name: fmt.Sprint("p", i, "-", shadow), Algorithm: algorithm, Shadow: shadow,
			}))
		}
		if _, ok := algorithm.(core.Block); !ok {
			d.policies = append(d.policies, d.policy(core.PolicyConfig{
				Name: fmt.Sprint("p", i, "-held"), Algorithm: algorithm, Hold: time.Second,
			}))
		}
	}
	for i, algorithm := range []core.Algorithm{
		core.TokenBucket{Burst: 50}, core.FixedWindow{Limit: 9, Window: 3 * time.Second},
		core.Calendar{Limit: 30, Every: core.PeriodMinute, In: time.UTC},
	} {
		cfg := core.PolicyConfig{Name: fmt.Sprint("q", i), Algorithm: algorithm, Raisable: true}
		d.quotas = append(d.quotas, d.policy(cfg))
		cfg.Name, cfg.Hold = cfg.Name+"-ledger", time.Second
		cfg.Ledger = func(context.Context, core.Key, core.Span) (int64, error) { return 3, nil }
		d.quotas = append(d.quotas, d.policy(cfg))
	}
	d.policies = append(d.policies, d.quotas...)
	for i, algorithm := range []core.Algorithm{core.PerSecond(5), core.PerMinute(60)} {
		d.bursts = append(d.bursts, d.policy(core.PolicyConfig{Name: fmt.Sprint("burst", i), Algorithm: algorithm}))
	}
	return d
}

func (d *decisions) policy(cfg core.PolicyConfig) *core.Policy {
	d.Helper()
	p, err := core.NewPolicy(cfg)
	if err != nil {
		d.Fatal(err)
	}
	return p
}

func (d *decisions) key(parts ...string) core.Key {
	d.Helper()
	k, err := core.NewKey("a", parts...)
	if err != nil {
		d.Fatal(err)
	}
	return k
}

func (d *decisions) must(err error) {
	d.Helper()
	if err != nil {
		d.Fatal(err)
	}
}

// step runs one random operation.
func (d *decisions) step(i int) {
	d.Helper()
	ctx, rng := d.Context(), d.rng
	d.mu.Lock()
	switch rng.IntN(20) {
	case 0:
		d.now += rng.Int64N(70_000_000)
	case 1:
		d.now -= rng.Int64N(2_000_000)
	default:
		d.now += rng.Int64N(200_000)
	}
	d.mu.Unlock()
	charges, actual := make([]core.Charge, 1+rng.IntN(4)), make([]int64, 4)
	policies := slices.Clone(d.policies)
	rng.Shuffle(len(policies), func(i, j int) { policies[i], policies[j] = policies[j], policies[i] })
	for j := range charges {
		key := d.key([]string{"x", "y"}[rng.IntN(2)])
		charges[j] = core.Charge{Policy: policies[j], Key: key, Cost: 1 + rng.Int64N(4)}
		actual[j] = rng.Int64N(9)
	}
	switch n := rng.IntN(14); {
	case n < 2:
		_, err := d.gate.Decide(ctx, charges...)
		d.must(err)
	case n < 4:
		_, err := d.gate.Peek(ctx, charges...)
		d.must(err)
	case n < 6:
		_, _, err := d.gate.SpendUpTo(ctx, 1+rng.Int64N(20), charges...)
		d.must(err)
	case n < 8:
		wait := time.Duration(rng.Int64N(3_000_000)) * time.Microsecond
		r, _, err := d.gate.Reserve(ctx, wait, charges...)
		if d.must(err); r != nil {
			d.held = append(d.held, reserved{r, len(charges)})
		}
	case n < 10:
		if len(d.held) == 0 {
			return
		}
		r := d.held[0]
		d.held = d.held[1:]
		if rng.IntN(3) == 0 {
			d.must(r.Cancel(ctx))
			return
		}
		d.must(r.Settle(ctx, actual[:r.charges]...))
	case n < 11:
		ask := semaphore.Request{Caps: []semaphore.Cap{{Key: d.key("s"), Limit: 2}}}
		l, _, err := d.slots.Admit(ctx, ask, charges...)
		if l != nil && rng.IntN(2) == 0 {
			d.must(l.Release(ctx))
		} else if l == nil && !errors.Is(err, semaphore.ErrFull) {
			d.must(err)
		}
	case n < 12:
		d.adjust()
	default:
		var wg sync.WaitGroup
		for j := range 8 {
			var charges []core.Charge
			for _, p := range d.bursts[:1+j%2] {
				charges = append(charges, core.Charge{Policy: p, Key: d.key(fmt.Sprint("k", (i+j)%5)), Cost: 1})
			}
			wg.Go(func() {
				if _, err := d.gate.Decide(ctx, charges...); err != nil {
					d.Error(err)
				}
			})
		}
		wg.Wait()
	}
}

// adjust runs a random operation on a quota.
func (d *decisions) adjust() {
	d.Helper()
	p, key := d.quotas[d.rng.IntN(len(d.quotas))], d.key([]string{"x", "y"}[d.rng.IntN(2)])
	if d.rng.IntN(3) == 0 {
		_, err := d.gate.RaiseUsed(d.Context(), core.Charge{Policy: p, Key: key}, d.rng.Int64N(20), time.Time{})
		d.must(err)
		return
	}
	a := core.Adjustment{
		ID: fmt.Sprint(d.rng.IntN(100)), Policy: p, Key: key, Units: d.rng.Int64N(9) - 4, Raise: 1 + d.rng.Int64N(9),
	}
	a.Until = time.UnixMicro(d.now + d.rng.Int64N(5_000_000))
	if _, err := d.gate.Adjust(d.Context(), a); !errors.Is(err, core.ErrPeriod) {
		d.must(err)
	}
}

// renew lets a reservation renew itself once.
func (d *decisions) renew() {
	d.Helper()
	held := d.policy(core.PolicyConfig{
		Name: "renewed", Algorithm: core.PerSecond(10), Hold: 100 * time.Millisecond,
	})
	r, _, err := d.gate.Charge(d.Context(), core.Charge{Policy: held, Key: d.key("x")})
	d.must(err)
	gatetest.Eventually(d.T, "it is renewed", func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		return d.ran["renew"] > 0
	})
	d.must(r.Settle(d.Context(), 1))
}

// TestDecisionScriptUnderLua54 covers every operation with every algorithm, and slots taken with
// charges.
func TestDecisionScriptUnderLua54(t *testing.T) {
	t.Parallel()
	needLua54(t)
	d := newDecisions(t)
	for i := range steps(3000) {
		d.step(i)
	}
	d.renew()
	d.mu.Lock()
	defer d.mu.Unlock()
	algorithms := []string{"token_bucket", "window", "sliding_window", "sliding_log"}
	for _, operation := range []string{
		"decide", "peek", "atmost", "reserve", "give", "force", "admit",
	} {
		for _, algorithm := range algorithms {
			if name := operation + " " + algorithm; d.ran[name] == 0 {
				t.Errorf("%s did not run: %v", name, d.ran)
			}
		}
	}
	for _, operation := range []string{
		"straight window", "straight sliding_window", "short", "short of several", "short with one key twice", "hold", "settle", "renew", "adjust", "atleast", "ask",
	} {
		if d.ran[operation] == 0 {
			t.Errorf("%s did not run: %v", operation, d.ran)
		}
	}
	replayUnderLua54(t, d.calls)
}
