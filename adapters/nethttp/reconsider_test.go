package nethttp_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/keyfunc"
)

// A request that a rule denies is decided once more, and only the last decision is told.
func TestReconsider(t *testing.T) {
	for name, c := range map[string]struct {
		again   func(r *http.Request)
		status  int
		decided string // as observed
	}{
		"it costs less":       {func(r *http.Request) { r.Header.Set("X-Cost", "1") }, 200, "[[] 200 reconsidered 1]"},
		"it costs as much":    {func(*http.Request) {}, 429, "[[p] 429 reconsidered 1]"},
		"it is another key's": {func(r *http.Request) { r.Header.Set("X-User", "bob") }, 200, "[[] 200 reconsidered 1]"},
		"nobody reconsiders":  {nil, 429, "[[p] 429 reconsidered 1]"},
	} {
		t.Run(name, func(t *testing.T) {
			asked, seen := 0, []string{}
			p := policy(t, core.PolicyConfig{Name: "p", Algorithm: core.TokenBucket{Burst: 5}})
			g := guard(t, nethttp.Config{
				Gate: memory(t, newClock()),
				Rules: []nethttp.Rule{{
					Policy: p, Key: keyfunc.Must(keyfunc.Header("X-User")),
					Cost: func(r *http.Request) int64 {
						if r.Header.Get("X-Cost") != "" {
							return 1
						}
						return 3
					},
				}},
				Reconsider: func(r *http.Request, denied *nethttp.Admission) bool {
					if asked++; fmt.Sprint(denied.Violated()) != "[p]" {
						t.Errorf("%v deny", denied.Violated())
					}
					if c.again != nil {
						c.again(r)
					}
					return c.again != nil
				},
				Observe: observed(func(a *nethttp.Admission) {
					status := a.Status()
					if a.Allowed() {
						status = 200
					}
					seen = append(seen, fmt.Sprint(a.Violated(), status, " reconsidered ", asked))
				}),
			})
			h := g.Handler(http.HandlerFunc(ok))
			as := func(r *http.Request) { r.Header.Set("X-User", "ann") }
			answers(t, get(h, as), 200)
			if asked > 0 {
				t.Error("an admitted request was reconsidered")
			}
			seen = nil
			answers(t, get(h, as), c.status)
			if fmt.Sprint(seen) != c.decided {
				t.Errorf("observed %v, want %s", seen, c.decided)
			}
		})
	}
}

// What blocks, caps, Deny and a missing key refuse is not reconsidered.
func TestReconsiderIsForRules(t *testing.T) {
	gate := memory(t, newClock())
	streams := core.Must(semaphore.New(gate, semaphore.Config{Name: "streams"}))
	ban := bans(t, core.Block{Strikes: 1, Within: time.Hour, For: time.Hour})
	by := keyfunc.Must(keyfunc.Header("X-User"))
	g := guard(t, nethttp.Config{
		Gate:   gate,
		Blocks: []nethttp.BlockRule{{Policy: ban, Key: by, Trap: func(r *http.Request) bool { return r.URL.Path == "/trap" }}},
		Rules:  []nethttp.Rule{{Policy: policy(t, core.PolicyConfig{Name: "p", Algorithm: core.PerMinute(100)}), Key: by}},
		Slot:   &nethttp.Slot{Semaphore: streams, Caps: []nethttp.Cap{{Key: by, Limit: 1}}},
		Deny:   func(r *http.Request) bool { return r.Header.Get("X-Deny") != "" },
		Reconsider: func(*http.Request, *nethttp.Admission) bool {
			t.Error("it was reconsidered")
			return false
		},
	})
	h := g.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		answers(t, get(g.Handler(http.HandlerFunc(ok)), func(r *http.Request) { r.Header.Set("X-User", "ann") }), 429) // full
	}))
	user := func(name string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set("X-User", name) }
	}
	answers(t, get(h, user("ann")), 200)
	answers(t, get(h, user("ann"), func(r *http.Request) { r.Header.Set("X-Deny", "yes") }), 403)
	answers(t, get(h), 400)
	answers(t, get(h, user("eve"), func(r *http.Request) { r.URL.Path = "/trap" }), 403)
	answers(t, get(h, user("eve")), 429) // blocked
}

func answers(t *testing.T, r *http.Response, status int) {
	t.Helper()
	if r.StatusCode != status {
		t.Errorf("status %d, want %d", r.StatusCode, status)
	}
}
