package plans_test

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/keyfunc"
	"github.com/headgate/headgate/plans"
)

const levels = `
default: free
plans:
  free: {limits: {api: {rate: 10, per: 1m}, org-month: {rate: 0, burst: 1000}}, caps: {streams: 2}}
  pro: {limits: {api: {rate: 100, per: 1m}, org-month: {rate: 0, burst: 9000}}, caps: {streams: 20}}
  team: {limits: {team-day: {rate: 0, burst: 50}}, caps: {streams: {share: 3}}}
  vip: {limits: {api: {rate: 500, per: 1m}}}
  empty: {}
`

// In a chain the nearest tenant that names a policy or a cap decides on it.
func TestChain(t *testing.T) {
	frozen := func(n int64) core.Algorithm { return core.TokenBucket{Burst: n} }
	book := newBook(t, plans.Config{Set: parse(t, levels), Resolve: func(_ context.Context, tenant string) (string, error) {
		if tenant == "nobody" || tenant == "stranger" {
			return "", nil
		}
		return tenant, nil
	}})
	setOverride(t, book, "vip", plans.Override{Limits: map[string]core.Algorithm{"team-day": frozen(70)}})
	for name, c := range map[string]struct {
		outermost    string
		inner        []string
		api          core.Algorithm
		month, day   core.Algorithm
		limit, share int64
	}{
		"one":              {"pro", nil, core.PerMinute(100), frozen(9000), nil, 20, 0},
		"one without":      {"nobody", nil, core.PerMinute(10), frozen(1000), nil, 2, 0},
		"inner without":    {"pro", []string{"nobody", "stranger"}, core.PerMinute(100), frozen(9000), nil, 20, 0},
		"inner name empty": {"pro", []string{"", "team"}, core.PerMinute(100), frozen(9000), frozen(50), 0, 3},
		"team":             {"pro", []string{"team"}, core.PerMinute(100), frozen(9000), frozen(50), 0, 3},
		"team and user":    {"pro", []string{"team", "vip"}, core.PerMinute(500), frozen(9000), frozen(70), 0, 3},
		"user and team":    {"pro", []string{"vip", "team"}, core.PerMinute(500), frozen(9000), frozen(50), 0, 3},
		"outermost default": {
			"nobody", []string{"vip"}, core.PerMinute(500), frozen(1000), frozen(70), 2, 0,
		},
		"plan that names nothing": {"empty", []string{"nobody"}, nil, nil, nil, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			plan := gatetest.Must(book.For(t.Context(), c.outermost, c.inner...))(t)
			for policy, want := range map[string]core.Algorithm{"api": c.api, "org-month": c.month, "team-day": c.day} {
				if got := plan.Algorithm(policy); got != want {
					t.Errorf("%s is %v, want %v", policy, got, want)
				}
			}
			if limit, share, floor := plan.Cap("streams"); limit != c.limit || share != c.share || floor != 0 {
				t.Errorf("cap %d, share %d, floor %d", limit, share, floor)
			}
		})
	}
	if plan, err := book.For(t.Context(), "", "vip"); plan != nil || !errors.Is(err, plans.ErrTenant) {
		t.Errorf("%v, %v", plan, err)
	}
}

// A tenant of a chain that cannot be resolved has no plan, or refuses the request.
func TestChainWhoseTenantIsNotKnown(t *testing.T) {
	resolve := func(_ context.Context, tenant string) (string, error) {
		if tenant == "team" {
			return "", errDown
		}
		return tenant, nil
	}
	plan, err := newBook(t, plans.Config{Set: parse(t, levels), Resolve: resolve}).For(t.Context(), "pro", "team")
	if err != nil || plan.Algorithm("api") != core.PerMinute(100) || plan.Algorithm("team-day") != nil {
		t.Error(plan, err)
	}
	strict := newBook(t, plans.Config{Set: parse(t, levels), Resolve: resolve, OnFailure: plans.OnFailureRefuse})
	if plan, err := strict.For(t.Context(), "pro", "team"); plan != nil || !errors.Is(err, errDown) {
		t.Error(plan, err)
	}
}

