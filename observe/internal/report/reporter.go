package report

import (
	"context"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/series"
)

// Config configures a Reporter.
type Config struct {
	Exporter series.Exporter
	// Tenant returns the tenant of an event, or "" if it has none. Nil tells no tenants.
	Tenant func(context.Context, core.Event) string
	// MaxTenants is that of series.Config.
	MaxTenants int
}

// Reporter turns events into values of series, and reads others from Gates. It is safe for
// concurrent use.
type Reporter struct {
	*series.Recorder
	tenant func(context.Context, core.Event) string
	watched
}

// New returns a Reporter, or what is wrong with the configuration.
func New(cfg Config) (*Reporter, error) {
	recorder, err := series.NewRecorder(series.Config{
		Exporter: cfg.Exporter, Tenants: cfg.Tenant != nil, MaxTenants: cfg.MaxTenants,
	})
	if err != nil {
		return nil, err
	}
	return &Reporter{recorder, cfg.Tenant, watched{recorder: recorder, ended: make(map[place]float64)}}, nil
}

// Observe records an event. It is for core.Config.Observe.
func (r *Reporter) Observe(ctx context.Context, e core.Event) {
	w := recording{series.Recording{Recorder: r.Recorder, Context: ctx}}
	if r.tenant != nil {
		w.Tenant = r.tenant(ctx, e)
	}
	if !w.measure(e) {
		above := w.Recording // on the heap, because a func value receives it
		above.Measure(e)
	}
}
