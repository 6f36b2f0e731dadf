package keyfunc_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfunc"
)

func ExampleRemoteIP() {
	byAddress := keyfunc.RemoteIP()

	r := httptest.NewRequest("GET", "/", nil)
	r.RemoteAddr = "[2001:db8:1:2::3]:4711"
	r.Header.Set("X-Forwarded-For", "6.6.6.6") // ignored
	fmt.Println(byAddress(r))
	// Output: 2001:db8:1:2::/64 <nil>
}

func ExampleTrustedProxies() {
	byClient := keyfunc.Must(keyfunc.TrustedProxies("10.0.0.0/8"))

	r := httptest.NewRequest("GET", "/", nil)
	r.RemoteAddr = "10.0.0.1:4711" // the proxy
	r.Header.Set("X-Forwarded-For", "6.6.6.6, 198.51.100.7")
	fmt.Println(byClient(r)) // the proxy added 198.51.100.7, the client wrote the rest
	// Output: 198.51.100.7 <nil>
}

// Do not read X-Forwarded-For with Header. The client writes the header, so that every request has
// a new key and no limit holds.
func ExampleTrustedProxies_incorrect() {
	gate := core.Must(core.NewMemory(core.Config{}))
	byForwardedFor := keyfunc.Must(keyfunc.Header("X-Forwarded-For")) // wrong: use TrustedProxies
	limit := core.Must(nethttp.Limit(gate, "api", core.PerMinute(1), byForwardedFor))
	api := limit.Handler(http.NotFoundHandler())

	for i := range 3 {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("X-Forwarded-For", fmt.Sprint("198.51.100.", i)) // made up by one client
		w := httptest.NewRecorder()
		api.ServeHTTP(w, r)
		fmt.Println("limited:", w.Code == http.StatusTooManyRequests)
	}
	// Output:
	// limited: false
	// limited: false
	// limited: false
}

func ExampleForwarded() {
	byClient := keyfunc.Must(keyfunc.Forwarded("10.0.0.0/8"))

	r := httptest.NewRequest("GET", "/", nil)
	r.RemoteAddr = "10.0.0.1:4711"
	r.Header.Set("Forwarded", `for=6.6.6.6, for="[2001:db8:1:2::3]:4711";proto=https`)
	fmt.Println(byClient(r))
	// Output: 2001:db8:1:2::/64 <nil>
}

func ExampleClient() {
	client := keyfunc.Client{Proxies: []string{"10.0.0.0/8"}, IPv6Bits: 48}
	byClient := keyfunc.Must(client.Key())

	r := httptest.NewRequest("GET", "/", nil)
	r.RemoteAddr = "10.0.0.1:4711"
	r.Header.Set("X-Forwarded-For", "2001:db8:1:2::3")
	fmt.Println(byClient(r))
	// Output: 2001:db8:1::/48 <nil>
}

// The authentication stands outside the limit, so the limit sees only keys that exist.
func ExampleHeader() {
	authenticate := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("X-Api-Key") != "ann's key" {
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			next.ServeHTTP(w, r)
		})
	}
	gate := core.Must(core.NewMemory(core.Config{}))
	byAPIKey := keyfunc.Must(keyfunc.Header("X-Api-Key"))
	limit := core.Must(nethttp.Limit(gate, "api", core.PerMinute(1), byAPIKey))
	hello := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	api := authenticate(limit.Handler(hello))

	for _, key := range []string{"ann's key", "ann's key", "made up"} {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("X-Api-Key", key)
		w := httptest.NewRecorder()
		api.ServeHTTP(w, r)
		fmt.Println(w.Code)
	}
	// Output:
	// 200
	// 429
	// 401
}

// Do not derive a key from a credential that nothing has verified. Here the limit stands outside
// the authentication: a client that guesses keys sends a new one each time and is never limited.
func ExampleHeader_incorrect() {
	unauthorized := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusUnauthorized)
	})
	gate := core.Must(core.NewMemory(core.Config{}))
	byAPIKey := keyfunc.Must(keyfunc.Header("X-Api-Key"))
	limit := core.Must(nethttp.Limit(gate, "guesses", core.PerMinute(1), byAPIKey)) // wrong: use RemoteIP
	api := limit.Handler(unauthorized)

	for i := range 3 {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("X-Api-Key", fmt.Sprint("guess ", i))
		w := httptest.NewRecorder()
		api.ServeHTTP(w, r)
		fmt.Println(w.Code)
	}
	// Output:
	// 401
	// 401
	// 401
}

func ExampleClaim() {
	type tokenKey struct{} // of the middleware that verifies tokens
	bySubject := keyfunc.Must(keyfunc.Claim(func(ctx context.Context) map[string]any {
		claims, _ := ctx.Value(tokenKey{}).(map[string]any)
		return claims
	}, "sub"))

	r := httptest.NewRequest("GET", "/", nil)
	_, err := bySubject(r)
	fmt.Println(err)
	verified := context.WithValue(r.Context(), tokenKey{}, map[string]any{"sub": "bob"})
	fmt.Println(bySubject(r.WithContext(verified)))
	// Output:
	// keyfunc: no key: no sub claim
	// bob <nil>
}

func ExampleJoin() {
	byClientAndMethod := keyfunc.Must(keyfunc.Join(keyfunc.RemoteIP(), keyfunc.Method()))

	r := httptest.NewRequest("HEAD", "/", nil)
	r.RemoteAddr = "192.0.2.7:4711"
	fmt.Println(byClientAndMethod(r))
	// Output: 9:192.0.2.73:GET <nil>
}

func ExampleOr() {
	byAPIKey := keyfunc.Must(keyfunc.Header("X-Api-Key"))
	byClient := keyfunc.Must(keyfunc.Or(byAPIKey, keyfunc.RemoteIP()))

	r := httptest.NewRequest("GET", "/", nil)
	r.RemoteAddr = "192.0.2.7:4711"
	fmt.Println(byClient(r))
	r.Header["X-Api-Key"] = []string{"one", "two"} // Or does not fall back from this
	_, err := byClient(r)
	fmt.Println(err)
	// Output:
	// 1:192.0.2.7 <nil>
	// keyfunc: ambiguous key: several X-Api-Key headers
}

func ExampleHMAC() {
	secret := []byte("16 or more random bytes") // from the configuration
	byHiddenAddress := keyfunc.Must(keyfunc.HMAC(secret, keyfunc.RemoteIP()))

	r := httptest.NewRequest("GET", "/", nil)
	r.RemoteAddr = "192.0.2.7:4711"
	fmt.Println(byHiddenAddress(r))
	// Output: k90s8-7tvkUG1g9FcK0L9w <nil>
}

func ExampleMust() {
	// At package level: var byTenant = keyfunc.Must(keyfunc.PathValue("tenant"))
	byTenant := keyfunc.Must(keyfunc.PathValue("tenant"))

	r := httptest.NewRequest("GET", "/t/acme", nil)
	r.SetPathValue("tenant", "acme") // as a router does
	fmt.Println(byTenant(r))
	// Output: acme <nil>
}
