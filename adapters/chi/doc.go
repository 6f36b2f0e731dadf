// Package chigate applies a nethttp.Guard to the routes of a chi router.
//
// This program allows every client address a hundred requests at once, and a hundred more each
// minute:
//
//	package main
//
//	import (
//		"fmt"
//		"log"
//		"net/http"
//
//		"github.com/go-chi/chi/v5"
//
//		chigate "github.com/headgate/headgate/adapters/chi"
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
//		r := chi.NewRouter()
//		r.Use(chigate.Middleware(core.Must(
//			nethttp.Limit(gate, "api", core.PerMinute(100), keyfunc.RemoteIP()))))
//		r.Get("/", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello") })
//		log.Fatal(http.ListenAndServe(":8080", r))
//	}
//
// The middleware finds the route before chi has chosen it, also below a mount, so keyfunc.Route and
// keyfunc.PathValue work in Use of any router, in With and in Group, and around a router, as in
// Middleware(guard)(router). chi requires every Use of a router before its first route.
//
// A router that is mounted inside another handler, as in Mount("/api", http.StripPrefix("/api", sub)),
// is one that chi does not know from the outside. In its Use, the route is the pattern of the mount,
// such as "/api/*", and its own path values are missing: put the guard around that router,
// http.StripPrefix("/api", Middleware(guard)(sub)), or into its With.
//
// Handlers read the outcome with nethttp.AdmissionFromContext(r.Context()).
//
// Put middleware that rewrites the path, such as middleware.StripSlashes, outside the guard.
//
// A request that chi answers with 404 or 405 has no route. Below a mount it may have the pattern of
// the mount, such as "/api/*". A client cannot make up a route.
package chigate
