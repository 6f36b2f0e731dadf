package house_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/bloom"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/redistest"
)

// scriptCall is a script call with an injected clock, and the reply of miniredis, which runs Lua
// 5.1.
type scriptCall struct {
	script     int // index in injected
	keys, argv []string
	reply      string
}

// injected are the scripts that lua54.lua runs.
var injected = func() (all []string) {
	for _, name := range []string{"lease", "decide", "admit", "filter", "slot", "window", "sliding_window"} {
		all = append(all, redistest.Script(name))
	}
	return all
}()

const (
	leaseScript = iota
	decideScript
	admitScript
	filterScript
	slotScript
	windowScript
	slidingWindowScript
)

// replayUnderLua54 runs calls in order under Lua 5.4. It fails the test for every call that gets
// another reply than under Lua 5.1, and for every float in a reply, in a value or in an argument of
// a command.
func replayUnderLua54(t *testing.T, calls []scriptCall) {
	t.Helper()
	var in bytes.Buffer
	texts := func(list []string) {
		fmt.Fprintln(&in, len(list))
		for _, text := range list {
			fmt.Fprintf(&in, "%d\n%s\n", len(text), text)
		}
	}
	texts(injected)
	for _, c := range calls {
		fmt.Fprintln(&in, c.script+1)
		texts(c.keys)
		texts(c.argv)
	}
	cmd := exec.Command("lua5.4", "internal/house/testdata/lua54.lua")
	var stderr bytes.Buffer
	cmd.Stdin, cmd.Stderr = &in, &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("lua5.4: %v: %s", err, &stderr)
	}
	lines := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
	if len(lines) != len(calls) {
		t.Fatalf("%d replies to %d calls", len(lines), len(calls))
	}
	failed := 0
	for i, c := range calls {
		if lines[i] == c.reply {
			continue
		}
		if failed++; failed <= 10 {
			t.Errorf("call %d: %.500q\nLua 5.1: %.500s\nLua 5.4: %.500s", i, c.argv, c.reply, lines[i])
		}
	}
	if failed > 10 {
		t.Errorf("and %d further calls", failed-10)
	}
}

// needLua54 skips the test if lua5.4 is not on PATH.
func needLua54(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("lua5.4"); err != nil {
		t.Skip("lua5.4 is not on PATH")
	}
}

// steps returns how long a random history is that has n steps among the long tests.
func steps(n int) int {
	if gatetest.Long() {
		return n
	}
	return n / 2
}

// showReply prints a reply as lua54.lua does.
func showReply(reply any) string {
	switch v := reply.(type) {
	case []any:
		parts := make([]string, len(v))
		for i := range v {
			parts[i] = showReply(v[i])
		}
		return "{" + strings.Join(parts, " ") + "}"
	case string:
		return `"` + v + `"`
	default:
		return fmt.Sprint(v)
	}
}

func toTexts(args []any) []string {
	texts := make([]string, len(args))
	for i := range args {
		texts[i] = fmt.Sprint(args[i])
	}
	return texts
}

// seededRand returns a random generator and logs its seed if the test fails.
func seededRand(t *testing.T) *rand.Rand {
	t.Helper()
	seed := rand.Uint64()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("seed %d", seed)
		}
	})
	return rand.New(rand.NewPCG(seed, 0))
}

// leaseCalls drives the lease script on miniredis, by one to three operations at a time, and records
// its calls.
type leaseCalls struct {
	t      *testing.T
	client *redis.Client
	now    int64
	names  []string // of the operations of the next script
	argv   [][]any  // of the operations of the next script
	calls  []scriptCall
	ran    map[string]int // by operation and status
}

func (l *leaseCalls) run(operation string, args ...any) {
	l.t.Helper()
	l.names = append(l.names, operation)
	l.argv = append(l.argv, append([]any{operation}, args...))
	if n := len(l.names); n < 3 && l.now%3 < int64(n) {
		return
	}
	var keys []string
	var argv []any
	for _, own := range l.argv {
		keys = append(keys, "{a}:h", "{a}:m", "{a}:w", "{a}:p", "{a}:s")
		if len(l.argv) > 1 {
			argv = append(argv, len(own))
		}
		argv = append(argv, own...)
	}
	if len(l.names) == 1 && l.runShort() {
		return
	}
	reply := l.call(leaseScript, keys, argv...).([]any)
	for _, name := range l.names {
		own := reply
		if len(l.names) > 1 {
			n := reply[0].(int64)
			own, reply = reply[1:1+n], reply[1+n:]
		}
		switch {
		case name == "acquire" && len(own) == 1:
			name = "acquire alone"
		case name == "acquire":
			name += fmt.Sprint(" ", own[0])
		}
		l.ran[name]++
	}
	l.names, l.argv = nil, nil
}

