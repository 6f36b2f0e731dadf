package promgate_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/headgate/headgate/core"
	promgate "github.com/headgate/headgate/observe/prometheus"
)

func Example() {
	registry := prometheus.NewRegistry()
	metrics := core.Must(promgate.New(promgate.Config{Registerer: registry}))
	gate := core.Must(core.NewMemory(core.Config{Observe: metrics.Observe}))
	if err := metrics.Watch(gate); err != nil {
		fmt.Println(err)
		return
	}
	policy := core.Must(core.NewPolicy(core.PolicyConfig{Name: "api", Algorithm: core.PerMinute(60)}))
	_, _ = gate.Decide(context.Background(), core.Charge{
		Policy: policy, Key: core.Must(core.NewKey("acme")), Cost: 1,
	})

	page := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(page, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for line := range strings.Lines(page.Body.String()) {
		if strings.HasPrefix(line, "headgate_requests_total") {
			fmt.Print(line)
		}
	}
	// Output:
	// headgate_requests_total{policy="api",result="allowed",source="memory"} 1
}
