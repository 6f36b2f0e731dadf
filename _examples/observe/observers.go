package main

import (
	"context"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/observe"
	promgate "github.com/headgate/headgate/observe/prometheus"
	sloggate "github.com/headgate/headgate/observe/slog"
)

// observers are what watches the Gate.
type observers struct {
	registry *prometheus.Registry
	metrics  *promgate.Metrics
	logs     *sloggate.Logs
	observe  func(context.Context, core.Event)
}

func newObservers() (*observers, error) {
	registry := prometheus.NewRegistry()
	metrics, err := promgate.New(promgate.Config{Registerer: registry})
	if err != nil {
		return nil, err
	}
	logs, err := sloggate.New(sloggate.Config{})
	if err != nil {
		return nil, err
	}
	return &observers{registry, metrics, logs, observe.All(metrics.Observe, logs.Observe)}, nil
}

// handler serves what operators see. It is on an address of its own, which clients do not reach.
func (o *observers) handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(o.registry, promhttp.HandlerOpts{}))
	return mux
}

// close writes what the log has counted and not told yet.
func (o *observers) close() { o.logs.Flush(context.Background()) }
