package outbound_test

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/outbound"
)

// A stream goes on while Redis is down for longer than its lease lasts, and has its slot again when
// Redis is back.
func TestOutageEndsNoStream(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	lost := make(chan struct{}, 10)
	g := gatetest.Redis(t, s.Client(t), core.Config{
		Timeout: gatetest.ShortTimeout,
		Observe: func(_ context.Context, e core.Event) {
			if e, ok := e.(*semaphore.LeaseEvent); ok && e.Kind == semaphore.LeaseLost {
				lost <- struct{}{}
			}
		},
	})
	more := make(chan struct{})
	u := stream(t, more)
	slot := slotOf(t, g, 1)
	slot.Semaphore = newSemaphore(t, g, semaphore.Config{TTL: time.Second})
	tr := transport(t, outbound.Config{Base: base(t), Gate: g, Slot: slot})
	res, err := tr.RoundTrip(request(t, t.Context(), u.URL))
	if err != nil {
		t.Fatal(err)
	}
	s.Kill()
	<-lost
	s.Restart()
	key, err := outbound.ByCredential(request(t, t.Context(), u.URL))
	if err != nil {
		t.Fatal(err)
	}
	held := func() int {
		all, _, err := slot.Semaphore.Holders(t.Context(), key)
		if err != nil {
			return -1
		}
		return len(all)
	}
	gatetest.Eventually(t, "the slot is taken again", func() bool { return held() == 1 })
	close(more)
	if text, err := io.ReadAll(res.Body); string(text) != "first\nsecond\n" || err != nil {
		t.Errorf("%q, %v", text, err)
	}
	_ = res.Body.Close()
	gatetest.Eventually(t, "the slot is back", func() bool { return held() == 0 })
}
