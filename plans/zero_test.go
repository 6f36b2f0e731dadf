package plans_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/headgate/headgate/plans"
)

// A number that is absent is the cap's own, or follows from another field. A number that is stated as
// 0 is not taken for that: it is a fault, which names the field.
func TestStatedZeroIsNoAbsentNumber(t *testing.T) {
	for field, text := range map[string]string{
		"caps.streams":            "caps: {streams: 0}",
		"caps.streams.limit":      "caps: {streams: {limit: 0, share: 2}}",
		"caps.streams.share":      "caps: {streams: {limit: 3, share: 0}}",
		"caps.streams.floor":      "caps: {streams: {limit: 3, floor: 0}}",
		"a rate":                  "limits: {api: {rate: 0, per: 1m}}",
		"limits.api.burst":        "limits: {api: {rate: 5, per: 1m, burst: 0}}",
		"limits.api.per":          "limits: {api: {rate: 5, per: 0s}}",
		"limits.api.leak":         "limits: {api: {leak: 0, per: 1m}}",
		"limits.api.capacity":     "limits: {api: {leak: 5, per: 1m, capacity: 0}}",
		"limits.api.limit":        "limits: {api: {limit: 0, fixed_window: 1m}}",
		"limits.api.fixed_window": "limits: {api: {limit: 5, fixed_window: 0s}}",
		"a sliding window":        "limits: {api: {limit: 0, sliding_window: 1m}}",
		"a log":                   "limits: {api: {limit: 0, sliding_log: 1m}}",
		"a list of windows":       "limits: {api: {sliding_log: [{limit: 0, window: 1m}]}}",
		"a calendar":              "limits: {api: {limit: 0, calendar: month, in: UTC}}",
	} {
		_, err := plans.ParseSet([]byte("default: free\nplans: {free: {" + text + "}}\n"))
		name := "limits.api"
		if strings.Contains(field, ".") {
			name = field
		}
		if err == nil || !strings.Contains(err.Error(), "plans.free."+name) {
			t.Errorf("%s: %s has the fault %v", text, field, fmt.Sprint(err))
		}
	}
	if _, err := plans.ParseSet([]byte("default: free\nplans: {free: {caps: {streams: {share: 2}}, " +
		"limits: {api: {rate: 5, per: 1m}, all: {rate: 0, burst: 5}}}}\n")); err != nil {
		t.Error(err)
	}
}
