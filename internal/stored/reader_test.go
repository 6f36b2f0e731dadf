package stored_test

import (
	"cmp"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/hub"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/internal/stored"
)

func TestParse(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]stored.Name{
		"{acme}:user-1:tb3":     {Kind: stored.Bundle, Path: "{acme}:user-1"},
		"{acme}:tb3":            {Kind: stored.Bundle, Path: "{acme}"},
		"{tb3}:tb3:tb3":         {Kind: stored.Bundle, Path: "{tb3}:tb3"},
		"{acme}:api:fw2:tb3":    {Kind: stored.Bundle, Path: "{acme}:api:fw2"},
		"{acme}:user-1:api:fw2": {Kind: stored.State, Path: "{acme}:user-1", Of: "api", Tag: "fw2"},
		"{acme}:api:fw2":        {Kind: stored.State, Path: "{acme}", Of: "api", Tag: "fw2"},
		"{a}:x:sw2zik0zj:sw2q":  {Kind: stored.State, Path: "{a}:x", Of: "sw2zik0zj", Tag: "sw2q"},
		"{acme}:api:tb2:h2":     {Kind: stored.Holds, Path: "{acme}", Of: "api", Tag: "tb2"},
		"{k}:ids.once:bl1:an1":  {Kind: stored.Answer, Path: "{k}", Of: "ids.once", Tag: "bl1"},
		"{acme}:u:month:ca2M1x:a2": {
			Kind: stored.Adjustments, Path: "{acme}:u", Of: "month", Tag: "ca2M1x",
		},
		"{acme}:tokens:ca2M:t80-1000-1761955200000000": {
			Kind: stored.Threshold, Path: "{acme}", Of: "tokens", Tag: "ca2M",
		},
		"{acme}:tokens:ca2M:t80-1000-0:claim": {
			Kind: stored.Threshold, Path: "{acme}", Of: "tokens", Tag: "ca2M",
		},
		"{acme}:streams:se7:m":     {Kind: stored.Scope, Path: "{acme}", Of: "streams"},
		"{plans}:acme:ov1":         {Kind: stored.Override, Path: "{plans}:acme"},
		"{plans}:ov1":              {Kind: stored.Override, Path: "{plans}"},
		"{pages}:bf2":              {Kind: stored.Filter, Path: "{pages}"},
		"{pages}:bf2:e0":           {Kind: stored.Filter, Path: "{pages}"},
		"{acme}:payments.once:bl1": {Kind: stored.State, Path: "{acme}", Of: "payments.once", Tag: "bl1"},
	} {
		if got, ok := stored.Parse(name); !ok || got != want {
			t.Errorf("%s: %+v, %v, want %+v", name, got, ok, want)
		}
	}
	for _, name := range []string{
		"", "wake:abc", "{acme", "{}:tb3", "{acme}", "{acme}tb3", "{acme}:", "{acme}:fw2", "{acme}:api:xx9",
		"{acme}:se7:m", "{acme}:streams:se7:q", "{acme}:x:streams:se7:m", "{acme}:wake:id",
	} {
		if got, ok := stored.Parse(name); ok {
			t.Errorf("%q is %+v", name, got)
		}
	}
}

// A Reader finds all that Gates store of a key, and names what it finds.
func TestSubject(t *testing.T) {
	t.Parallel()
	srv := redistest.Real(t)
	client := srv.Client(t)
	gate := gatetest.Redis(t, client, core.Config{Prefix: srv.Prefix, DisableDenialCache: true})
	r := &stored.Reader{Client: client, Prefix: srv.Prefix + ":", Timeout: 30 * time.Second}
	key, other := gatetest.Key(t, "acme", "user:1 {x}"), gatetest.Key(t, "acme", "user:1 {x}", "below")
	var charges []core.Charge
	words := make(map[string]string)
	for name, limit := range map[string]core.Algorithm{
		"token bucket": core.TokenBucket{Rate: 7, Per: time.Hour, Burst: 40}, "units in all": core.TokenBucket{Burst: 60},
		"leaky bucket": core.LeakyBucket{Rate: 5, Per: time.Hour, Capacity: 30},
		"fixed window": core.FixedWindow{Limit: 50, Window: time.Hour}, "sliding window": core.SlidingWindow{Limit: 50, Window: time.Hour},
		"sliding window in buckets": core.SlidingWindow{Limit: 50, Window: time.Hour, Buckets: 60},
		"sliding log":               core.SlidingLog{Windows: []core.Window{{Limit: 50, Width: time.Hour}}},
		"calendar":                  core.Calendar{Limit: 50, Every: core.PeriodMonth, In: time.UTC},
		"block":                     core.Block{Strikes: 20, Within: time.Hour, For: time.Minute},
	} {
		p := gatetest.Limited(t, strings.ReplaceAll(name, " ", "_"), limit)
		charges = append(charges, core.Charge{Policy: p, Key: key})
		words[p.Name()] = name
		words[stored.Label(core.Inside(hub.Pass{}).Suffix(p))] = "bucket"
	}
	gatetest.Decide(t, gate, charges...)
	gatetest.Decide(t, gate, core.Charge{Policy: charges[0].Policy, Key: other})
	s, err := r.Subject(t.Context(), key.String(), false)
	if err != nil || s.Below != 1 || len(s.Counts) != len(charges) || len(s.Keys) != len(charges)-1 {
		t.Fatalf("%v, %+v", err, s)
	}
	for _, c := range s.Counts {
		if got, want := cmp.Or(stored.Algorithm(c.Tag), "bucket"), words[c.Of+c.Label]; got != want || c.TTL < time.Second || c.Value == "" {
			t.Errorf("%+v is a %s, want %q", c, got, want)
		}
	}
	if s, err := r.Subject(t.Context(), "{acme}", true); err != nil || len(s.Counts) != len(charges)+1 {
		t.Errorf("below {acme}: %+v, %v", s, err)
	}
	gatetest.Equal(t, len(gatetest.Must(r.Subject(t.Context(), "{nobody}", true))(t).Keys), 0, "{nobody}")
	for name, value := range map[string]any{"b}:tb3": "short", "c}:api:fw2": nil} { // other programs have them
		if value == nil {
			gatetest.NoError(t, client.RPush(t.Context(), srv.Prefix+":{"+name, "x").Err())
		} else {
			gatetest.NoError(t, client.Set(t.Context(), srv.Prefix+":{"+name, value, time.Minute).Err())
		}
		if s, err := r.Subject(t.Context(), "{"+name[:2], false); err == nil {
			t.Errorf("%s: %+v", name, s)
		}
	}
}
