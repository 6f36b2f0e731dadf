package core_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/redistest"
)

// Sixteen charges of all algorithms, whether admitted, denied, reserved or cancelled, take one
// command and one script.
func TestSixteenChargesTakeOneRoundTrip(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	client := s.Client(t)
	var sent atomic.Int64
	client.AddHook(gatetest.OnCommands(func(_ context.Context, cmds []redis.Cmder, send func() error) error {
		sent.Add(int64(len(cmds)))
		return send()
	}))
	g := redisGate(t, client, core.Config{Prefix: s.Prefix})
	var charges []core.Charge
	for i := range core.MaxCharges {
		charges = append(charges, core.Charge{
			Policy: limited(t, fmt.Sprint("p", i), limitsOfTen[i%len(limitsOfTen)].algorithm),
			Key:    newKey(t, "tenant", fmt.Sprint("user", i%3)), Cost: 1,
		})
	}
	decide(t, g, charges...)

	var reservation *core.Reservation
	is := func(allowed bool) func(core.Decision, error) error {
		return func(d core.Decision, err error) error {
			if err == nil && (d.Allowed != allowed || d.Cause != nil || d.Len() != len(charges)) {
				err = fmt.Errorf("%s", show(d))
			}
			return err
		}
	}
	greedy := append([]core.Charge(nil), charges...)
	greedy[len(greedy)-1].Cost = 11
	tests := []struct {
		name string
		call func() error
	}{
		{"admitted", func() error { return is(true)(g.Decide(t.Context(), charges...)) }},
		{"denied", func() error { return is(false)(g.Decide(t.Context(), greedy...)) }},
		{"peek", func() error { return is(true)(g.Peek(t.Context(), charges...)) }},
		{"at most", func() error {
			n, d, err := atMost(g, t.Context(), charges...)
			if err == nil && n != 1 {
				err = fmt.Errorf("%d granted", n)
			}
			return is(true)(d, err)
		}},
		{"reserved", func() error {
			// An hour is long enough for the queue of the leaky bucket.
			r, d, err := g.Reserve(t.Context(), time.Hour, charges...)
			reservation = r
			return is(true)(d, err)
		}},
		{"cancelled", func() error { return reservation.Cancel(t.Context()) }},
	}
	for _, tt := range tests {
		client, server := sent.Load(), s.Calls(t, "evalsha", "eval")
		if err := tt.call(); err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		client, server = sent.Load()-client, s.Calls(t, "evalsha", "eval")-server
		if client != 1 || server != 1 {
			t.Errorf("%s: %d commands and %d scripts", tt.name, client, server)
		}
	}
}
