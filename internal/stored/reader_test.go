package stored_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/internal/gatetest"
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
			Kind: stored.Threshold, Path: "{acme}", Of: "tokens", Tag: "ca2M", Part: "t80-1000-1761955200000000",
		},
		"{acme}:tokens:ca2M:t80-1000-0:claim": {
			Kind: stored.Threshold, Path: "{acme}", Of: "tokens", Tag: "ca2M", Part: "t80-1000-0:claim",
		},
		"{acme}:streams:se7:m":     {Kind: stored.Scope, Path: "{acme}", Of: "streams", Part: "m"},
		"{plans}:acme:ov1":         {Kind: stored.Override, Path: "{plans}:acme"},
		"{plans}:ov1":              {Kind: stored.Override, Path: "{plans}"},
		"{pages}:bf2":              {Kind: stored.Filter, Path: "{pages}"},
		"{pages}:bf2:e0":           {Kind: stored.Filter, Path: "{pages}", Part: "e0"},
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

// algorithms are one limit of each kind.
var algorithms = []struct {
	name  string
	limit core.Algorithm
	known bool // Used does not depend on the limit
}{
	{"bucket", core.TokenBucket{Rate: 7, Per: time.Hour, Burst: 40}, false},
	{"leak", core.LeakyBucket{Rate: 5, Per: time.Hour, Capacity: 30}, false},
	{"frozen", core.TokenBucket{Burst: 60}, true},
	{"lifetime", core.TokenBucket{Burst: 60, Per: time.Hour}, true},
	{"fixed", core.FixedWindow{Limit: 50, Window: time.Hour}, true},
	{"first", core.FixedWindow{Limit: 50, Window: time.Hour, FromFirst: true}, true},
	{"sliding", core.SlidingWindow{Limit: 50, Window: time.Hour}, true},
	{"buckets", core.SlidingWindow{Limit: 50, Window: time.Hour, Buckets: 60}, false},
	{"log", core.SlidingLog{Windows: []core.Window{{Limit: 50, Width: time.Hour}}}, false},
	{"month", core.Calendar{Limit: 50, Every: core.PeriodMonth, In: time.UTC}, true},
	{"block", core.Block{Strikes: 20, Within: time.Hour, For: time.Minute}, false},
}

// open returns a Gate with a Reader of what it stores.
func open(t *testing.T, client redis.UniversalClient, prefix string) (*core.Gate, *stored.Reader) {
	t.Helper()
	g := gatetest.Redis(t, client, core.Config{Prefix: prefix, DisableDenialCache: true})
	return g, &stored.Reader{Client: client, Prefix: prefix + ":", Timeout: 30 * time.Second}
}

