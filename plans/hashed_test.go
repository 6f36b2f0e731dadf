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
	"github.com/headgate/headgate/keyfunc"
	"github.com/headgate/headgate/plans"
)

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
