package core_test

import (
	"testing"
	"time"

	"github.com/headgate/headgate/core"
)

// TestConformance proves that n are back at most one bucket after the window, and none before.
func TestAnyWindow(t *testing.T) {
	for name, tt := range map[string]struct{ got, want core.SlidingWindow }{
		"second": {core.AnySecond(10), core.SlidingWindow{Limit: 10, Window: time.Second, Buckets: 50}},
		"minute": {core.AnyMinute(10), core.SlidingWindow{Limit: 10, Window: time.Minute, Buckets: 60}},
		"hour":   {core.AnyHour(10), core.SlidingWindow{Limit: 10, Window: time.Hour, Buckets: 60}},
	} {
		if tt.got != tt.want {
			t.Errorf("%s: %+v, want %+v", name, tt.got, tt.want)
		}
	}
}
