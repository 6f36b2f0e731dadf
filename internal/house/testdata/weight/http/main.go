// Command http serves without a limit.
package main

import (
	"io"
	"log"
	"net/http"
)

func main() {
	h := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") })
	log.Fatal(http.ListenAndServe("localhost:8080", h))
}
