package redistest

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate"
)

//go:embed lua54.lua
var lua54 string

// ReplayUnderLua54 runs what the server answered to scripts on a caller's clock again under Lua 5.4,
// which has integers of its own, when the test ends. It fails the test for every other reply, and for
// every float in a reply, in a value or in an argument of a command. Without lua5.4 on PATH it does
// nothing. Nobody but the client writes the keys, and at first there is none.
func ReplayUnderLua54(t *testing.T, client *redis.Client) {
	t.Helper()
	if _, err := exec.LookPath("lua5.4"); err != nil {
		t.Log("lua5.4 is not on PATH: nothing is replayed")
		return
	}
	r := &replay{plain: redis.NewClient(client.Options()), index: make(map[string]int)}
	r.add("return redis.call('DEL', unpack(KEYS))", "del")
	for name := range headgate.Scripts() {
		script := Script(name)
		r.add(script, script, redis.NewScript(script).Hash())
	}
	client.AddHook(r)
	t.Cleanup(func() {
		_ = r.plain.Close()
		if !t.Failed() {
			r.run(t)
		}
	})
}

// replay records what one client calls.
type replay struct {
	plain   *redis.Client // without the hook
	scripts []string
	index   map[string]int // in scripts, by source and by hash

	mu    sync.Mutex
	calls []scriptCall
}

type scriptCall struct {
	script     int // index in scripts
	keys, argv []string
	reply      string
}

func (r *replay) add(source string, names ...string) {
	for _, name := range names {
		r.index[name] = len(r.scripts)
	}
	r.scripts = append(r.scripts, source)
}

func (r *replay) DialHook(next redis.DialHook) redis.DialHook { return next }

func (r *replay) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	one := r.ProcessHook(r.plain.Process)
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if !slices.ContainsFunc(cmds, r.isRecorded) {
			return next(ctx, cmds)
		}
		for _, cmd := range cmds {
			if err := one(ctx, cmd); err != nil {
				cmd.SetErr(err)
			}
		}
		return nil
	}
}

func (r *replay) isRecorded(cmd redis.Cmder) bool {
	switch cmd.Name() {
	case "eval", "evalsha", "del":
		return true
	}
	return false
}

func (r *replay) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if !r.isRecorded(cmd) {
			return next(ctx, cmd)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		inner := redis.NewCmd(ctx, cmd.Args()...)
		err := next(ctx, inner)
		if err == nil {
			err = r.record(inner)
		}
		cmd.SetErr(err)
		if err != nil {
			return err
		}
		switch cmd := cmd.(type) {
		case interface{ SetVal([]int64) }:
			integers, err := inner.Int64Slice()
			cmd.SetVal(integers)
			return err
		case interface{ SetVal(int64) }:
			n, err := inner.Int64()
			cmd.SetVal(n)
			return err
		case interface{ SetVal(any) }:
			cmd.SetVal(inner.Val())
		}
		return nil
	}
}

// record keeps a call that the server has answered.
func (r *replay) record(cmd *redis.Cmd) error {
	args := texts(cmd.Args())
	if cmd.Name() == "del" {
		r.calls = append(r.calls, scriptCall{r.index["del"], args[1:], nil, showReply(cmd.Val())})
		return nil
	}
	script, known := r.index[args[1]]
	keys, err := strconv.Atoi(args[2])
	if !known || err != nil {
		return fmt.Errorf("unknown script call %.200q", args)
	}
	r.calls = append(r.calls, scriptCall{script, args[3 : 3+keys], args[3+keys:], showReply(cmd.Val())})
	return nil
}

// texts returns arguments as go-redis sends them. A Gate passes pointers.
func texts(args []any) []string {
	all := make([]string, len(args))
	for i, arg := range args {
		switch v := arg.(type) {
		case *string:
			all[i] = *v
		case *int64:
			all[i] = strconv.FormatInt(*v, 10)
		case []byte:
			all[i] = string(v)
		default:
			all[i] = fmt.Sprint(v)
		}
	}
	return all
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

// run replays the calls in order.
func (r *replay) run(t *testing.T) {
	t.Helper()
	var in bytes.Buffer
	write := func(list []string) {
		fmt.Fprintln(&in, len(list))
		for _, text := range list {
			fmt.Fprintf(&in, "%d\n%s\n", len(text), text)
		}
	}
	write(r.scripts)
	for _, c := range r.calls {
		fmt.Fprintln(&in, c.script+1)
		write(c.keys)
		write(c.argv)
	}
	cmd := exec.Command("lua5.4", "-e", "\n"+lua54) // -e takes nothing that begins with a dash
	var stderr bytes.Buffer
	cmd.Stdin, cmd.Stderr = &in, &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("lua5.4: %v: %s", err, &stderr)
	}
	lines := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
	if len(lines) != len(r.calls) {
		t.Fatalf("%d replies to %d calls", len(lines), len(r.calls))
	}
	failed := 0
	for i, c := range r.calls {
		if lines[i] == c.reply {
			continue
		}
		if failed++; failed <= 5 {
			t.Errorf("call %d: %.500q\nRedis:   %.500s\nLua 5.4: %.500s", i, c.argv, c.reply, lines[i])
		}
	}
	if failed > 0 {
		t.Errorf("%d of %d calls have another reply under Lua 5.4", failed, len(r.calls))
	}
}
