package otelgate_test

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/headgate/headgate/core"
	otelgate "github.com/headgate/headgate/observe/otel"
)

func Example() {
	reader := metric.NewManualReader() // in a program, one that exports
	signals := core.Must(otelgate.New(otelgate.Config{
		MeterProvider: metric.NewMeterProvider(metric.WithReader(reader)),
	}))
	gate := core.Must(core.NewMemory(core.Config{Observe: signals.Observe}))
	policy := core.Must(core.NewPolicy(core.PolicyConfig{Name: "api", Algorithm: core.PerMinute(60)}))
	_, _ = gate.Decide(context.Background(), core.Charge{
		Policy: policy, Key: core.Must(core.NewKey("acme")), Cost: 1,
	})

	var all metricdata.ResourceMetrics
	if err := reader.Collect(context.Background(), &all); err != nil {
		fmt.Println(err)
		return
	}
	for _, m := range all.ScopeMetrics[0].Metrics {
		if sum, ok := m.Data.(metricdata.Sum[float64]); ok && m.Name == "headgate.requests" {
			point := sum.DataPoints[0]
			fmt.Println(m.Name, point.Attributes.Encoded(attribute.DefaultEncoder()), point.Value)
		}
	}
	// Output:
	// headgate.requests policy=api,result=allowed,source=memory 1
}
