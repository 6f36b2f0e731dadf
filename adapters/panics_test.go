package adapters_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/once"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/keyfunc"
)

// panicking is a Dialect that panics if its status is that of the admission.
type panicking struct {
	nethttp.Draft11
	status int
}

func (d panicking) WriteHeaders(h http.Header, a *nethttp.Admission) {
	d.Draft11.WriteHeaders(h, a)
	if a.Status() == d.status {
		panic(http.ErrAbortHandler)
	}
}

// What a request holds is given back if a func of the configuration panics, as one that closes the
// connection by http.ErrAbortHandler.
func TestPanicsOfTheConfigurationHoldNothing(t *testing.T) {
	for name, change := range map[string]func(*nethttp.Config, *nethttp.ReplayConfig){
		"Dialect, admitted": func(c *nethttp.Config, _ *nethttp.ReplayConfig) { c.Dialect = panicking{status: 0} },
		"Dialect, refused":  func(c *nethttp.Config, _ *nethttp.ReplayConfig) { c.Dialect = panicking{status: 409} },
		"Refuse": func(c *nethttp.Config, _ *nethttp.ReplayConfig) {
			c.Refuse = func(http.ResponseWriter, *http.Request, *nethttp.Admission) { panic(http.ErrAbortHandler) }
		},
		"Settle": func(c *nethttp.Config, _ *nethttp.ReplayConfig) {
			c.Rules[0].Settle = func(*http.Request, int, int64) int64 { panic("settle") }
		},
		"Skip": func(_ *nethttp.Config, c *nethttp.ReplayConfig) {
			c.Skip = func(*http.Request) bool { panic("skip") }
		},
		"ID": func(_ *nethttp.Config, c *nethttp.ReplayConfig) {
			c.ID = func(*http.Request) (string, error) { panic("id") }
		},
		"Observe": func(c *nethttp.Config, _ *nethttp.ReplayConfig) {
			c.Observe = func(context.Context, core.Event) { panic("observe") }
		},
		"Succeeded": func(_ *nethttp.Config, c *nethttp.ReplayConfig) {
			c.Succeeded = func(*http.Request, int) bool { panic("succeeded") }
		},
	} {
		for _, fw := range frameworks {
			t.Run(fw.test()+"/"+name, func(t *testing.T) {
				gate := core.Must(core.NewMemory(core.Config{}))
				running := core.Must(semaphore.New(gate, semaphore.Config{Name: "running"}))
				key := keyfunc.Must(keyfunc.Static("k"))
				cfg := nethttp.Config{
					Gate: gate, Rules: []nethttp.Rule{ruleOf("p", core.PerHour(100), false)},
					Slot: &nethttp.Slot{Semaphore: running, Caps: []nethttp.Cap{{Key: key, Limit: 1}}},
				}
				replay := nethttp.ReplayConfig{ID: key, Once: core.Must(once.New(gate, once.Config{Name: "o", Window: time.Hour}))}
				change(&cfg, &replay)
				g := core.Must(nethttp.NewReplay(core.Must(nethttp.NewGuard(cfg)), replay))
				h := fw.around(same, ok, g)
				for range 2 {
					func() {
						defer func() { _ = recover() }()
						h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/users/1", nil))
					}()
				}
				for _, s := range []string{"running", "o.once"} {
					holders, _, err := core.Must(semaphore.New(gate, semaphore.Config{Name: s})).
						Holders(t.Context(), core.Must(core.NewKey("k")))
					if err != nil || len(holders) > 0 {
						t.Fatalf("%s: %d hold, %v", s, len(holders), err)
					}
				}
				if err := gate.Close(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
	}
}
