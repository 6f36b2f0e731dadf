package sloggate_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/admin"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/internal/eventtest"
	"github.com/headgate/headgate/internal/gatetest"
	sloggate "github.com/headgate/headgate/observe/slog"
)

// book is a log that a test reads.
type book struct {
	text  bytes.Buffer
	clock *core.ManualClock
	*sloggate.Logs
}

func newBook(t testing.TB, level slog.Level, cfg sloggate.Config) *book {
	t.Helper()
	b := &book{clock: core.NewManualClock(time.Unix(1_800_000_000, 0))}
	if cfg.Clock == nil {
		cfg.Clock = b.clock.Now
	}
	cfg.Logger = slog.New(slog.NewTextHandler(&b.text, &slog.HandlerOptions{
		Level: level,
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	}))
	logs := core.Must(sloggate.New(cfg))
	b.Logs = logs
	return b
}

// want checks the lines since the last call.
func (b *book) want(t *testing.T, want ...string) {
	t.Helper()
	got := strings.TrimSuffix(b.text.String(), "\n")
	b.text.Reset()
	if got != strings.Join(want, "\n") {
		t.Errorf("the log says\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
}

const hash = "49cef9602371ec53" // of {acme}

// A denial is written once a minute for each key, and then how often it came again.
func TestDenialsAreSampled(t *testing.T) {
	b := newBook(t, slog.LevelInfo, sloggate.Config{})
	g := eventtest.Gate(t, core.Config{Observe: b.Observe, Clock: b.clock.Now})
	policy, key := eventtest.Policy(t, "api", 1), eventtest.Key(t)
	decide := func(times int) {
		for range times {
			gatetest.Must(g.Decide(t.Context(), core.Charge{Policy: policy, Key: key}))(t)
		}
	}
	decide(4)
	b.want(t, `level=INFO msg=denied policy=api key=`+hash+` source=memory limit=1 retry_after=24h0m0s`)
	b.clock.Advance(59 * time.Second)
	decide(1)
	b.want(t)
	b.clock.Advance(time.Second)
	decide(2)
	b.want(t,
		`level=INFO msg="denied again" policy=api key=`+hash+` times=3`,
		`level=INFO msg=denied policy=api key=`+hash+` source=memory limit=1 retry_after=23h59m0s`)
	b.Flush(t.Context())
	b.want(t, `level=INFO msg="denied again" policy=api key=`+hash+` times=1`)
	b.Flush(t.Context())
	b.want(t)
	b.clock.Advance(-time.Hour) // a step back silences nothing
	decide(1)
	b.text.Reset()
	b.clock.Advance(-time.Hour)
	decide(1)
	gatetest.Contains(t, b.text.String(), "msg=denied ", "after a step back the log says")
}

// A caller that has read the clock before another one ended the window does not end the next.
func TestClockIsReadInAnotherOrder(t *testing.T) {
	var b *book
	var meanwhile func()
	b = newBook(t, slog.LevelInfo, sloggate.Config{Clock: func() time.Time {
		now, do := b.clock.Now(), meanwhile
		if meanwhile = nil; do != nil {
			do()
		}
		return now
	}})
	failed := &core.DecisionEvent{Op: core.OpDecide, Err: core.ErrClosed}
	line := `level=WARN msg="decision failed" error="` + core.ErrClosed.Error() + `"`
	b.Observe(t.Context(), failed)
	b.want(t, line)
	b.clock.Advance(time.Minute)
	meanwhile = func() {
		b.clock.Advance(time.Millisecond)
		b.Observe(t.Context(), failed)
	}
	b.Observe(t.Context(), failed)
	b.want(t, line)
	b.Flush(t.Context())
	b.want(t, `level=WARN msg="decision failed again" times=1`)
}

// Each change of an operator is written, also one that has failed.
func TestChangesOfOperatorsAreNotSampled(t *testing.T) {
	b := newBook(t, slog.LevelInfo, sloggate.Config{})
	for _, operator := range []string{"kim", "lee"} {
		b.Observe(t.Context(), &admin.Event{Operator: operator, Op: admin.OpEndOverride, Err: eventtest.ErrFault})
		b.want(t, `level=WARN msg="changed by an operator" operation="end override" operator=`+operator+` error=fault`)
	}
}

// However many keys are denied, the lines that are remembered are bounded, and every denial counts.
func TestRememberedLinesAreBounded(t *testing.T) {
	b := newBook(t, slog.LevelInfo, sloggate.Config{MaxKeys: 3, Key: core.Key.String, Every: time.Second})
	g := eventtest.Gate(t, core.Config{Observe: b.Observe, Clock: b.clock.Now})
	none := core.Must(core.NewPolicy(core.PolicyConfig{Name: "none", Algorithm: core.DenyAll{}}))
	for i := range 10 {
		key := core.Must(core.NewKey(fmt.Sprint("k", i)))
		gatetest.Must(g.Decide(t.Context(), core.Charge{Policy: none, Key: key}))(t)
	}
	if lines := strings.Count(b.text.String(), "\n"); lines != 3 || !strings.Contains(b.text.String(), "key={k0}") {
		t.Errorf("%d lines: %s", lines, b.text.String())
	}
	b.text.Reset()
	b.clock.Advance(time.Second)
	b.Flush(t.Context())
	b.want(t, `level=INFO msg="denied again" times=7`)
}

// A flood of denials of many keys is a hundred lines, and silences no line of another kind.
func TestFloodIsBounded(t *testing.T) {
	b := newBook(t, slog.LevelInfo, sloggate.Config{})
	g := eventtest.Gate(t, core.Config{Observe: b.Observe})
	none := core.Must(core.NewPolicy(core.PolicyConfig{Name: "none", Algorithm: core.DenyAll{}}))
	for i := range 2 * 10_000 {
		key := core.Must(core.NewKey(fmt.Sprint("k", i/2)))
		gatetest.Must(g.Decide(t.Context(), core.Charge{Policy: none, Key: key}))(t)
	}
	gatetest.Equal(t, strings.Count(b.text.String(), "\n"), 100, "lines")
	b.text.Reset()
	b.Observe(t.Context(), &core.ServerEvent{Op: core.OpOverload, Node: "a:1", Err: core.ErrOverloaded})
	b.Observe(t.Context(), &core.DecisionEvent{Op: core.OpDecide, Err: core.ErrClosed})
	if text := b.text.String(); !strings.Contains(text, "msg=overload") || !strings.Contains(text, "decision failed") {
		t.Errorf("the log says %q", text)
	}
	b.text.Reset()
	b.Flush(t.Context())
	if text := b.text.String(); strings.Count(text, "\n") > 101 || !strings.Contains(text, "msg=\"denied again\" times=19800") {
		t.Errorf("the log says %q", text)
	}
}

func TestLevels(t *testing.T) {
	b := newBook(t, slog.LevelDebug, sloggate.Config{})
	policy, key := eventtest.Policy(t, "api", 1), eventtest.Key(t)
	g := eventtest.Gate(t, core.Config{})
	s := core.Must(semaphore.New(g, semaphore.Config{Name: "streams"}))
	locks := core.Must(semaphore.New(g, semaphore.Config{Name: "locks"}))
	misconfigured := fmt.Errorf("%w: NOPERM", core.ErrMisconfigured)
	for _, tt := range []struct {
		event core.Event
		want  string
	}{
		{&core.ServerEvent{Op: core.OpCircuitOpened, Node: "a:1", Err: eventtest.ErrFault}, `level=ERROR msg="circuit opened" node=a:1 error=fault`},
		{&core.ServerEvent{Op: core.OpCircuitClosed, Node: "a:1"}, `level=INFO msg="circuit closed" node=a:1`},
		{&core.ServerEvent{Op: core.OpScriptMissing}, `level=DEBUG msg="script missing" node=""`},
		{&core.ServerEvent{Op: core.OpOverload, Node: "a:1", Err: core.ErrOverloaded}, `level=WARN msg=overload node=a:1 error="` + core.ErrOverloaded.Error() + `"`},
		{&core.DecisionEvent{Op: core.OpDecide, Err: misconfigured}, `level=ERROR msg=misconfigured error="` + misconfigured.Error() + `"`},
		{&semaphore.AcquireEvent{Semaphore: s, Err: misconfigured}, ""}, // it was told already
		{&core.DecisionEvent{Op: core.OpDecide, Err: fmt.Errorf("core: %w", context.Canceled)}, ""},
		{&core.DecisionEvent{Op: core.OpDecide, Err: core.ErrClosed}, `level=WARN msg="decision failed" error="` + core.ErrClosed.Error() + `"`},
		{&core.ReservationEvent{Op: core.OpSettle}, ""},
		{&core.ReservationEvent{Op: core.OpSettle, Err: eventtest.ErrFault}, `level=ERROR msg="settle failed" error=fault`},
		{&core.ReservationEvent{Op: core.OpRefundFailed, Err: eventtest.ErrFault}, `level=ERROR msg="refund failed" error=fault`},
		{&core.ReservationEvent{Op: core.OpHoldExpired}, `level=WARN msg="hold expired"`},
		{&core.KeyEvent{Op: core.OpLedger, Policy: policy, Key: key}, ""},
		{&core.KeyEvent{Op: core.OpLedger, Policy: policy, Key: key, Err: eventtest.ErrFault}, `level=WARN msg="ledger failed" policy=api error=fault`},
		{&core.KeyEvent{Op: core.OpAdjust, Policy: policy, Key: key}, `level=INFO msg=adjust policy=api key=` + hash},
		{&core.ThresholdEvent{Policy: policy, Key: key, Percent: 80, Used: 8, Limit: 10}, `level=INFO msg="threshold reached" policy=api key=` + hash + ` percent=80 used=8 limit=10`},
		{&semaphore.AcquireEvent{Semaphore: s, Source: core.SourceRedis}, ""},
		{&semaphore.AcquireEvent{Semaphore: s, Source: core.SourceRedis, Full: &semaphore.FullError{}}, `level=INFO msg="slot refused" semaphore=streams source=redis`},
		{&semaphore.AcquireEvent{Semaphore: s, Source: core.SourceLocal, Err: eventtest.ErrFault}, `level=WARN msg="slot without Redis" semaphore=streams error=fault`},
		{&semaphore.AcquireEvent{Semaphore: locks, Source: core.SourceClosed, Err: eventtest.ErrFault},
			`level=WARN msg="slot without Redis" semaphore=locks error=fault` + "\n" + `level=INFO msg="slot refused" semaphore=locks source=closed`},
		{&semaphore.AcquireEvent{Semaphore: s, Err: core.ErrClosed}, `level=WARN msg="acquire failed" semaphore=streams error="` + core.ErrClosed.Error() + `"`},
		{&semaphore.LeaseEvent{Kind: semaphore.LeaseReleased, Semaphore: s}, ""},
		{&semaphore.LeaseEvent{Kind: semaphore.LeaseLost, Semaphore: s, Err: semaphore.ErrLeaseLost}, `level=ERROR msg="lease lost" semaphore=streams`},
		{&semaphore.LeaseEvent{Kind: semaphore.LeaseEvicted, Semaphore: s}, `level=WARN msg="lease evicted" semaphore=streams`},
		{&semaphore.LeaseEvent{Kind: semaphore.LeaseReleased, Semaphore: s, Err: eventtest.ErrFault}, `level=WARN msg="release failed" semaphore=streams error=fault`},
	} {
		b.Observe(t.Context(), tt.event)
		if tt.want == "" {
			b.want(t)
		} else {
			b.want(t, tt.want)
		}
	}
	for range 3 { // at once, and then no more than once a minute
		b.Observe(t.Context(), &core.DecisionEvent{Op: core.OpDecide, Err: misconfigured})
	}
	b.want(t)
}

// No event of any package breaks a line, and none shows a key.
func TestNoEventShowsKey(t *testing.T) {
	b := newBook(t, slog.LevelDebug, sloggate.Config{})
	for _, e := range eventtest.All(t) {
		b.Observe(t.Context(), e)
	}
	b.Flush(t.Context())
	log := b.text.String()
	if strings.Contains(log, eventtest.Tenant) {
		t.Errorf("a key is in the log:\n%s", log)
	}
	for _, said := range []string{`msg="prices failed"`, `msg="plans failed"`, `msg="a budget denied a running response"`} {
		if !strings.Contains(log, said) {
			t.Errorf("the log lacks %s:\n%s", said, log)
		}
	}
}

func TestFaultsOfConfig(t *testing.T) {
	_, err := sloggate.New(sloggate.Config{Every: time.Millisecond, MaxKeys: -1})
	if err == nil || !strings.Contains(err.Error(), "Config.Every") || !strings.Contains(err.Error(), "Config.MaxKeys") {
		t.Error(err)
	}
	if _, err := sloggate.New(sloggate.Config{}); err != nil {
		t.Error(err)
	}
}
