package adapters_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/keyfunc"
)

// expecting is a Guard in front of a client that sends its body only once it is asked for it.
type expecting struct {
	name  string
	asked bool // the client is asked for the body
	last  int  // the status of its second request
	cfg   func(*core.Gate) nethttp.Config
}

// ruleOf returns a rule whose cost is 1, or the length of the body.
func ruleOf(name string, limit core.Algorithm, body bool) nethttp.Rule {
	rule := nethttp.Rule{
		Policy: core.Must(core.NewPolicy(core.PolicyConfig{Name: name, Algorithm: limit})),
		Key:    keyfunc.Must(keyfunc.Static("k")),
	}
	if body {
		rule.CostBody = 10
		rule.Cost = func(r *http.Request) int64 {
			n, _ := io.Copy(io.Discard, r.Body)
			return n
		}
	}
	return rule
}

func queue(gate *core.Gate) *nethttp.Slot {
	return &nethttp.Slot{
		Semaphore: core.Must(semaphore.New(gate, semaphore.Config{Name: "running"})),
		MaxWait:   time.Minute,
		Caps:      []nethttp.Cap{{Key: keyfunc.Must(keyfunc.Static("k")), Limit: 1}},
	}
}

var expectings = []expecting{
	{"a spent limit and a queue", false, 429, func(gate *core.Gate) nethttp.Config {
		return nethttp.Config{Rules: []nethttp.Rule{ruleOf("p", core.PerHour(1), false)}, Slot: queue(gate), BufferBody: 10}
	}},
	{"a spent limit and a delay that does not suffice", false, 429, func(*core.Gate) nethttp.Config {
		return nethttp.Config{Rules: []nethttp.Rule{ruleOf("p", core.PerHour(1), false)}, MaxDelay: time.Minute, BufferBody: 10}
	}},
	{"a spent window that ends within the delay", false, 429, func(*core.Gate) nethttp.Config {
		window := core.FixedWindow{Limit: 1, Window: time.Minute}
		return nethttp.Config{Rules: []nethttp.Rule{ruleOf("p", window, false)}, MaxDelay: time.Hour, BufferBody: 10}
	}},
	{"a spent limit behind a cost of the body", false, 429, func(*core.Gate) nethttp.Config {
		return nethttp.Config{Rules: []nethttp.Rule{ruleOf("bytes", core.PerHour(100), true), ruleOf("p", core.PerHour(1), false)}}
	}},
	{"a block", false, 429, func(*core.Gate) nethttp.Config {
		bans := core.Must(core.NewPolicy(core.PolicyConfig{
			Name: "bans", Algorithm: core.Block{Strikes: 1, Within: time.Minute, For: time.Hour}}))
		return nethttp.Config{
			Rules: []nethttp.Rule{ruleOf("bytes", core.PerHour(100), true)},
			Blocks: []nethttp.BlockRule{{
				Policy: bans, Key: keyfunc.Must(keyfunc.Static("k")), Strikes: nethttp.StrikeOn(http.StatusOK)}},
		}
	}},
	{"a delay that suffices", true, 200, func(*core.Gate) nethttp.Config {
		return nethttp.Config{Rules: []nethttp.Rule{ruleOf("p", core.PerMinute(1), false)}, MaxDelay: time.Hour, BufferBody: 10}
	}},
	{"a cost of the body", true, 429, func(*core.Gate) nethttp.Config {
		return nethttp.Config{Rules: []nethttp.Rule{ruleOf("bytes", core.PerHour(3), true), ruleOf("p", core.PerHour(2), false)}}
	}},
	{"room", true, 200, func(gate *core.Gate) nethttp.Config {
		return nethttp.Config{Rules: []nethttp.Rule{ruleOf("p", core.PerHour(2), false)}, Slot: queue(gate), BufferBody: 10}
	}},
}

// A client that expects 100 Continue is asked for its body only if no rule denies the request without
// it.
func TestNoBodyIsAskedForThatIsDenied(t *testing.T) {
	for _, fw := range frameworks {
		for _, e := range expectings {
			t.Run(fw.test()+"/"+e.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					gate := core.Must(core.NewMemory(core.Config{}))
					cfg := e.cfg(gate)
					cfg.Gate = gate
					h := fw.around(same, func(w http.ResponseWriter, r *http.Request) {
						if body, err := io.ReadAll(r.Body); err != nil || string(body) != "abc" {
							t.Errorf("the handler reads %q, %v", body, err)
						}
					}, core.Must(nethttp.NewGuard(cfg)))
					listener := newPipes()
					server := httptest.NewUnstartedServer(h)
					_ = server.Listener.Close()
					server.Listener = listener
					server.Start()
					if asked, status := expect100(t, listener); !asked || status != 200 {
						t.Errorf("the first: asked %v, status %d", asked, status)
					}
					if asked, status := expect100(t, listener); asked != e.asked || status != e.last {
						t.Errorf("asked %v, status %d, want %v and %d", asked, status, e.asked, e.last)
					}
					server.Close()
					if err := gate.Close(context.Background()); err != nil {
						t.Error(err)
					}
				})
			})
		}
	}
}

// expect100 sends a request, and its body if it is asked for it.
func expect100(t *testing.T, p *pipes) (asked bool, status int) {
	t.Helper()
	conn := gatetest.Must(p.dial(t.Context(), "", ""))(t)
	defer conn.Close()
	send := func(s string) {
		if _, err := io.WriteString(conn, s); err != nil {
			t.Error(err)
		}
	}
	send("POST /users/1 HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n")
	lines := bufio.NewReader(conn)
	for {
		line := gatetest.Must(lines.ReadString('\n'))(t)
		if _, err := fmt.Sscanf(line, "HTTP/1.1 %d", &status); err != nil {
			t.Fatal(line, err)
		}
		if status != http.StatusContinue {
			return asked, status
		}
		asked = true
		if line, err := lines.ReadString('\n'); err != nil || strings.TrimSpace(line) != "" {
			t.Fatal(line, err)
		}
		send("abc")
	}
}