// runShort runs an operation that has a short form in that, and reports whether it was decided.
func (l *leaseCalls) runShort() bool {
	l.t.Helper()
	name, own := l.names[0], l.argv[0]
	var argv []any
	switch {
	case name == "acquire":
		argv = []any{own[4], own[5]}
	case name == "release" && len(own) == 2:
		argv = []any{own[1]}
	default:
		return false
	}
	reply := l.call(slotScript, []string{"{a}:m"}, argv...)
	if reply == int64(0) {
		return false
	}
	l.ran["short "+name]++
	l.names, l.argv = nil, nil
	return true
}

// call runs a script and records that.
func (l *leaseCalls) call(script int, keys []string, argv ...any) any {
	l.t.Helper()
	argv = append(argv, l.now)
	reply, err := redis.NewScript(injected[script]).Run(l.t.Context(), l.client, keys, argv...).Result()
	if err != nil {
		l.t.Fatalf("%v: %v", argv, err)
	}
	l.calls = append(l.calls, scriptCall{script, keys, toTexts(argv), showReply(reply)})
	return reply
}

// TestLeaseScriptUnderLua54 covers the operations with one level and with several, with weights
// that Redis may print with an exponent, and with the most grants of one script.
func TestLeaseScriptUnderLua54(t *testing.T) {
	t.Parallel()
	needLua54(t)
	rng := seededRand(t)
	client := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr()})
	t.Cleanup(func() { _ = client.Close() })
	l := &leaseCalls{t: t, client: client, now: 1_763_700_000_000_000, ran: make(map[string]int)}
	levels := make(map[string]string) // by id: a second request keeps them
	acquire := func(id string, waiters, unit int64, nodes []string) {
		longest, lease := []int64{0, 9_000_000}[rng.IntN(2)], 1+rng.Int64N(8_000_000)
		head := fmt.Sprint(longest, " ", lease, " ", []string{"c", "{a}c"}[rng.IntN(2)], " -")
		if rng.IntN(2) == 0 {
			terms := strings.Repeat(fmt.Sprintf(",%d,%d", 1+rng.IntN(1000), unit), len(nodes))
			head += ";" + terms[1:]
		}
		if levels[id] == "" {
			for _, node := range nodes {
				levels[id] += fmt.Sprint(" ", node, " ", unit*(1+rng.Int64N(2)), " ", unit*4)
			}
		}
		rest := fmt.Sprint(" 0 ", lease, " ", id, " ", head, levels[id])
		l.run("acquire", id, 2_000_000, waiters, lease/1000+301_000, rest)
	}
	one := func(id string, waiters, weight int64) {
		l.run("acquire", id, 2_000_000, waiters, 94_000, fmt.Sprint(" 0 3000000 ", id, " 0 3000000 c - {a} ", weight, " 150"))
	}
	for i := range 40 {
		one(fmt.Sprint("x", i), 0, 1)
		l.now += 7
		if i >= 20 {
			l.now += 1 - l.now%3 // nothing is queued
		}
		l.run("release", fmt.Sprint("x", i))
	}
	one("all", 0, 150)
	for i := range 100 {
		one(fmt.Sprint("w", i), 100, 1)
	}
	l.run("release", "all")
	l.run("list")
	l.now += 60_000_000
	chains := [][]string{
		{"{a}"}, {"{a}"}, {"{a}", "{a}:u"}, {"{a}", "{a}:g", "{a}:g:u"}, {"{a}", "{a}:g", "{a}:g:v"},
	}
	for i := range steps(3000) {
		l.now += rng.Int64N(100_000)
		switch rng.IntN(100) {
		case 0:
			l.now += 60_000_000
		case 1:
			l.now -= 1_000_000
		}
		id := func() string { return fmt.Sprint("id", i-rng.IntN(20)) }
		unit := []int64{1, 100_000_000_000}[i/500%2]
		chain := chains[0]
		if i/100%2 == 0 {
			chain = chains[rng.IntN(len(chains))]
		}
		switch n := rng.IntN(20); {
		case n == 0: // mostly a second time
			acquire(id(), 1, unit, chain)
		case n < 7:
			acquire(fmt.Sprint("id", i), rng.Int64N(6), unit, chain)
		case n < 10:
			l.run("renew", 5_000_000, id(), id())
		case n < 17:
			l.run("release", id())
		case n < 18:
			l.run("release", id(), id(), "scope")
		case n < 19:
			evicted := id()
			l.run("force", evicted)
			acquire(evicted, 1, unit, chain)
		default:
			l.run("list")
		}
	}
	for _, want := range []string{
		"acquire alone", "acquire 1", "acquire 0", "acquire -1", "acquire -2", "acquire -3",
		"renew", "release", "force", "list", "short acquire", "short release",
	} {
		if l.ran[want] == 0 {
			t.Errorf("%s did not run: %v", want, l.ran)
		}
	}
	replayUnderLua54(t, l.calls)
}

