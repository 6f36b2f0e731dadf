// Command redis counts its requests in Redis and has no limit.
package main

import (
	"io"
	"log"
	"net/http"

	"github.com/redis/go-redis/v9"
)

func main() {
	client := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := client.Incr(r.Context(), "hits").Err(); err != nil {
			log.Print(err)
		}
		_, _ = io.WriteString(w, "hello")
	})
	log.Fatal(http.ListenAndServe("localhost:8080", h))
}
