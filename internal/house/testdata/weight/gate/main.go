// Command gate is command redis with a limit in Redis.
package main

import (
	"io"
	"log"
	"net/http"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfunc"
)

func main() {
	client := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := client.Incr(r.Context(), "hits").Err(); err != nil {
			log.Print(err)
		}
		_, _ = io.WriteString(w, "hello")
	})
	gate := core.Must(core.NewRedis(client, core.Config{}))
	guard := core.Must(nethttp.Limit(gate, "api", core.PerMinute(100), keyfunc.RemoteIP()))
	log.Fatal(http.ListenAndServe("localhost:8080", guard.Handler(h)))
}
