package admin

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/gatetest"
)

func TestCounterKeepsAMinute(t *testing.T) {
	var c counter
	start := time.Unix(1_763_700_000, 0)
	want := make(map[int64]int64)
	rng := rand.New(rand.NewPCG(1, 1))
	for second := range int64(300) {
		now := start.Add(time.Duration(second) * time.Second)
		if second > 100 && second < 180 { // a gap longer than the history
			continue
		}
		for range rng.IntN(5) {
			c.add(now)
			want[second]++
		}
		sum := int64(0)
		for i, n := range c.read(now) {
			at := second - history + int64(i)
			gatetest.Need(t, n, want[at], "at %d, second %d has", second, at)
			sum += n
		}
		gatetest.Need(t, c.minute(now), sum, "a minute has")
	}
}

// No count is too low, none is too high by more than it says, and whoever is more than a 256th of all
// is there, whatever comes between.
func TestRefusedFindsWhoIsRefusedMost(t *testing.T) {
	var r refused
	rng := rand.New(rand.NewPCG(2, 2))
	now := time.Unix(1_763_700_000, 0)
	truth := make(map[refusal]int64)
	total := int64(0)
	for i := range 100_000 {
		name := fmt.Sprint("tail", rng.IntN(20_000))
		if rng.IntN(3) == 0 {
			name = fmt.Sprint("head", int(rng.ExpFloat64()*4))
		}
		who := refusal{"api", gatetest.Key(t, name)}
		truth[who]++
		total++
		r.add(who, now.Add(time.Duration(i)*time.Microsecond))
	}
	most, since := r.most(1000, now.Add(time.Second))
	if len(most) > 2*maxCounts || !since.Equal(now) {
		t.Errorf("%d keys since %v", len(most), since)
	}
	found := make(map[refusal]bool)
	for i, c := range most {
		found[c.refusal] = true
		if c.Times < truth[c.refusal] || c.Times-c.Over > truth[c.refusal] || i > 0 && c.Times > most[i-1].Times {
			t.Errorf("%v counts %d (over %d), want %d", c.refusal, c.Times, c.Over, truth[c.refusal])
		}
	}
	for who, n := range truth {
		if n > total/maxCounts && !found[who] {
			t.Errorf("%v with %d of %d is not found", who, n, total)
		}
	}
	if n, m := len(r.now.counts), len(r.now.place); n != maxCounts || m != maxCounts {
		t.Errorf("%d counts, %d places", n, m)
	}
	gatetest.Equal(t, most[0].Key, gatetest.Key(t, "head0"), "the first is %v", most[0])
	later, _ := r.most(10, now.Add(90*time.Second))
	if len(later) == 0 {
		t.Error("a minute is forgotten after half of the next")
	}
	if gone, _ := r.most(10, now.Add(5*time.Minute)); len(gone) > 0 {
		t.Errorf("after five minutes %v", gone)
	}
}

// A process under attack by ever new keys, and one with ever new policies, keeps what it keeps.
func TestLiveIsBounded(t *testing.T) {
	var l Live
	g := core.Must(core.NewMemory(core.Config{Observe: l.Observe}))
	defer func() { _ = g.Close(context.Background()) }()
	for i := range 2000 {
		p := core.Must(core.NewPolicy(core.PolicyConfig{Name: fmt.Sprint("p", i), Algorithm: core.DenyAll{}}))
		gatetest.Must(g.Decide(t.Context(), core.Charge{Policy: p, Key: gatetest.Key(t, fmt.Sprint(i))}))(t)
		l.Observe(t.Context(), &core.ServerEvent{Op: core.OpCircuitOpened, Node: fmt.Sprint(i), Err: errors.New("x")})
		l.Observe(t.Context(), &core.ServerEvent{Op: core.OpOverload})
	}
	series := 0
	l.rates.minutes.Range(func(any, any) bool { series++; return true })
	if series != maxMinutes || len(l.refused.now.counts) != maxCounts || len(l.failures) != maxFailures {
		t.Errorf("%d series, %d keys, %d failures", series, len(l.refused.now.counts), len(l.failures))
	}
	denials := int64(0)
	for _, one := range l.rates.read(time.Now().Add(time.Second)) {
		denials += one.Denials
	}
	if overloads := l.overloads.minute(time.Now().Add(time.Second)); denials != 2000 || overloads != 2000 {
		t.Errorf("of 2000 each, %d denials and %d overloads are counted", denials, overloads)
	}
}

// What comes again and again allocates nothing.
func TestObserveAllocatesNothing(t *testing.T) {
	var l Live
	p := core.Must(core.NewPolicy(core.PolicyConfig{Name: "api", Algorithm: core.TokenBucket{Burst: 1}}))
	var denied, allowed core.DecisionEvent
	observe := func(_ context.Context, e core.Event) {
		d := *e.(*core.DecisionEvent)
		d.Charges = append([]core.Charge(nil), d.Charges...)
		if allowed, denied = denied, d; d.Decision.Allowed {
			allowed = d
		}
	}
	g := core.Must(core.NewMemory(core.Config{Observe: observe}))
	defer func() { _ = g.Close(context.Background()) }()
	for range 2 {
		gatetest.Must(g.Decide(t.Context(), core.Charge{Policy: p, Key: gatetest.Key(t, "k")}))(t)
	}
	if !allowed.Decision.Allowed || denied.Decision.Allowed {
		t.Fatal(allowed, denied)
	}
	for _, e := range []*core.DecisionEvent{&allowed, &denied} {
		if n := testing.AllocsPerRun(100, func() { l.Observe(t.Context(), e) }); n > 0 {
			t.Errorf("allowed %v: %v allocations", e.Decision.Allowed, n)
		}
	}
}
