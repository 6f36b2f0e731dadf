package keyfunc_test

import (
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
	key := keyfunc.Or(keyfunc.Header("X-Api-Key"), keyfunc.RemoteIP())
	r := httptest.NewRequest("GET", "/", nil)
	r.RemoteAddr = "192.0.2.7:4711"
	fmt.Println(key(r))
	// Output: 1:192.0.2.7 <nil>
}

func ExampleJoin() {
	key := keyfunc.Join(keyfunc.RemoteIP(), keyfunc.Method())
	r := httptest.NewRequest("HEAD", "/", nil)
	r.RemoteAddr = "192.0.2.7:4711"
	fmt.Println(key(r))
	// Output: 9:192.0.2.73:GET <nil>
}
