package series

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// Exporter carries series to a system of metrics.
type Exporter interface {
	// Instrument returns what records a series under values of its labels, in their order. The
	// Recorder keeps it, and asks once for each combination.
	Instrument(s *Series, values []string) Instrument
}

// Instrument records one series under values of its labels: it adds to a Counter, sets a Gauge, or
// adds to the distribution of a Histogram. It is safe for concurrent use.
type Instrument func(ctx context.Context, value float64)

// Config configures a Recorder.
type Config struct {
	Exporter Exporter
	// Tenants says that series have LabelTenant where they may.
	Tenants bool
	// MaxTenants bounds the values of LabelTenant. Those beyond are "other". Zero means 100.
	MaxTenants int
}

const (
	defaultTenants = 100
	maxTenants     = 10_000
	maxNames       = 1000 // of each other label that is no enumeration
	maxValue       = 256  // bytes of a value
	maxLabels      = 4
)

// combination is the values of a series' labels, in their order.
type combination [maxLabels]string

// cell is the instruments of one series.
type cell struct {
	mu    sync.RWMutex
	known map[combination]Instrument
}

// get returns the instrument of a combination, or nil.
func (c *cell) get(of combination) Instrument {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.known[of]
}

// Recorder records values of series. It is safe for concurrent use.
type Recorder struct {
	cfg   Config
	cells []cell // by the index of the series

	mu    sync.Mutex
	known map[string]map[string]bool // values by label, of those that are no enumerations
}

// NewRecorder returns a Recorder, or what is wrong with the configuration.
func NewRecorder(cfg Config) (*Recorder, error) {
	if cfg.MaxTenants < 0 || cfg.MaxTenants > maxTenants {
		return nil, fmt.Errorf("Config.MaxTenants is %d: it must be between 1 and %d",
			cfg.MaxTenants, maxTenants)
	}
	cfg.MaxTenants = cmp.Or(cfg.MaxTenants, defaultTenants)
	r := &Recorder{cfg: cfg, cells: make([]cell, len(All())), known: make(map[string]map[string]bool)}
	for i := range r.cells {
		r.cells[i].known = make(map[combination]Instrument)
	}
	return r, nil
}

// Labels returns the names of the labels that instruments of a series have here.
func (r *Recorder) Labels(s *Series) []string {
	if s.PerTenant && r.cfg.Tenants {
		return append(slices.Clone(s.Labels), LabelTenant)
	}
	return s.Labels
}

// Recording is one event while it is recorded.
type Recording struct {
	*Recorder
	Context context.Context
	Tenant  string // "" if there is none
}

// Record records a value under values of the series' labels, in their order.
func (w *Recording) Record(s *Series, value float64, values ...string) {
	var c combination
	copy(c[:], values)
	if s.PerTenant {
		c[len(s.Labels)] = w.Tenant
	}
	w.instrument(s, c)(w.Context, value)
}

// instrument returns the instrument of a series for values of its labels. Other stands in place of those
// beyond the bound of their label.
func (r *Recorder) instrument(s *Series, c combination) Instrument {
	cell := &r.cells[s.index]
	if i := cell.get(c); i != nil {
		return i
	}
	labels := r.Labels(s)
	for i, label := range labels {
		c[i] = r.Bounded(label, c[i])
	}
	cell.mu.Lock()
	defer cell.mu.Unlock()
	i := cell.known[c]
	if i == nil {
		i = r.cfg.Exporter.Instrument(s, slices.Clone(c[:len(labels)]))
		cell.known[c] = i
	}
	return i
}

// Bounded returns a value of a label, or Other if the label has too many.
func (r *Recorder) Bounded(label, value string) string {
	var bound int
	switch label {
	case LabelPolicy, LabelSemaphore, LabelFilter, LabelNode, LabelModel, LabelRule:
		bound = maxNames
	case LabelTenant:
		bound = r.cfg.MaxTenants
	default: // an enumeration
		return value
	}
	switch {
	case value == "":
		return value
	case len(value) > maxValue:
		return Other
	}
	value = strings.ToValidUTF8(value, "\uFFFD")
	r.mu.Lock()
	defer r.mu.Unlock()
	known := r.known[label]
	if known == nil {
		known = make(map[string]bool)
		r.known[label] = known
	}
	switch {
	case known[value]:
	case len(known) >= bound:
		return Other
	default:
		known[value] = true
	}
	return value
}
