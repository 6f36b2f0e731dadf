package main

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/gatetest"
)

var secret = []byte("a secret of 32 bytes for the test")

// post sends an event, signed with a key, to a receiver.
func post(h http.Handler, key []byte, id, body string) int {
	timestamp := strconv.FormatInt(time.Now().Unix(), 10)
	r := httptest.NewRequest(http.MethodPost, "/webhooks", strings.NewReader(body))
	r.Header.Set("Webhook-Id", id)
	r.Header.Set("Webhook-Timestamp", timestamp)
	r.Header.Set("Webhook-Signature", "v1,old "+sign(key, id, timestamp, []byte(body)))
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code
}

func receiver(t *testing.T, clock func() time.Time, handle func(context.Context, []byte) error) http.Handler {
	t.Helper()
	gate := core.Must(core.NewMemory(core.Config{Clock: clock}))
	return gatetest.Must(newReceiver(gate, secret, handle))(t)
}

func TestEventIsHandledOnce(t *testing.T) {
	var handled atomic.Int64
	var fails atomic.Bool
	h := receiver(t, nil, func(_ context.Context, event []byte) error {
		if fails.Swap(false) {
			return errors.New("the database is down")
		}
		gatetest.Equal(t, string(event), `{"type":"paid"}`, "event %s", event)
		handled.Add(1)
		return nil
	})
	fails.Store(true)
	if status := post(h, secret, "evt_1", `{"type":"paid"}`); status != http.StatusInternalServerError {
		t.Errorf("an event that fails: %d", status)
	}
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if status := post(h, secret, "evt_1", `{"type":"paid"}`); status != http.StatusNoContent && status != http.StatusConflict {
				t.Errorf("status %d", status)
			}
		})
	}
	wg.Wait()
	if status := post(h, secret, "evt_1", `{"type":"paid"}`); status != http.StatusNoContent || handled.Load() != 1 {
		t.Errorf("status %d, handled %d times", status, handled.Load())
	}
}

func TestForgersAreBlocked(t *testing.T) {
	clock := core.NewManualClock(time.Unix(1_800_000_000, 0))
	h := receiver(t, clock.Now, func(context.Context, []byte) error { return nil })
	forge := func(want int) {
		t.Helper()
		gatetest.Equal(t, post(h, []byte("another secret"), "evt_1", "{}"), want, "a forged event")
	}
	for _, block := range []time.Duration{time.Minute, 2 * time.Minute, 4 * time.Minute} {
		for range 3 {
			forge(http.StatusUnauthorized)
		}
		forge(http.StatusTooManyRequests)
		clock.Advance(block - time.Microsecond)
		forge(http.StatusTooManyRequests)
		clock.Advance(time.Microsecond)
	}
	gatetest.Equal(t, post(h, secret, "evt_1", "{}"), http.StatusNoContent, "the id of forged events")
}

func TestVerify(t *testing.T) {
	for _, s := range []string{"", "whsec_", "c2VjcmV0LXNlY3JldC1zZWNyZXQ=", "whsec_c2hvcnQ=", "whsec_!"} {
		gatetest.Fails(t, gatetest.Err(parseSecret(s)), "%q is a secret", s)
	}
	if _, err := parseSecret("whsec_c2VjcmV0LXNlY3JldC1zZWNyZXQ="); err != nil {
		t.Error(err)
	}
	// The example of the Standard Webhooks specification.
	key := gatetest.Must(parseSecret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"))(t)
	got := sign(key, "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", []byte(`{"test": 2432232314}`))
	gatetest.Equal(t, got, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=", "signature")
	h := verified(secret, time.Now, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	late := verified(secret, func() time.Time { return time.Now().Add(time.Hour) }, h)
	gatetest.Equal(t, post(h, secret, "evt_1", "{}"), http.StatusOK, "a right signature")
	for name, status := range map[string]int{
		"another key": post(h, []byte("other"), "evt_1", "{}"), "no id": post(h, secret, "", "{}"),
		"an hour late": post(late, secret, "evt_1", "{}"),
	} {
		gatetest.Equal(t, status, http.StatusUnauthorized, "%s", name)
	}
	if status := post(h, secret, "evt_1", strings.Repeat("x", maxBody+1)); status != http.StatusRequestEntityTooLarge {
		t.Errorf("a long body: %d", status)
	}
}
