package measure

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/headgate/headgate/lab/bench/internal/server"
)

func TestQuantile(t *testing.T) {
	values := []float64{5, 1, 4, 2, 3}
	for _, c := range []struct{ q, want float64 }{{0, 1}, {0.5, 3}, {0.99, 5}, {1, 5}} {
		if got := Quantile(values, c.q); got != c.want {
			t.Errorf("Quantile(1 to 5, %v) = %v, want %v", c.q, got, c.want)
		}
	}
	if got := Quantile([]float64(nil), 0.5); got != 0 {
		t.Errorf("of nothing: %v", got)
	}
	if got := median([]float64{4, 1, 2, 3}); got != 2.5 {
		t.Errorf("median of 1 to 4 = %v", got)
	}
}

// Every contender has its turn in every round, between two slices of the reference, and answers are told apart.
func TestRounds(t *testing.T) {
	var order []string
	do := func(name string, right bool, err error) Contender {
		return Contender{Name: name, Do: func(context.Context, int, int) (bool, error) {
			if len(order) == 0 || order[len(order)-1] != name {
				order = append(order, name)
			}
			return right, err
		}}
	}
	contenders := []Contender{do("right", true, nil), do("wrong", false, nil), do("failing", false, errors.New("failed"))}
	var d Driver
	load := Load{Workers: 1, Keys: 1, Slice: time.Millisecond, Untimed: true}
	const rounds = 4
	results, err := d.Rounds(t.Context(), rounds, load, do("ping", true, nil).Do, contenders)
	if err != nil {
		t.Fatal(err)
	}
	if want := len(contenders) + 1 + 2*rounds*len(contenders); len(order) != want {
		t.Fatalf("%d turns, want %d: %v", len(order), want, order)
	}
	for i, name := range order[len(contenders):] {
		if (name == "ping") != (i%2 == 0) {
			t.Fatalf("turn %d was %s: %v", i, name, order)
		}
	}
	for i, r := range results {
		right, wrong, failed := r.Answered()
		n := []int64{right, wrong, failed}
		for j := range n {
			if (n[j] > 0) != (i == j) {
				t.Errorf("%s: %d right, %d wrong, %d failed", r.Name, right, wrong, failed)
			}
		}
		if len(r.Pairs) != rounds {
			t.Errorf("%s: %d pairs", r.Name, len(r.Pairs))
		}
	}
	if faults := results[1].Own(Faults); faults != 1 {
		t.Errorf("faults of what is always wrong: %v", faults)
	}
	if rate := results[2].ToPing(Rate); rate != 0 {
		t.Errorf("rate of what always fails: %v", rate)
	}
}

// A PING stands before every call, or before as many as one of them is timed of.
func TestTurns(t *testing.T) {
	for _, c := range []struct {
		brief bool
		calls int
	}{{false, 1}, {true, seldom}} {
		var d Driver
		since := c.calls
		ping := func(context.Context, int, int) (bool, error) {
			if since != c.calls {
				t.Errorf("%d calls between PINGs, want %d", since, c.calls)
			}
			since = 0
			return true, nil
		}
		call := func(context.Context, int, int) (bool, error) {
			since++
			return false, nil
		}
		load := Load{Workers: 1, Keys: 1, Slice: time.Millisecond}
		pings, calls, err := d.turns(t.Context(), load, c.brief, ping, call)
		if err != nil {
			t.Fatal(err)
		}
		if pings.Right == 0 || pings.Ops() != float64(pings.Right) || calls.Wrong != pings.Right*int64(c.calls) {
			t.Errorf("%v PINGs and %v calls", pings, calls)
		}
		if n := len(d.tallies[1].times); int64(n) != pings.Right {
			t.Errorf("%d calls were timed after %d PINGs", n, pings.Right)
		}
	}
}

// What a lone caller's calls cost is without the PINGs between them, and how long they take is not.
func TestLoneCost(t *testing.T) {
	var reads int64
	do := func(n int64, takes time.Duration) Do {
		return func(context.Context, int, int) (bool, error) {
			reads += n
			time.Sleep(takes) // what is measured
			return true, nil
		}
	}
	d := Driver{Meter: func(context.Context) (server.Usage, error) { return server.Usage{Reads: reads}, nil }}
	load := Load{Workers: 1, Keys: 1, Slice: 10 * time.Millisecond}
	results, err := d.Rounds(t.Context(), 2, load, do(100, 0), []Contender{{Do: do(1, 100*time.Microsecond)}})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range results[0].Pairs {
		if p.Own.Cost.Reads != 1 || len(p.Pings) != 1 || p.Pings[0].Right != p.Own.Right {
			t.Errorf("a call reads once, as often as there are PINGs: %+v", p)
		}
		if slow, rate := p.ToPing(P50), p.ToPing(Rate); slow < 1 || rate > 1 {
			t.Errorf("what sleeps takes %v times as long, at %v times the rate", slow, rate)
		}
	}
}