// What a Reader says of each algorithm is what a Gate says that knows the policies.
func TestSubjectAgreesWithGate(t *testing.T) {
	t.Parallel()
	srv := redistest.Real(t)
	gate, r := open(t, srv.Client(t), srv.Prefix)
	rng := redistest.Rand(t)
	key, other := gatetest.Key(t, "acme", "user:1 {x}"), gatetest.Key(t, "acme", "user:1 {x}", "below")
	var charges []core.Charge
	for _, a := range algorithms {
		p := gatetest.Limited(t, a.name, a.limit)
		charges = append(charges, core.Charge{Policy: p, Key: key})
	}
	for range 12 {
		some := []core.Charge{charges[rng.IntN(len(charges))], {Policy: charges[0].Policy, Key: other}}
		some[0].Cost = 1 + rng.Int64N(3)
		gatetest.Decide(t, gate, some...)
	}
	for i := range charges { // each has some
		gatetest.Decide(t, gate, charges[i])
	}
	s, err := r.Subject(t.Context(), key.String(), false)
	if err != nil || s.Below != 1 || len(s.Entries) != len(charges) {
		t.Fatalf("%v, %d entries, %d below: %+v", err, len(s.Entries), s.Below, s.Entries)
	}
	d := gatetest.Peek(t, gate, charges...)
	labels := map[string]string{
		stored.LabelOf("bucket", "tb2"): "bucket", stored.LabelOf("leak", "lb2"): "leak",
		stored.LabelOf("frozen", "tf2"): "frozen", stored.LabelOf("lifetime", "tf2"): "lifetime",
	}
	for _, e := range s.Entries {
		name := e.Policy + labels[e.Label]
		at := -1
		for i, a := range algorithms {
			if a.name == name {
				at = i
			}
		}
		if at < 0 {
			t.Fatalf("an entry of nobody: %+v", e)
		}
		want := d.At(at)
		known := algorithms[at].known
		if e.Known != known || e.Used != want.Used && (known || e.Bucket == nil) {
			t.Errorf("%s: used %d (known: %v), want %d", name, e.Used, e.Known, want.Used)
		}
		if e.TTL < time.Second || e.Path != key.String() || !strings.HasPrefix(e.Redis, srv.Prefix) {
			t.Errorf("%s: %+v", name, e)
		}
		untouched := want.ResetAfter
		switch name {
		case "buckets", "log", "block":
			continue
		case "lifetime", "sliding": // the Gate promises nothing until, or says when all units fit
			if e.Rest < time.Minute || e.Rest > 2*time.Hour {
				t.Errorf("%s: untouched in %v", name, e.Rest)
			}
			continue
		}
		if off := e.Rest - untouched; off < 0 || off > 30*time.Second {
			t.Errorf("%s: untouched in %v, want %v", name, e.Rest, untouched)
		}
	}
	if s, err := r.Subject(t.Context(), "{acme}", true); err != nil || len(s.Entries) != len(charges)+1 {
		t.Errorf("below {acme}: %d entries, %v", len(s.Entries), err)
	}
	if s, err := r.Subject(t.Context(), "{nobody}", true); err != nil || len(s.Entries) != 0 {
		t.Errorf("{nobody}: %+v, %v", s, err)
	}
}

// Holds and adjustments stand with the states that they are about.
func TestHoldsAndAdjustments(t *testing.T) {
	t.Parallel()
	srv := redistest.Real(t)
	gate, r := open(t, srv.Client(t), srv.Prefix)
	key := gatetest.Key(t, "acme")
	tokens := gatetest.Policy(t, core.PolicyConfig{
		Name: "tokens", Hold: time.Minute, Raisable: true,
		Algorithm: core.Calendar{Limit: 1000, Every: core.PeriodMonth, In: time.UTC},
	})
	burst := gatetest.Policy(t, core.PolicyConfig{Name: "burst", Hold: time.Minute, Algorithm: core.PerHour(100)})
	one, _, err := gate.Reserve(t.Context(), 0, core.Charge{Policy: tokens, Key: key, Cost: 30}, core.Charge{Policy: burst, Key: key, Cost: 4})
	gatetest.NoError(t, err)
	defer func() { _ = one.Cancel(context.Background()) }()
	gatetest.Must(gate.Adjust(t.Context(), core.Adjustment{
		ID: "invoice-7", Policy: tokens, Key: key, Raise: 500, Until: time.Now().Add(time.Hour),
	}))(t)
	s, err := r.Subject(t.Context(), "{acme}", false)
	if err != nil || len(s.Entries) != 2 {
		t.Fatalf("%v, %+v", err, s)
	}
	for _, e := range s.Entries {
		units := map[string]int64{"tokens": 30, "burst": 4}[e.Policy]
		if len(e.Holds) != 1 || e.Holds[0].Units != units || e.Holds[0].Left <= 0 || e.Holds[0].Left > time.Minute {
			t.Errorf("%s holds %+v", e.Policy, e.Holds)
		}
		if e.Policy != "tokens" {
			continue
		}
		a := e.Adjusted
		if e.Used != 30 || len(a.Raises) != 1 || a.Raises[0].Units != 500 || a.Raises[0].Left > time.Hour ||
			len(a.IDs) != 1 || a.IDs[0] != "invoice-7" {
			t.Errorf("%+v", e)
		}
	}
}

