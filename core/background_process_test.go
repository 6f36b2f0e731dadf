package core_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/redistest"
)

const (
	bulk      = 15 // calls of each process
	bulkRate  = 20 // a second
	bulkBurst = 4
)

func bulkLimiter(t *testing.T, g *core.Gate) *core.Limiter {
	t.Helper()
	p := limited(t, "bulk", core.TokenBucket{Rate: bulkRate, Per: time.Second, Burst: bulkBurst})
	return core.Must(core.NewLimiter(g, p))
}

// waitInBulk lets calls wait in the background, and says that they do.
func waitInBulk(t *testing.T, g *core.Gate) {
	l := bulkLimiter(t, g)
	ctx, cancel := context.WithTimeout(core.WithBackground(t.Context()), time.Minute)
	defer cancel()
	var all sync.WaitGroup
	for range bulk {
		all.Go(func() {
			if _, err := l.Wait(ctx, newKey(t, "account")); err != nil {
				t.Error(err)
			}
		})
	}
	fmt.Println("waits")
	all.Wait()
}

// Four processes have 15 bulk calls each that wait at the limit of one account. What an interactive call
// reserves there meanwhile is the next token: nobody has reserved before it. The bulk calls take all the
// others. The log says how long it took.
func TestProcessesLetTheForegroundPass(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	g := redisGate(t, s.Client(t), core.Config{Prefix: s.Prefix})
	l, key := bulkLimiter(t, g), newKey(t, "account")
	children := startProcesses(t, s)
	for range bulkBurst {
		gatetest.Must(l.Allow(t.Context(), key))(t)
	}
	start := time.Now()
	for _, c := range children {
		gatetest.Must(fmt.Fprintln(c.in, "bulk"))(t)
	}
	var answers sync.WaitGroup
	waiting := make(chan string, len(children))
	for _, c := range children {
		answers.Go(func() {
			if n, err := c.answer(func(line string) { waiting <- line }); n != bulk || err != nil {
				t.Error(n, err)
			}
		})
	}
	var waits []time.Duration
	for range children {
		gatetest.Equal(t, <-waiting, "waits", "a process says")
		asked := time.Now()
		d, err := l.Wait(t.Context(), key)
		worked(t, errors.Join(err, d.Cause))
		if delay := d.At(0).Delay; delay > time.Second/bulkRate {
			t.Errorf("%v reserved before a foreground call", delay)
		}
		waits = append(waits, time.Since(asked))
	}
	answers.Wait()
	t.Logf("interactive calls waited %v, all %d calls took %v of %v", waits, len(children)*(bulk+1),
		time.Since(start), time.Duration(len(children)*(bulk+1))*time.Second/bulkRate)
}
