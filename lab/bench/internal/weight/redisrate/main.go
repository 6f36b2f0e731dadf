// Command redisrate is command redis of the weights with a limit of redis_rate.
package main

import (
	"io"
	"log"
	"net/http"

	"github.com/go-redis/redis_rate/v10"
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
	limiter := redis_rate.NewLimiter(client)
	limited := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		allowed, err := limiter.Allow(r.Context(), r.RemoteAddr, redis_rate.PerMinute(100))
		if err == nil && allowed.Allowed == 0 {
			http.Error(w, "too many requests", http.StatusTooManyRequests)
			return
		}
		h(w, r)
	})
	log.Fatal(http.ListenAndServe("localhost:8080", limited))
}
