// Command httprate is command http of the weights with a limit of httprate.
package main

import (
	"io"
	"log"
	"net"
	"net/http"
	"time"

	"github.com/go-chi/httprate"
)

func main() {
	h := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") })
	log.Fatal(http.ListenAndServe("localhost:8080", httprate.LimitBy(100, time.Minute, address)(h)))
}

func address(r *http.Request) (string, error) {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	return httprate.CanonicalizeIP(host), err
}
