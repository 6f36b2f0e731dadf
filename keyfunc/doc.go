// Package keyfunc derives the key that a limit is counted on from an HTTP request: the client's
// address, its API key, its tenant, the route.
//
// This program allows every client behind the proxies in 10.0.0.0/8 sixty requests at once, and one
// more each second:
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
//		client, err := keyfunc.TrustedProxies("10.0.0.0/8")
//		if err != nil {
//			log.Fatal(err)
//		}
//		perClient, err := nethttp.Limit(gate, "hello", core.PerMinute(60), client)
//		if err != nil {
//			log.Fatal(err)
//		}
//		hello := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
//			fmt.Fprintln(w, "hello")
//		})
//		log.Fatal(http.ListenAndServe(":8080", perClient.Handler(hello)))
//	}
//
// # Choosing a key
//
// These Funcs derive the address of the client:
//
//   - [RemoteIP] is the address of the TCP peer, the only one that cannot be forged. Use it if
//     clients connect directly.
//   - [TrustedProxies] reads X-Forwarded-For from proxies whose addresses you know.
//   - [Forwarded] reads the Forwarded header (RFC 7239) from proxies that maintain it.
//   - [TrustedHops] reads X-Forwarded-For behind a fixed number of proxies.
//   - [TrustedHeader] reads a header that your proxy overwrites, such as CF-Connecting-IP.
//   - [Address] takes an address that another middleware found.
//   - [Extractor] takes an address from a function, which it first tests with forged requests.
//
// All of them count an IPv6 address by its /64. A [Client] is the same with another prefix length.
//
// These identify the client once authentication has verified it: [ContextValue] and [Claim] take
// what authentication found. [Header], [Cookie], [Query] and [BearerToken] hash what the request
// carries. [Name] hashes a name that a user types, such as a login name.
//
// These describe the request: [Route], [Method] and [PathValue]. [Static] is one key for all
// requests.
//
// [Join] combines several keys into one. [Or] takes the first key that the request has. [HMAC]
// hides a personal key from readers of Redis.
//
// [InNetworks] and [OneOf] are no keys. They pick requests to allow or to deny by their address or
// key.
//
// # Keys from the body
//
// A Func that reads the request's body leaves the handler none. Two ways keep the body's content:
//
//   - A form: read it with r.PostFormValue. The handler finds the parsed form in the request, and
//     reads it with r.PostFormValue too. r.Body is empty then.
//   - JSON: a middleware outside the guard reads the body, puts it back into r.Body, and stores the
//     account in the request's context. [ContextValue] or [Name] reads it there.
//
// Bound the body first with http.MaxBytesReader or http.MaxBytesHandler.
//
// # Errors
//
// A constructor that can fail returns an error that names every fault in its arguments. [Must]
// turns it into a panic, for variables initialized at start-up.
//
// A Func returns an error that matches [ErrNoKey] for a request without a key, and one that
// matches [ErrAmbiguous] for a request that leaves its key open. Requests without a key never
// share one. Any other error is a fault of the program.
//
// No value that a client sends becomes more than [MaxLen] bytes of a key: the Func hashes the
// value, or a longer one is ErrAmbiguous.
package keyfunc
