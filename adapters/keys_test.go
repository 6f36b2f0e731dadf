package adapters_test

import (
	"net/http"

	"github.com/headgate/headgate/keyfunc"
)

// keyRows has two rows or more for each kind of key, under a limit of one request. The second
// request is refused if it has the key of the first, and admitted if it has another.
func keyRows() []row {
	const loopback, loopback6 = "127.0.0.0/8", "::1" // the test is the proxy
	login := func(r *http.Request) string { return r.URL.Query().Get("login") }
	var (
		byProxies   = keyfunc.Must(keyfunc.TrustedProxies(loopback, loopback6))
		by48        = keyfunc.Must(keyfunc.Client{Proxies: []string{loopback, loopback6}, IPv6Bits: 48}.Key())
		byForwarded = keyfunc.Must(keyfunc.Forwarded(loopback, loopback6))
		byHops      = keyfunc.Must(keyfunc.TrustedHops(2))
		byHeader    = keyfunc.Must(keyfunc.TrustedHeader("X-Real-Ip", loopback, loopback6))
		byHMAC      = keyfunc.Must(keyfunc.HMAC([]byte("16 or more bytes"), keyfunc.Must(keyfunc.Header("X-User"))))
	)
	var rows []row
	add := func(name string, key keyfunc.Func, first, second string, status int, headers ...string) {
		c := row{name: name, root: only(one, keyed(key)), before: []string{first}, request: second, status: status}
		switch len(headers) {
		case 1:
			c.headers = headers
		case 2:
			c.with, c.headers = headers[:1], headers[1:]
		}
		rows = append(rows, c)
	}
	const get = "GET /users/1"
	both := func(name string, key keyfunc.Func, status int, first, second string) {
		add(name, key, get, get, status, first, second)
	}

	both("bearer token", keyfunc.BearerToken(), 429, "Authorization: Bearer a", "Authorization: Bearer a")
	both("bearer token, scheme in lower case", keyfunc.BearerToken(), 429, "Authorization: Bearer a", "Authorization: bearer a")
	both("another bearer token", keyfunc.BearerToken(), 200, "Authorization: Bearer a", "Authorization: Bearer b")
	both("no bearer token", keyfunc.BearerToken(), 400, "Authorization: Bearer a", "Authorization: Basic a")
	both("cookie", keyfunc.Must(keyfunc.Cookie("sid")), 429, "Cookie: sid=a", "Cookie: x=y; sid=a")
	both("another cookie", keyfunc.Must(keyfunc.Cookie("sid")), 200, "Cookie: sid=a", "Cookie: sid=b")
	both("cookie twice", keyfunc.Must(keyfunc.Cookie("sid")), 400, "Cookie: sid=a", "Cookie: sid=a; sid=b")
	add("query", keyfunc.Must(keyfunc.Query("k")), "GET /users/1?k=a", "GET /users/2?k=%61", 429)
	add("another query", keyfunc.Must(keyfunc.Query("k")), "GET /users/1?k=a", "GET /users/1?k=b", 200)
	add("malformed query", keyfunc.Must(keyfunc.Query("k")), "GET /users/1?k=a", "GET /users/1?k=a&%zz", 400)
	add("name", keyfunc.Must(keyfunc.Name(login, nil)), "GET /users/1?login=bob", "GET /users/1?login=+BOB", 429)
	add("another name", keyfunc.Must(keyfunc.Name(login, nil)), "GET /users/1?login=bob", "GET /users/1?login=alice", 200)
	both("hashed header", byHMAC, 429, "X-User: a", "X-User: a")
	both("another hashed header", byHMAC, 200, "X-User: a", "X-User: b")
	both("no header to hash", byHMAC, 400, "X-User: a", "X-Other: a")
	both("fallback is another key", keyfunc.Must(keyfunc.Or(keyfunc.Must(keyfunc.Header("X-User")), keyfunc.RemoteIP())), 200, "X-User: a", "X-Other: a")
	both("fallback", keyfunc.Must(keyfunc.Or(keyfunc.Must(keyfunc.Header("X-User")), keyfunc.RemoteIP())), 429, "X-Other: a", "X-Other: b")
	add("method", keyfunc.Must(keyfunc.Join(keyfunc.RemoteIP(), keyfunc.Method())), get, "POST /users body", 201)
	add("HEAD is GET", keyfunc.Must(keyfunc.Join(keyfunc.RemoteIP(), keyfunc.Method())), get, "HEAD /users/1", 429)
	add("one key for all", keyfunc.Must(keyfunc.Static("all")), get, "GET /empty", 429, "X-User: a", "X-User: b")
	both("client behind a proxy", byProxies, 429, "X-Forwarded-For: 198.51.100.1", "X-Forwarded-For: 198.51.100.1")
	both("another client behind the proxy", byProxies, 200, "X-Forwarded-For: 198.51.100.1", "X-Forwarded-For: 198.51.100.2")
	both("client that forges", byProxies, 429, "X-Forwarded-For: 198.51.100.1", "X-Forwarded-For: 6.6.6.6, 198.51.100.1")
	both("same /64", byProxies, 429, "X-Forwarded-For: 2001:db8::1", "X-Forwarded-For: 2001:db8::2")
	both("another /64", byProxies, 200, "X-Forwarded-For: 2001:db8::1", "X-Forwarded-For: 2001:db8:0:1::1")
	both("same /48", by48, 429, "X-Forwarded-For: 2001:db8::1", "X-Forwarded-For: 2001:db8:0:1::1")
	both("Forwarded", byForwarded, 429, "Forwarded: for=198.51.100.1", `Forwarded: for=6.6.6.6, for="198.51.100.1:80";proto=http`)
	both("another Forwarded", byForwarded, 200, "Forwarded: for=198.51.100.1", "Forwarded: for=198.51.100.2")
	both("hops", byHops, 429, "X-Forwarded-For: 198.51.100.1, 192.0.2.1", "X-Forwarded-For: 6.6.6.6, 198.51.100.1, 192.0.2.2")
	both("other hops", byHops, 200, "X-Forwarded-For: 198.51.100.1, 192.0.2.1", "X-Forwarded-For: 198.51.100.2, 192.0.2.1")
	both("proxy's header", byHeader, 429, "X-Real-Ip: 198.51.100.1", "X-Real-Ip: ::ffff:198.51.100.1")
	both("another in the proxy's header", byHeader, 200, "X-Real-Ip: 198.51.100.1", "X-Real-Ip: 198.51.100.2")
	return rows
}
