package outbound_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/outbound"
)

// A request of a Pool whose upstreams have all slots in use goes to the one that has a free slot
// first, and fails when its time is over.
func TestPoolWaitsForTheFirstSlot(t *testing.T) {
	for name, c := range map[string]struct {
		maxWait time.Duration
		frees   string // the upstream that ends a request after 300 ms
		want    string // or none
		from    time.Duration
	}{
		"west is free":           {2 * time.Second, "west", "west", 300 * time.Millisecond},
		"east is free":           {2 * time.Second, "east", "east", 300 * time.Millisecond},
		"west, with a long wait": {time.Minute, "west", "west", 300 * time.Millisecond},
		"none is free":           {2 * time.Second, "", "", 2 * time.Second},
		"west is free too late":  {200 * time.Millisecond, "west", "", 200 * time.Millisecond},
		"it may not wait":        {0, "west", "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, err := core.NewMemory(core.Config{})
				if err != nil {
					t.Fatal(err)
				}
				var ups []outbound.Upstream
				for _, host := range []string{"east", "west"} {
					ups = append(ups, outbound.Upstream{
						Name: host, Rewrite: func(r *http.Request) { r.URL.Host, r.Host = host, host },
						Transport: transport(t, outbound.Config{Gate: g, Slot: slotOf(t, g, 1), Base: roundTripper(
							func(r *http.Request) (*http.Response, error) {
								return &http.Response{StatusCode: 200, Header: http.Header{"Host": {r.Host}}, Body: io.NopCloser(strings.NewReader("x"))}, nil
							})}),
					})
				}
				p := pool(t, outbound.PoolConfig{Upstreams: ups, MaxWait: c.maxWait})
				send := func() (*http.Response, error) { return p.RoundTrip(request(t, t.Context(), "http://example.com/")) }
				var held []io.Closer
				for range ups {
					res, err := send()
					if err != nil {
						t.Fatal(err)
					}
					if res.Header.Get("Host") == c.frees {
						go func() {
							time.Sleep(300 * time.Millisecond)
							_ = res.Body.Close()
						}()
					} else {
						held = append(held, res.Body)
					}
				}
				began, got := time.Now(), ""
				res, err := send()
				if err == nil {
					got = res.Header.Get("Host")
					_ = res.Body.Close()
				}
				var busy *outbound.PoolBusyError
				if got != c.want || got == "" && (!errors.As(err, &busy) || len(busy.Busy) != 2) {
					t.Errorf("%q, %v, want %q", got, err, c.want)
				}
				if took := time.Since(began); took < c.from || took > c.from+200*time.Millisecond {
					t.Errorf("after %v, want %v", took, c.from)
				}
				for _, b := range held {
					_ = b.Close()
				}
				time.Sleep(time.Second) // the other one is closed
				if err := g.Close(t.Context()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
