// Package nethttp applies a core.Gate to net/http: it derives the keys of a request, decides, tells the client in
// headers, and refuses with 429.
//
// A [Guard] is a list of rules, and each [Rule] is a policy, the key it is counted on, and the cost of a request. All
// rules that a request meets are decided together: one that denies spends nothing of the others.
//
//	gate, err := core.NewRedis(client, core.Config{})
//	perAddress, err := nethttp.Limit(gate, "hello", core.PerMinute(60), keyfunc.RemoteIP())
//	http.Handle("/hello", perAddress(hello))
//
// # Order
//
// A Guard whose key is an address stands before authentication, one whose key is an identity after it: before, the
// identity is what anybody writes into a header. CORS middleware stands outside of both, so that a refusal carries its
// headers and preflights are not counted. http.TimeoutHandler stands outside too: inside, a slot of a [Concurrency] is free while
// the handler may still run.
//
// # Responses
//
// The ResponseWriter is passed on as it is, so that streaming, hijacking and flushing work; a [Rule] with Settle wraps it,
// and keeps these. Headers are
// set before the next handler runs, which may change them. net/http spells the names RateLimit and RateLimit-Policy as
// Ratelimit and Ratelimit-Policy; to clients that is the same.
package nethttp
