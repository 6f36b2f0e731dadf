package adapters_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/keyfunc"
)

// Behind a proxy that connects through a Unix socket, each client has its own limit, and one that
// writes X-Forwarded-For itself cannot choose another.
func TestProxyOnUnixSocket(t *testing.T) {
	hops := core.Must(keyfunc.TrustedHops(1))
	named := core.Must(keyfunc.TrustedProxies(keyfunc.UnixSocket))
	for name, key := range map[string]keyfunc.Func{"TrustedHops": hops, "TrustedProxies": named} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, fw framework) {
				f := newFixture(t)
				dir, err := os.MkdirTemp("", "") // that of the test is too long for a socket
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = os.RemoveAll(dir) })
				listener := gatetest.Must(net.Listen("unix", filepath.Join(dir, "s")))(t)
				server := httptest.NewUnstartedServer(fw.bare(f.limit(one, keyed(key)), ok))
				_ = server.Listener.Close()
				server.Listener = listener
				server.Start()
				t.Cleanup(server.Close)
				client := &http.Client{Transport: &http.Transport{
					DisableKeepAlives: true,
					DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
						return new(net.Dialer).DialContext(ctx, "unix", listener.Addr().String())
					},
				}}
				for _, c := range []struct {
					forwarded string
					status    int
				}{
					{"198.51.100.7", 200}, {"198.51.100.7", 429}, {"198.51.100.8", 200},
					{"6.6.6.6, 198.51.100.8", 429}, {"", 400},
				} {
					r := core.Must(http.NewRequestWithContext(t.Context(), "GET", "http://headgate/users/1", nil))
					if c.forwarded != "" {
						r.Header.Set("X-Forwarded-For", c.forwarded)
					}
					response := gatetest.Must(client.Do(r))(t)
					response.Body.Close()
					if response.StatusCode != c.status {
						t.Errorf("%q: status %d, want %d", c.forwarded, response.StatusCode, c.status)
					}
				}
			})
		})
	}
}