// TestFilterScriptUnderLua54 covers every operation, with and without a window.
func TestFilterScriptUnderLua54(t *testing.T) {
	t.Parallel()
	needLua54(t)
	rng := seededRand(t)
	client := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr()})
	t.Cleanup(func() { _ = client.Close() })
	script := redis.NewScript(injected[filterScript])
	now := int64(1_763_700_000_000_000)
	var calls []scriptCall
	ran := make(map[string]int)
	run := func(operation string, shape bloom.Shape, parts []int, args ...any) (first any) {
		t.Helper()
		keys := []string{"{f}:bf2"}
		argv := []any{operation, shape.String(), len(parts)}
		for _, p := range parts {
			keys = append(keys, fmt.Sprint("{f}:bf2:e", p), fmt.Sprint("{f}:bf2:o", p))
			argv = append(argv, p)
		}
		argv = append(append(argv, args...), now)
		reply, err := script.Run(t.Context(), client, keys, argv...).Slice()
		if err != nil {
			t.Fatalf("%v: %v", argv, err)
		}
		calls = append(calls, scriptCall{filterScript, keys, toTexts(argv), showReply(reply)})
		ran[fmt.Sprint(operation, " ", reply[0])]++
		return reply[0]
	}
	all := []int{0, 1, 2}
	ask := func(shape bloom.Shape, parts []int, items ...bloom.Item) {
		t.Helper()
		var places []byte
		args := []any{nil}
		for _, it := range items {
			places = shape.AppendPlaces(places, 1+rng.IntN(len(parts)), it)
			args = append(args, it.Block*shape.Bits/8, (it.Block+1)*shape.Bits/8-1)
		}
		args[0] = string(places)
		for run("ask", shape, parts, args...) == int64(bloom.Begin) {
			if run("begin", shape, all, rng.IntN(2)) == int64(1) { // a part that was not swept is left
				run("sweep", shape, all)
			}
		}
	}
	shapes := []bloom.Shape{
		{Bits: 64, Blocks: 2, Parts: 3, Hashes: 4},
		{Bits: 64, Blocks: 2, Parts: 3, Hashes: 4, Window: 1_000_000},
	}
	run("reset", shapes[0], nil)
	for i := range steps(3000) {
		shape := shapes[i/500%2]
		if i%500 == 0 { // a filter with the other shape
			ask(shapes[0], all, shapes[0].Item("a", true))
			ask(shapes[1], all, shapes[1].Item("a", true))
			run("count", shapes[1], []int{0})
		}
		switch now += rng.Int64N(100_000); rng.IntN(40) {
		case 0:
			run("count", shape, []int{rng.IntN(3)})
		case 1:
			run("reset", shape, nil)
			run("sweep", shape, []int{0, 1})
			if rng.IntN(2) == 0 {
				run("swept", shape, nil)
			}
		case 2:
			now -= 500_000
		default:
			parts := [][]int{{0}, {2}, all}[rng.IntN(3)]
			var items []bloom.Item
			for range 1 + rng.IntN(3) {
				items = append(items, shape.Item(fmt.Sprint(rng.IntN(20)), rng.IntN(2) == 0))
			}
			ask(shape, parts, items...)
		}
	}
	for _, want := range []string{"ask 0", "ask 1", "ask 4", "begin 0", "begin 1", "ask -1", "count -1", "reset 0", "reset 3", "sweep 0"} {
		if ran[want] == 0 {
			t.Errorf("%s did not come: %v", want, ran)
		}
	}
	replayUnderLua54(t, calls)
}
