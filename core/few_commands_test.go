package core_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/bloom"
	"github.com/headgate/headgate/core/once"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/redistest"
)

// Proxies and services that do not know SCRIPT, HELLO, CLIENT or SELECT serve everything, also after
// they have lost their scripts.
func TestServerWithFewCommands(t *testing.T) {
	t.Parallel()
	const script = "script-of-the-test"
	args := []string{"--rename-command", "SCRIPT", script}
	for _, name := range []string{"FUNCTION", "HELLO", "CLIENT", "SELECT"} {
		args = append(args, "--rename-command", name, "")
	}
	s := redistest.Start(t, args...)
	admin := s.Client(t)
	g := redisGate(t, s.Client(t), core.Config{Prefix: s.Prefix, DisableDenialCache: true})
	worked(t, g.Ping(t.Context()))
	c := core.Charge{Policy: limited(t, "p", core.FixedWindow{Limit: 5, Window: time.Hour}), Key: newKey(t, "k")}
	sem := newSemaphore(t, g, semaphore.Config{TTL: time.Hour})
	filter := gatetest.Must(bloom.New(g, bloom.Config{Name: "f", Items: 1000, FalsePositives: 0.001}))(t)
	events := gatetest.Must(once.New(g, once.Config{Name: "o", Window: time.Hour}))(t)
	for i := range 10 {
		forget := func() { do(t, admin, script, "FLUSH") }
		forget()
		if d := decide(t, g, c); d.Source != core.SourceRedis || d.Allowed != (i < 5) {
			t.Errorf("decision %d: %s from %v", i, show(d), d.Source)
		}
		forget()
		l := acquire(t, sem, semaphore.Cap{Key: c.Key, Limit: 1})
		if l.Token() == 0 {
			t.Error("Redis did not grant the slot")
		}
		forget()
		if isNew, err := filter.TestAndAdd(t.Context(), fmt.Sprint(i)); err != nil || !isNew[0] {
			t.Error(isNew, err)
		}
		forget()
		release(t, l)
		forget()
		ran := false
		err := events.Do(t.Context(), newKey(t, fmt.Sprint(i)), 0, func(context.Context) error {
			ran = true
			return nil
		})
		if err != nil || !ran {
			t.Error(ran, err)
		}
	}
}
