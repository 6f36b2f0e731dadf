// Package otelgate makes metrics and traces of OpenTelemetry of Headgate's events.
//
//	signals, err := otelgate.New(otelgate.Config{})
//	gate, err := core.NewRedis(client, core.Config{Observe: signals.Observe})
//	err = signals.Watch(gate)
//
// The names, units and labels of all series stand in docs/reference/series.md. No key is ever an
// attribute. It uses OpenTelemetry's API alone: the program chooses the SDK.
package otelgate
