package plans_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/plans"
)

// A plan may have a name that YAML takes for a number, a date or a truth value.
func TestNamesOfPlansAreText(t *testing.T) {
	t.Parallel()
	names := []string{"no", "off", "yes", "2026", "1e3", "0123", "true", "1.10", "2026-01-31"}
	text := "default: no\nplans:\n"
	for i, name := range names {
		if name == "true" {
			name = `"true"`
		}
		text += "  " + name + ": {limits: {api: {rate: " + strconv.Itoa(i+1) + ", per: 1m}}}\n"
	}
	set := core.Must(plans.ParseSet([]byte(text)))
	for i, name := range names {
		n := int64(i + 1)
		plan, ok := set.Plan(name)
		if !ok {
			t.Errorf("no plan %s", name)
			continue
		}
		if want := (core.TokenBucket{Rate: n, Per: time.Minute, Burst: n}); plan.Algorithm("api") != want {
			t.Errorf("%s is %v, want %v", name, plan.Algorithm("api"), want)
		}
	}
}
