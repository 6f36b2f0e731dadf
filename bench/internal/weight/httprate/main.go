// Command httprate is command http of the weights with a limit of httprate.
package main

import (
	"io"
	"log"
	"net/http"
	"time"

	"github.com/go-chi/httprate"
)

func main() {
	h := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") })
	log.Fatal(http.ListenAndServe("localhost:8080", httprate.LimitByIP(100, time.Minute)(h)))
}
