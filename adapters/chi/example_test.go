package chigate_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/go-chi/chi/v5"

	chigate "github.com/headgate/headgate/adapters/chi"
	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfunc"
)

func ExampleMiddleware() {
	gate := core.Must(core.NewMemory(core.Config{}))
	r := chi.NewRouter()
	r.Use(chigate.Middleware(core.Must(
		nethttp.Limit(gate, "api", core.PerMinute(1), keyfunc.RemoteIP()))))
	r.Get("/", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") })

	for range 2 {
		w := httptest.NewRecorder()
		r.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		fmt.Println(w.Code)
	}
	// Output:
	// 200
	// 429
}