// The plan of a request is that of the tenants that its functions derive, whose errors are theirs.
func TestPlanOfARequest(t *testing.T) {
	book := newBook(t, plans.Config{Set: parse(t, levels), Resolve: func(_ context.Context, tenant string) (string, error) {
		return tenant, nil
	}})
	header := func(name string) func(*http.Request) (string, error) {
		return func(r *http.Request) (string, error) {
			if r.Header.Get(name) == "" {
				return "", keyfunc.ErrNoKey
			}
			return r.Header.Get(name), nil
		}
	}
	planOf := book.Plan(header("Org"), header("User"))
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("Org", "pro")
	if plan, err := planOf(r); plan != nil || !errors.Is(err, keyfunc.ErrNoKey) {
		t.Error(plan, err)
	}
	r.Header.Set("User", "vip")
	plan, err := planOf(r)
	if err != nil || plan.Algorithm("api") != core.PerMinute(500) || plan.Algorithm("org-month") == nil {
		t.Error(plan, err)
	}
}

// uuid returns a name in Base64. The names are the examples of RFC 9562, appendices A and B.
func uuid(digits string) keyfunc.Func {
	bits, err := hex.DecodeString(digits)
	if err != nil {
		panic(err)
	}
	return func(*http.Request) (string, error) { return base64.RawURLEncoding.EncodeToString(bits), nil }
}

// Tenants that are asked for by the hash of a name have the default plan, and the observer is told
// so once.
func TestHashedTenantIsTold(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		key  keyfunc.Func
		told int
	}{
		"Header":              {keyfunc.Must(keyfunc.Header("X-Tenant")), 1},
		"BearerToken":         {keyfunc.BearerToken(), 1},
		"Query":               {keyfunc.Must(keyfunc.Query("tenant")), 1},
		"the name":            {func(r *http.Request) (string, error) { return r.Header.Get("X-Tenant"), nil }, 0},
		"a long name":         {func(*http.Request) (string, error) { return "twenty-two-characters.", nil }, 0},
		"a plain name":        {func(*http.Request) (string, error) { return "twenty-two-characterss", nil }, 0},
		"a UUID of version 1": {uuid("C232AB00941411ECB3C89F6BDECED846"), 0},
		"a UUID of version 3": {uuid("5df418813aed351588a72f4a814cf09e"), 0},
		"random bits":         {uuid("919108f752d133205bacf847db4148a8"), 1},
		"a random UUID":       {uuid("919108f752d143209bacf847db4148a8"), 0},
		"a UUID of version 5": {uuid("2ed6657de927568b95e12665a8aea6a2"), 0},
		"a UUID of version 6": {uuid("1EC9414C232A6B00B3C89F6BDECED846"), 0},
		"a UUID of version 7": {uuid("017F22E279B07CC398C4DC0C0C07398F"), 0},
		"a UUID of version 8": {uuid("2489E9AD2EE28E008EC932D5F69181C0"), 0},
	} {
		for from, resolve := range map[string]func(context.Context, string) (string, error){
			"Resolve": func(_ context.Context, tenant string) (string, error) {
				return map[string]string{"acme": "pro"}[tenant], nil
			}, "nobody": nil,
		} {
			var events seen
			book := newBook(t, plans.Config{Resolve: resolve, Observe: events.observe})
			planOf := book.Plan(c.key)
			for _, tenant := range []string{"acme", "acme", "umbrella"} {
				r := httptest.NewRequest(http.MethodGet, "/?tenant="+tenant, nil)
				r.Header.Set("X-Tenant", tenant)
				r.Header.Set("Authorization", "Bearer "+tenant)
				plan, err := planOf(r)
				want := core.Algorithm(free)
				if name == "the name" && tenant == "acme" && resolve != nil {
					want = pro
				}
				if err != nil || plan.Algorithm("api") != want {
					t.Errorf("%s, %s: %v, %v", name, tenant, plan, err)
				}
			}
			told := events.take(plans.OpResolve)
			if len(told) != c.told {
				t.Errorf("%s of %s: told %v", name, from, told)
			}
			if len(told) > 0 && (!errors.Is(told[0].Err, plans.ErrHashed) || told[0].Tenant == "") {
				t.Errorf("%s of %s: %+v", name, from, told[0])
			}
		}
	}
}

// A tenant whose hash has a plan or an override is meant by it.
func TestHashThatHasPlanIsNotTold(t *testing.T) {
	t.Parallel()
	hash := core.Must(keyfunc.Must(keyfunc.Header("X-Tenant"))(&http.Request{Header: http.Header{"X-Tenant": {"acme"}}}))
	var events seen
	book := newBook(t, plans.Config{Observe: events.observe, Resolve: func(context.Context, string) (string, error) { return "pro", nil }})
	expect(t, book, hash, pro)
	other := newBook(t, plans.Config{Observe: events.observe})
	setOverride(t, other, hash, plans.Override{Plan: "pro"})
	expect(t, other, hash, pro)
	if told := events.take(plans.OpResolve); len(told) > 0 {
		t.Errorf("told %v", told)
	}
}
