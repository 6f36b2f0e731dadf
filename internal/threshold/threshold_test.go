package threshold_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/algorithm"
	"github.com/headgate/headgate/internal/breaker"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/memstore"
	"github.com/headgate/headgate/internal/request"
	"github.com/headgate/headgate/internal/threshold"
)

var errDown = errors.New("the store is down")

// fault is what becomes of the requests of a process.
type fault int32

const (
	none      fault = iota
	refused         // the store runs none
	noMarks         // the store runs no mark
	noAnswers       // the store runs them, and its replies are lost
)

// process is a Watch of one process on a store that all share.
type process struct {
	*threshold.Watch[string]
	tasks *breaker.Tasks
	fault atomic.Int32
	told  []int // percent
}

func newProcess(store *memstore.Store, clock func() int64) *process {
	p := &process{tasks: breaker.NewTasks()}
	p.Watch = threshold.New(threshold.Config[string]{
		Send: func(requests []request.Request) error {
			f := fault(p.fault.Load())
			first := requests[0]
			marks := first.Op == algorithm.Decide && !strings.HasSuffix(first.Charges[0].Suffix, ":claim")
			if f == refused || f == noMarks && marks {
				return errDown
			}
			err := store.Decide(context.Background(), requests)
			if f == noAnswers {
				return errDown
			}
			return err
		},
		Tell:  func(_ *threshold.Sighting[string], percent int) { p.told = append(p.told, percent) },
		Tasks: p.tasks, Clock: clock, Pause: time.Millisecond,
	})
	return p
}

// spot shows the process a state of which so much of the limit is used.
func (p *process) spot(used, limit int64, span algorithm.Span) {
	percents := []int{80, 90, 100}
	p.See(threshold.Sighting[string]{
		Owner: "owner", ID: 1, Percents: percents, Bits: threshold.Reached(percents, used, limit),
		State: threshold.State{Key: request.Key{Path: "{k}", Outer: 3, KeyHash: 7}, Suffix: ":p:w"},
		Used:  used, Limit: limit, Span: span, Asked: time.Now(),
	})
}

// check waits until the process has nothing to do, and wants it to have told those thresholds.
func (p *process) check(t *testing.T, want ...int) {
	t.Helper()
	gatetest.NoError(t, p.tasks.Wait(t.Context()))
	if !slices.Equal(p.told, want) {
		t.Errorf("told %v, want %v", p.told, want)
	}
	p.told = nil
}

// A threshold that is crossed while the store fails is told once, however long that lasts and
// though no later decision finds it.
func TestThresholdsOutliveFaults(t *testing.T) {
	for name, tt := range map[string]struct {
		fault fault
		lasts time.Duration
		span  algorithm.Span
		want  []int // afterwards
	}{
		"refused for a second":         {refused, time.Second, algorithm.Span{}, []int{80}},
		"refused longer than a claim":  {refused, 12 * time.Second, algorithm.Span{}, []int{80}},
		"refused for an hour":          {refused, time.Hour, algorithm.Span{}, []int{80}},
		"refused in a minute":          {refused, 59 * time.Second, minute(30 * time.Second), []int{80}},
		"refused till the mark is old": {refused, 91 * time.Second, minute(30 * time.Second), nil},
		"marks, longer than a claim":   {noMarks, 12 * time.Second, algorithm.Span{}, []int{80}},
		"marks, for an hour":           {noMarks, time.Hour, algorithm.Span{}, []int{80}},
		"answers lost for a second":    {noAnswers, time.Second, algorithm.Span{}, []int{80}},
		"answers lost for longer":      {noAnswers, 12 * time.Second, algorithm.Span{}, []int{80}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				clock := func() int64 { return time.Now().UnixMicro() }
				store := memstore.New(1000, clock)
				a, b := newProcess(store, clock), newProcess(store, clock)
				a.fault.Store(int32(tt.fault))
				a.spot(80, 100, tt.span)
				time.Sleep(tt.lasts)
				a.fault.Store(int32(none))
				a.check(t, tt.want...)
				b.spot(80, 100, tt.span)
				if tt.want != nil {
					b.check(t)
				}
				a.tasks.Stop()
				b.tasks.Stop()
			})
		})
	}
}

// minute returns a span of a minute.
func minute(left time.Duration) algorithm.Span {
	return algorithm.Span{Start: 60_000_000, Width: time.Minute.Microseconds(), Left: left.Microseconds()}
}

// A claim that is late is one of the period of its decision, in which another process has told the
// threshold.
func TestLateClaimIsOfItsPeriod(t *testing.T) {
	for _, lasts := range []time.Duration{
		time.Second, 29 * time.Second, 31 * time.Second, 80 * time.Second,
	} {
		t.Run(lasts.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				clock := func() int64 { return time.Now().UnixMicro() }
				store := memstore.New(1000, clock)
				a, b := newProcess(store, clock), newProcess(store, clock)
				time.Sleep(30 * time.Second) // a bubble begins with a minute
				a.fault.Store(int32(refused))
				a.spot(80, 100, minute(30*time.Second))
				b.spot(80, 100, minute(30*time.Second))
				b.check(t, 80)
				time.Sleep(lasts)
				a.fault.Store(int32(none))
				a.check(t)
			})
		})
	}
}
