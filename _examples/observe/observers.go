package main

import (
	"context"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/headgate/headgate/admin"
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
	live     *admin.Live
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
	live := new(admin.Live)
	all := observe.All(metrics.Observe, logs.Observe, live.Observe)
	return &observers{registry, metrics, logs, live, all}, nil
}

// handler serves what operators see. It is on an address of its own, which clients do not reach.
func (o *observers) handler(page http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(o.registry, promhttp.HandlerOpts{}))
	mux.Handle("/page/", http.StripPrefix("/page", page))
	return mux
}

// close writes what the log has counted and not told yet.
func (o *observers) close() { o.logs.Flush(context.Background()) }
