// Package nethttp applies a core.Gate to net/http. It derives the keys of a request, decides,
// states the limits in the headers of the response, and refuses with 429.
//
// This program allows every client address sixty requests at once, and one more each second:
//
//	package main
//
//	import (
//		"fmt"
//		"log"
//		"net/http"
//
//		"github.com/headgate/headgate/adapters/nethttp"
//		"github.com/headgate/headgate/core"
//		"github.com/headgate/headgate/keyfunc"
//	)
//
//	func main() {
//		gate, err := core.NewMemory(core.Config{})
//		if err != nil {
//			log.Fatal(err)
//		}
//		api, err := nethttp.Limit(gate, "api", core.PerMinute(60), keyfunc.RemoteIP())
//		if err != nil {
//			log.Fatal(err)
//		}
//		hello := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
//			fmt.Fprintln(w, "hello")
//		})
//		log.Fatal(http.ListenAndServe(":8080", api.Handler(hello)))
//	}
//
// [Limit] makes a [Guard] of one rule, and [NewGuard] one of several. A [Rule] is a policy, the key
// that it is counted by, and the cost of a request. A Guard decides all rules that apply to a
// request together: if one denies, nothing is spent under the others. A [Slot] caps how many
// requests run at a time.
//
// # Order
//
// Put a Guard whose key is an address before authentication, and one whose key is an identity after
// it. Before authentication an identity is whatever the client writes into a header. Put CORS
// middleware outside both, so that refusals carry its headers and preflights are not counted. Put
// http.TimeoutHandler outside too: otherwise a slot is free while the handler may still run.
//
// # Responses
//
// Streaming, hijacking and flushing work through a Guard. Where something depends on the response, such
// as a [Rule].Settle, it wraps the ResponseWriter, and the wrapper has Unwrap and the same optional
// interfaces except http.Pusher.
// Headers are set before the next handler runs, which may change them. net/http spells RateLimit
// and RateLimit-Policy as Ratelimit and Ratelimit-Policy; header names ignore case.
//
// # gRPC and Connect
//
// Clients of gRPC and Connect report a refusal as unavailable and not as resource_exhausted,
// because both protocols map the HTTP statuses 429 and 503 to that code, and they do not read
// Retry-After. A Guard does not change this. If clients must see resource_exhausted, decide in an
// interceptor with core.Gate.Decide and return that code.
package nethttp
