// Command memory is command http with a limit in memory.
package main

import (
	"io"
	"log"
	"net/http"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfunc"
)

func main() {
	h := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") })
	gate := core.Must(core.NewMemory(core.Config{}))
	guard := core.Must(nethttp.Limit(gate, "api", core.PerMinute(100), keyfunc.RemoteIP()))
	log.Fatal(http.ListenAndServe("localhost:8080", guard.Handler(h)))
}
