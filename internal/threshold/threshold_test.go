package threshold_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/algorithm"
	"github.com/headgate/headgate/internal/breaker"
	"github.com/headgate/headgate/internal/memstore"
	"github.com/headgate/headgate/internal/request"
	"github.com/headgate/headgate/internal/threshold"
)

var errDown = errors.New("the store is down")

// process is a Watch of one process on a store that all share.
type process struct {
	*threshold.Watch[string]
	tasks breaker.Tasks
	down  bool
	told  []int // percent
}

func newProcess(store *memstore.Store, clock func() int64) *process {
	p := new(process)
	p.Watch = threshold.New(threshold.Config[string]{
		Send: func(requests []request.Request) error {
			if p.down {
				return errDown
			}
			return store.Decide(context.Background(), requests)
		},
		Tell:  func(_ *threshold.Sighting[string], percent int) { p.told = append(p.told, percent) },
		Tasks: &p.tasks, Clock: clock, Pause: time.Millisecond,
	})
	return p
}

// see shows the process a state of which so much of the limit is used, and wants it to tell those
// thresholds.
func (p *process) see(t *testing.T, used, limit int64, want ...int) {
	t.Helper()
	percents := []int{80, 90, 100}
	p.See(threshold.Sighting[string]{
		Owner: "owner", ID: 1, Percents: percents, Bits: threshold.Reached(percents, used, limit),
		State: threshold.State{Key: "{k}", Outer: 3, KeyHash: 7, Suffix: ":p:w"},
		Used:  used, Limit: limit, Span: algorithm.Span{Start: 60_000_000, Width: 60_000_000},
		Asked: time.Now(),
	})
	if err := p.tasks.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(p.told, want) {
		t.Errorf("%d of %d: told %v, want %v", used, limit, p.told, want)
	}
	p.told = nil
}

func TestOneProcessTellsAThreshold(t *testing.T) {
	clock := func() int64 { return 61_000_000 }
	store := memstore.New(1000, clock)
	a, b := newProcess(store, clock), newProcess(store, clock)
	a.see(t, 79, 100)
	a.see(t, 80, 100, 80)
	b.see(t, 95, 100, 90)
	a.see(t, 100, 100, 100)
	b.see(t, 101, 100)
	b.see(t, 100, 120, 80) // a raised limit has its own
	a.see(t, 101, 120)
}

func TestFailedClaimIsMadeByALaterSighting(t *testing.T) {
	clock := func() int64 { return 61_000_000 }
	p := newProcess(memstore.New(1000, clock), clock)
	p.down = true
	p.see(t, 80, 100)
	p.down = false
	p.see(t, 80, 100, 80)
	p.see(t, 80, 100)
}

func TestReachedIsExact(t *testing.T) {
	for _, tt := range []struct {
		used, limit int64
		want        uint8
	}{
		{0, 0, 0b11}, {0, 10, 0}, {7, 9, 0}, {8, 10, 0b01}, {9, 10, 0b01}, {10, 10, 0b11}, {11, 10, 0b11},
		{799_999_999_999_999, 1_000_000_000_000_000, 0}, {800_000_000_000_000, 1_000_000_000_000_000, 0b01},
	} {
		if got := threshold.Reached([]int{80, 100}, tt.used, tt.limit); got != tt.want {
			t.Errorf("%d of %d reaches %b, want %b", tt.used, tt.limit, got, tt.want)
		}
	}
}
