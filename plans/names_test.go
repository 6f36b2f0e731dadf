package plans_test

import (
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
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

// Each limit counts the requests for its routes.
func TestRoutesOfLimits(t *testing.T) {
	t.Parallel()
	book := newBook(t, plans.Config{Set: parse(t, `
default: free
plans: {free: {limits: {all: unlimited, search: unlimited, make: unlimited}}}
routes: {search: [/search, "GET /find/{q...}"], make: [POST /things]}
`)})
	for _, c := range []struct {
		method, pattern string
		counts          string
	}{
		{"GET", "GET /search", "all search"},
		{"POST", "/search", "all search"},
		{"GET", "example.com/search", "all search"},
		{"HEAD", "GET /find/{q...}", "all search"},
		{"POST", "/find/{q...}", "all"},
		{"POST", "POST /things", "all make"},
		{"GET", "/things", "all"},
		{"GET", "", "all"},
	} {
		r := httptest.NewRequest(c.method, "/search", nil)
		r.Pattern = c.pattern
		var counts []string
		for _, limit := range []string{"all", "search", "make"} {
			if book.Counts(limit, r) {
				counts = append(counts, limit)
			}
		}
		if got := strings.Join(counts, " "); got != c.counts {
			t.Errorf("%s %q: %s count, want %s", c.method, c.pattern, got, c.counts)
		}
	}
}

// Names fixes the names that later sets must have.
func TestNamesAreFixed(t *testing.T) {
	t.Parallel()
	const good = "default: free\nplans:\n  free: {limits: {a: deny, b/large: deny, b: deny}, caps: {s: 1}}\n"
	book := newBook(t, plans.Config{Set: parse(t, good)})
	limits, caps, err := book.Names()
	if err != nil || !slices.Equal(limits, []string{"a", "b"}) || !slices.Equal(caps, []string{"s"}) {
		t.Fatal(limits, caps, err)
	}
	pro := "  pro: {limits: {a: deny}}\n"
	for name, c := range map[string]struct{ set, fault string }{
		"more":             {good + strings.Replace(pro, "a: deny}", "a: deny, b: deny, c: deny}, caps: {s: 2}", 1), "the limit c"},
		"a limit missing":  {good + pro, "plans.pro.limits do not name b"},
		"a cap missing":    {good + pro, "plans.pro.caps do not name s"},
		"another cap":      {strings.Replace(good, "s: 1", "s: 1, t: 1", 1), "the cap t"},
		"only by a model":  {strings.Replace(good, ", b: deny", "", 1), "plans.free.limits do not name b"},
		"the same, higher": {strings.Replace(good, "s: 1", "s: 7", 1), ""},
	} {
		err := book.Replace(parse(t, c.set))
		if (c.fault == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), c.fault) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, _, err := newBook(t, plans.Config{Set: parse(t, good+pro)}).Names(); err == nil {
		t.Error("Names tells no fault")
	}
}
