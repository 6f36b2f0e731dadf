package signal_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/headgate/headgate/outbound/internal/signal"
)

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 11, 25, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name    string
		values  []string
		wait    time.Duration
		hasWait bool
	}{
		{"none", nil, 0, false},
		{"seconds", []string{"5"}, 5 * time.Second, true},
		{"zero", []string{"0"}, 0, true},
		{"fraction", []string{"1.5"}, 1500 * time.Millisecond, true},
		{"date", []string{"Wed, 25 Nov 2026 00:00:45 GMT"}, 45 * time.Second, true},
		{"past date", []string{"Tue, 24 Nov 2026 00:00:00 GMT"}, 0, true},
		{"five values", []string{"1", "7", "x", "-3", "2"}, 7 * time.Second, true},
		{"a thousand years", []string{"31536000000"}, 100 * 365 * 24 * time.Hour, true},
		{"infinite", []string{"1e999"}, 0, false},
		{"NaN", []string{"NaN"}, 0, false},
		{"negative", []string{"-1"}, 0, false},
		{"words", []string{"soon"}, 0, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := signal.Read(http.StatusTooManyRequests, http.Header{"Retry-After": c.values}, nil, now)
			if s.Wait != c.wait || s.HasWait != c.hasWait || !s.Refused {
				t.Errorf("%+v", s)
			}
		})
	}
}

func TestStatus(t *testing.T) {
	wait := http.Header{"Retry-After": {"1"}}
	for _, c := range []struct {
		status  int
		h       http.Header
		refused bool
	}{
		{200, wait, false}, {404, wait, false}, {500, wait, false},
		{429, nil, true}, {429, wait, true}, {503, nil, false}, {503, wait, true}, {529, nil, true},
	} {
		if s := signal.Read(c.status, c.h, nil, time.Now()); s.Refused != c.refused {
			t.Errorf("%d with %v: %+v", c.status, c.h, s)
		}
	}
}
