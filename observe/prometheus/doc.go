// Package promgate makes metrics of Prometheus of Headgate's events.
//
//	metrics, err := promgate.New(promgate.Config{})
//	gate, err := core.NewRedis(client, core.Config{Observe: metrics.Observe})
//	err = metrics.Watch(gate)
//	http.Handle("/metrics", promhttp.Handler())
//
// The names, units and labels of all series stand in docs/reference/series.md. No key is ever a label.
// The folder has a dashboard for Grafana, dashboard.json, and alerts, rules.yml.
package promgate
