package nethttp_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/keyfunc"
)

// forged returns a request that an operator makes up for a client.
func forged(change ...func(*http.Request)) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	for _, f := range change {
		f(r)
	}
	return r
}

func TestChargesFindTheKeys(t *testing.T) {
	t.Parallel()
	eachGate(t, func(t *testing.T, gate *core.Gate) {
		g, _ := chat(t, gate, func(cfg *nethttp.Config) {
			cfg.Rules[0].Cost = func(*http.Request) int64 { return 3 }
			cfg.Plan = func(*http.Request) (core.Plan, error) {
				return plan{limits: map[string]core.Algorithm{cfg.Rules[0].Policy.Name(): core.TokenBucket{Burst: 8}}}, nil
			}
			cfg.Rules = append(cfg.Rules, nethttp.Rule{
				Policy: policy(t, core.PolicyConfig{Name: "skipped", Algorithm: core.DenyAll{}}),
				Key:    keyfunc.RemoteIP(), Skip: func(*http.Request) bool { return true },
			})
		})
		h := g.Handler(http.HandlerFunc(ok))
		get(h, as("acme", "ann"))
		get(h, as("acme", "bob"))

		charges, err := g.Charges(forged(as("acme", "ann")))
		if err != nil || len(charges) != 1 || charges[0].Cost != 3 || charges[0].Limit != (core.TokenBucket{Burst: 8}) {
			t.Fatalf("%+v, %v", charges, err)
		}
		for range 2 { // neither Charges nor Peek spends
			if d := gatetest.Peek(t, gate, charges...); !d.Allowed || d.At(0).Remaining != 5 {
				t.Fatalf("%+v", d)
			}
		}
		gatetest.NoError(t, gate.Reset(t.Context(), charges[0]))
		for user, want := range map[string]string{"ann": `"requests";r=5`, "bob": `"requests";r=2`} {
			if got := get(h, as("acme", user)).Header.Get("RateLimit"); got != want {
				t.Errorf("%s after the reset: %s, want %s", user, got, want)
			}
		}
	})
}

func TestLevelsFindTheHolders(t *testing.T) {
	t.Parallel()
	eachGate(t, func(t *testing.T, gate *core.Gate) {
		g, s := chat(t, gate, func(cfg *nethttp.Config) {
			cfg.Plan = func(*http.Request) (core.Plan, error) {
				return plan{caps: map[string][3]int64{cfg.Slot.Caps[1].Name: {1}}}, nil
			}
			cfg.Slot.Skip = func(r *http.Request) bool { return r.Header.Get("X-User") == "root" }
		})
		o := newRunning(t, g)
		o.enter(as("acme", "ann"))
		caps, err := g.Caps(forged(as("acme", "ann")))
		if err != nil || len(caps) != 2 || caps[0].Limit != 3 || caps[1].Limit != 1 {
			t.Fatalf("%+v, %v", caps, err)
		}
		held, waiting, err := s.Holders(t.Context(), caps[0].Key)
		if err != nil || len(held) != 1 || waiting != 0 {
			t.Errorf("%+v, %d wait, %v", held, waiting, err)
		}
		if _, err := s.Acquire(t.Context(), semaphore.Request{Caps: caps}); !errors.Is(err, semaphore.ErrFull) {
			t.Errorf("the caps are not those of the request: %v", err)
		}
		if caps, err := g.Caps(forged(as("acme", "root"))); caps != nil || err != nil {
			t.Errorf("a skipped request has %+v, %v", caps, err)
		}
		o.leave()
	})
}

func TestLevelsHaveShares(t *testing.T) {
	g, _ := chat(t, memory(t, newClock()), func(cfg *nethttp.Config) {
		users := &cfg.Slot.Caps[1]
		users.Limit, users.Share, users.Floor = 9, 2, 5 // above the limit of 2 that some requests have
		cfg.Plan = func(r *http.Request) (core.Plan, error) {
			user := r.Header.Get("X-User")
			numbers := [3]int64{int64(len(user))}
			switch user {
			case "paying":
				numbers = [3]int64{6, 30, 3}
			case "negative":
				numbers = [3]int64{8, 1, -1}
			}
			return plan{caps: map[string][3]int64{users.Name: numbers, cfg.Slot.Caps[0].Name: {0, 7, 7}}}, nil
		}
	})
	for user, want := range map[string][2]int64{"paying": {30, 3}, "me": {2, 2}, "somebody": {2, 5}} {
		caps, err := g.Caps(forged(as("acme", user)))
		if err != nil || [2]int64{caps[1].Share, caps[1].Floor} != want || caps[0].Share+caps[0].Floor != 0 {
			t.Errorf("%s: %+v, %v", user, caps, err)
		}
	}
	answers(t, get(g.Handler(http.HandlerFunc(ok)), as("acme", "negative")), 500)
}

func TestChargesReportMissingKeys(t *testing.T) {
	g, _ := chat(t, memory(t, newClock()))
	r := forged()
	if charges, err := g.Charges(r); charges != nil || !errors.Is(err, keyfunc.ErrNoKey) {
		t.Errorf("%+v, %v", charges, err)
	}
	if caps, err := g.Caps(r); caps != nil || !errors.Is(err, keyfunc.ErrNoKey) {
		t.Errorf("%+v, %v", caps, err)
	}
}
