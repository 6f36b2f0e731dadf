package report

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/headgate/headgate/lab/bench/internal/measure"
)

// Method writes how it was measured, when, on what machine, and with which versions.
func Method(w io.Writer, plan measure.Plan, turns int) error {
	var b strings.Builder
	fmt.Fprintf(&b, "## How it was measured\n\nPrinted by `go -C lab/bench run .` on %s; nothing is left out or edited. "+
		"%s"+
		"In each round every contender is driven for a slice of %v in turn (lone callers twice "+
		"as often, contended locks 15 times "+
		"as long), "+
		"and what is compared with a PING is so with those that as many callers sent with "+
		"go-redis just before and after it. A lone "+
		"caller sends them in between, one before every call, so that both see the same moments; "+
		"allocations, reads and processor "+
		"time are of as long a slice without them. "+
		"Each part runs in a process of its own with GOGC=1000, so that garbage is collected as "+
		"in one that keeps 40 MiB. "+
		"Contender, server and harness share the processors below, so trust ratios, not absolutes, and no "+
		"difference under a tenth. Where calls take less than a microsecond, one in 32 is timed, "+
		"and a lone caller's PINGs stand 32 "+
		"apart.\n\n"+
		"Bold is this project with its defaults, on a client as its docs/redis.md advises, which "+
		"the others are given too if they take "+
		"one. A floor is something trivial, which shows what no contender can avoid, and no "+
		"limiter.\n\n", time.Now().UTC().Format(time.DateOnly), medians(plan.Rounds, turns), plan.Slice)
	t := Table{Title: "What it ran on", Columns: []string{"", ""}}
	t.Add("processor", fmt.Sprintf("%s, %d in use", processor(), runtime.GOMAXPROCS(0)))
	if load, err := os.ReadFile("/proc/loadavg"); err == nil {
		t.Add("load average before the run", strings.Join(strings.Fields(string(load))[:3], " "))
	}
	t.Add("system", runtime.GOOS+"/"+runtime.GOARCH)
	t.Add("Go", runtime.Version())
	t.Add("Redis", redisVersion())
	for _, m := range modules() {
		t.Add(m[0], m[1])
	}
	if err := t.Write(&b); err != nil {
		return err
	}
	b.WriteString("Not measured: httprate-redis, which could not be had when this was written; " +
		"any network but the loopback.\n\n")
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("write the method: %w", err)
	}
	return nil
}

// medians says what figures are medians of.
func medians(rounds, turns int) string {
	if turns == 1 {
		return fmt.Sprintf("Figures are medians of %d rounds. ", rounds)
	}
	text := fmt.Sprintf("Figures are medians of %d turns, in each of which every part is measured once. ", turns)
	if rounds > 1 {
		text += fmt.Sprintf("Those of a turn are medians of %d rounds. ", rounds)
	}
	return text
}

func processor() string {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "unknown"
	}
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}

func redisVersion() string {
	out, err := exec.CommandContext(context.Background(), "redis-server", "--version").Output()
	if err != nil {
		return "none"
	}
	for field := range strings.FieldsSeq(string(out)) {
		if version, ok := strings.CutPrefix(field, "v="); ok {
			return version
		}
	}
	return strings.TrimSpace(string(out))
}

// modules is the versions of what is compared, and of what talks to Redis.
func modules() [][2]string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return nil
	}
	shown := []string{
		"redis/go-redis", "redis_rate", "ulule/limiter", "throttled", "go-zero",
		"httprate", "redislock", "redsync", "redis/rueidis",
		"go-chi/chi", "gin-gonic/gin", "labstack/echo", "golang.org/x/time",
	}
	var all [][2]string
	for _, m := range info.Deps {
		for _, name := range shown {
			if strings.Contains(m.Path, name) {
				all = append(all, [2]string{m.Path, m.Version})
				break
			}
		}
	}
	return all
}
