package keyfunc_test

import (
	"context"
	"fmt"
	"net/http/httptest"

	"github.com/headgate/headgate/keyfunc"
)

func ExampleRemoteIP() {
	r := httptest.NewRequest("GET", "/", nil)
	r.RemoteAddr = "[2001:db8:1:2::3]:4711"
	fmt.Println(keyfunc.RemoteIP()(r))
	// Output: 2001:db8:1:2::/64 <nil>
}

func ExampleTrustedProxies() {
	client, err := keyfunc.TrustedProxies("10.0.0.0/8")
	if err != nil {
		panic(err)
	}
	r := httptest.NewRequest("GET", "/", nil)
	r.RemoteAddr = "10.0.0.1:4711"
	r.Header.Set("X-Forwarded-For", "6.6.6.6, 198.51.100.7") // the first is what the client wrote
	fmt.Println(client(r))
	// Output: 198.51.100.7 <nil>
}

func ExampleOr() {
	key := keyfunc.Must(keyfunc.Or(keyfunc.Must(keyfunc.Header("X-Api-Key")), keyfunc.RemoteIP()))
	r := httptest.NewRequest("GET", "/", nil)
	r.RemoteAddr = "192.0.2.7:4711"
	fmt.Println(key(r))
	// Output: 1:192.0.2.7 <nil>
}

func ExampleJoin() {
	key := keyfunc.Must(keyfunc.Join(keyfunc.RemoteIP(), keyfunc.Method()))
	r := httptest.NewRequest("HEAD", "/", nil)
	r.RemoteAddr = "192.0.2.7:4711"
	fmt.Println(key(r))
	// Output: 9:192.0.2.73:GET <nil>
}

func ExampleForwarded() {
	client, err := keyfunc.Forwarded("10.0.0.0/8")
	if err != nil {
		panic(err)
	}
	r := httptest.NewRequest("GET", "/", nil)
	r.RemoteAddr = "10.0.0.1:4711"
	r.Header.Set("Forwarded", `for=6.6.6.6, for="[2001:db8:1:2::3]:4711";proto=https`)
	fmt.Println(client(r))
	// Output: 2001:db8:1:2::/64 <nil>
}

func ExampleIPv6Prefix() {
	client, err := keyfunc.IPv6Prefix(48).TrustedProxies("10.0.0.0/8")
	if err != nil {
		panic(err)
	}
	r := httptest.NewRequest("GET", "/", nil)
	r.RemoteAddr = "10.0.0.1:4711"
	r.Header.Set("X-Forwarded-For", "2001:db8:1:2::3")
	fmt.Println(client(r))
	// Output: 2001:db8:1::/48 <nil>
}

func ExampleClaim() {
	type tokenKey struct{} // of the middleware that verifies tokens
	subject := keyfunc.Must(keyfunc.Claim(func(ctx context.Context) map[string]any {
		claims, _ := ctx.Value(tokenKey{}).(map[string]any)
		return claims
	}, "sub"))

	r := httptest.NewRequest("GET", "/", nil)
	fmt.Println(subject(r))
	verified := context.WithValue(r.Context(), tokenKey{}, map[string]any{"sub": "bob"})
	fmt.Println(subject(r.WithContext(verified)))
	// Output:
	//  keyfunc: no key: no sub claim
	// bob <nil>
}

func ExampleHMAC() {
	key, err := keyfunc.HMAC([]byte("16 or more random bytes"), keyfunc.RemoteIP())
	if err != nil {
		panic(err)
	}
	r := httptest.NewRequest("GET", "/", nil)
	r.RemoteAddr = "192.0.2.7:4711"
	fmt.Println(key(r))
	// Output: k90s8-7tvkUG1g9FcK0L9w <nil>
}
