package core_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/internal/gatetest"
)

// answering starts a proxy that gives one answer to every command, and returns its address.
func answering(t *testing.T, answer string) string {
	t.Helper()
	l := gatetest.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	var tasks sync.WaitGroup
	tasks.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			tasks.Go(func() {
				defer context.AfterFunc(t.Context(), func() { c.Close() })()
				defer c.Close()
				for r := bufio.NewReader(c); readCommand(r) == nil; {
					if _, err := io.WriteString(c, answer); err != nil {
						return
					}
				}
			})
		}
	})
	t.Cleanup(tasks.Wait)
	t.Cleanup(func() { l.Close() })
	return l.Addr().String()
}

// readCommand reads one command of a client.
func readCommand(r *bufio.Reader) error {
	length := func(kind string) (int, error) {
		line, err := r.ReadString('\n')
		if err != nil {
			return 0, err
		}
		return strconv.Atoi(strings.TrimPrefix(strings.TrimSpace(line), kind))
	}
	words, err := length("*")
	for range words {
		n, e := length("$")
		if e != nil {
			return e
		}
		if _, err := r.Discard(n + 2); err != nil {
			return err
		}
	}
	return err
}

// What a proxy answers for a dead Redis is an outage, and so is nonsense: the failure modes decide,
// and the circuit opens.
func TestProxyAnswersForDeadRedis(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]string{
		"Envoy, no answer":       "-upstream failure\r\n",
		"Envoy, no host":         "-no upstream host\r\n",
		"twemproxy, refused":     "-ERR Connection refused\r\n",
		"twemproxy, timeout":     "-ERR Connection timed out\r\n",
		"an error without words": "-\r\n",
		"another status":         "+OK\r\n",
		"a number":               ":7\r\n",
		"nothing":                "$-1\r\n",
		"an empty list":          "*0\r\n",
		"a short list":           "*1\r\n:7\r\n",
		"a list of texts":        "*2\r\n$1\r\na\r\n$1\r\nb\r\n",
		"a page":                 "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := redis.NewClient(&redis.Options{
				Addr: answering(t, answer), ContextTimeoutEnabled: true, DialerRetries: 1,
				MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
			})
			t.Cleanup(func() { client.Close() })
			opened := make(chan struct{}, 1)
			g := redisGate(t, client, core.Config{Timeout: busyTimeout, Observe: func(_ context.Context, e core.Event) {
				if isOp(e, core.OpCircuitOpened) {
					select {
					case opened <- struct{}{}:
					default:
					}
				}
			}})
			check := func(when string) {
				for _, m := range modes {
					p := newPolicy(t, core.PolicyConfig{Name: m.name, Algorithm: frozen(5), OnFailure: m.mode})
					for _, n := range []int{1, 2} { // alone, and with a second charge
						charges := []core.Charge{{Policy: p, Key: newKey(t, fmt.Sprint("k", n)), Cost: 1}}
						if n == 2 {
							other := newPolicy(t, core.PolicyConfig{Name: m.name + "2", Algorithm: frozen(5), OnFailure: m.mode})
							charges = append(charges, core.Charge{Policy: other, Key: charges[0].Key, Cost: 1})
						}
						d, err := g.Decide(t.Context(), charges...)
						if err != nil || d.Allowed != m.allowed || d.Source != m.source || d.Cause == nil ||
							errors.Is(d.Cause, core.ErrMisconfigured) {
							t.Errorf("%s, %s, %d charges: %s, %v", when, m.name, n, show(d), err)
						}
					}
				}
			}
			check("at first")
			for open := false; !open; {
				select {
				case <-opened:
					open = true
				case <-time.After(10 * time.Millisecond): // a busy process takes the failures for overload
					check("until the circuit opens")
				}
			}
			check("later")
			if err := g.Ping(t.Context()); err == nil || errors.Is(err, core.ErrMisconfigured) {
				t.Errorf("Ping: %v", err)
			}
			for _, m := range modes {
				sem := newSemaphore(t, g, semaphore.Config{Name: m.name, OnFailure: m.mode})
				l, err := sem.Acquire(t.Context(), semaphore.Request{Caps: []semaphore.Cap{{Key: newKey(t, "k"), Limit: 1}}})
				if (err == nil) != m.allowed || errors.Is(err, core.ErrMisconfigured) {
					t.Errorf("a slot, %s: %v", m.name, err)
				}
				if l != nil && m.mode == core.FailLocal {
					_ = l.Release(t.Context())
				}
			}
		})
	}
}