// A lone holder, several and waiters are those that the semaphore lists.
func TestSlots(t *testing.T) {
	t.Parallel()
	srv := redistest.Real(t)
	gate, r := open(t, srv.Client(t), srv.Prefix)
	streams := gatetest.Semaphore(t, gate, semaphore.Config{Name: "streams"})
	tenant, user := gatetest.Key(t, "acme"), gatetest.Key(t, "acme", "bob")
	for held := 1; held <= 2; held++ {
		lease := gatetest.Must(streams.Acquire(t.Context(), semaphore.Request{
			Caps: []semaphore.Cap{{Key: tenant, Limit: 9}, {Key: user, Limit: 2}}, Meta: map[string]string{"n": fmt.Sprint(held, " &")},
		}))(t)
		defer func() { _ = lease.Release(context.Background()) }()
		subject, err := r.Subject(t.Context(), "{acme}", false)
		if err != nil || len(subject.Slots) != 1 {
			t.Fatalf("%v, %+v", err, subject)
		}
		s := subject.Slots[0]
		want, _, errList := streams.Holders(t.Context(), tenant)
		if err != nil || errList != nil || len(s.Holders) != held || len(want) != held {
			t.Fatalf("%v, %v, %+v, want %+v", err, errList, s.Holders, want)
		}
		for i, h := range s.Holders {
			w := want[i]
			if h.ID != w.ID || h.Token != w.Token || h.Node() != w.Key.String() || h.Left < w.Left || h.Left > w.Left+5*time.Second {
				t.Errorf("%+v, want %+v", h, w)
			}
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for waiting := 1; waiting <= 2; waiting++ {
		queued := make(chan int, 1)
		go func() {
			lease, err := streams.Acquire(ctx, semaphore.Request{
				Caps: []semaphore.Cap{{Key: tenant, Limit: 9}, {Key: user, Limit: 2}}, MaxWait: semaphore.Forever,
				OnQueue: func(place int) { queued <- place },
			})
			if err == nil {
				_ = lease.Release(context.Background())
			}
		}()
		gatetest.Need(t, <-queued, waiting-1, "waiter %d is at place", waiting)
	}
	s, err := r.Subject(t.Context(), "{acme}:bob", false)
	if err != nil || len(s.Slots) != 1 || len(s.Slots[0].Holders) != 2 || len(s.Slots[0].Waiters) != 2 {
		t.Fatalf("%v, %+v", err, s)
	}
	for i, w := range s.Slots[0].Waiters {
		if w.Place != i || w.Node() != "{acme}:bob" || w.Left <= 0 || w.Left > 10*time.Second {
			t.Errorf("%+v", w)
		}
	}
	want := []stored.Cap{{Node: "{acme}", Used: 2, Limit: 9, Waiting: 2}, {Node: "{acme}:bob", Used: 2, Limit: 2, Waiting: 2}}
	if got := s.Slots[0].Caps(); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestSubjectOnCluster(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3)
	gate, r := open(t, c.Client(t), "hg")
	p := gatetest.Limited(t, "api", core.FixedWindow{Limit: 5, Window: time.Hour})
	for i := range 10 {
		key := gatetest.Key(t, fmt.Sprint("t", i))
		gatetest.Decide(t, gate, core.Charge{Policy: p, Key: key, Cost: 3})
		s, err := r.Subject(t.Context(), key.String(), false)
		if err != nil || len(s.Entries) != 1 || s.Entries[0].Used != 3 {
			t.Errorf("%v: %+v, %v", key, s, err)
		}
	}
}

// A key that holds something else is an error that names it.
func TestForeignValue(t *testing.T) {
	t.Parallel()
	srv := redistest.Real(t)
	client := srv.Client(t)
	_, r := open(t, client, srv.Prefix)
	for name, value := range map[string]string{
		"a}:api:fw2": "x", "b}:api:sl1": "12", "c}:tb3": "short", "d}:api:bl1": "1 2", "e}:s:se7:m": "1 2 3",
	} {
		gatetest.NoError(t, client.Set(t.Context(), srv.Prefix+":{"+name, value, time.Minute).Err())
		if s, err := r.Subject(t.Context(), "{"+name[:2], false); err == nil {
			t.Errorf("%s: %+v", name, s)
		}
	}
}
