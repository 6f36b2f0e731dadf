package admin

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"os"
	"slices"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/inspect"
)

// overview is the first page.
func (a *Admin) overview(w http.ResponseWriter, r *http.Request) {
	a.render(w, r, http.StatusOK, "overview", "Overview", a.now(r.Context()))
}

// figures are the live part of the first page.
type figures struct {
	IsLive  bool
	Host    string
	Started time.Time
	At      time.Time
	Rates   []rate
	Refused []count
	Crowd   bool // keys were refused that do not stand out
	More    int  // keys that were refused and are not shown
	Since   time.Time
	Servers []serverRow
	Memory  bool
	Pulse   time.Duration // of a decision
	// Unknown is why Redis did not answer the page, in a few words and in full.
	Unknown, Fault string
	Advice         string
	Misconfigured  bool // requests fail with an error, because Redis is misconfigured

	WithoutRedis, Overloads, Lost, Failed int64 // in the last minute

	FailedBy string   // the last error
	Blocks   []string // the names of the policies that block
}

// serverRow is a server of Redis.
type serverRow struct {
	Addr  string
	Open  bool
	Since time.Time
	Why   string
}

const maxRefused = 12

// now returns the figures of this moment.
func (a *Admin) now(ctx context.Context) figures {
	now := time.Now()
	f := figures{At: now, Started: a.started, Memory: a.hub.Nodes == nil}
	f.Host, _ = os.Hostname()
	var err error
	if f.Pulse, err = a.inspector.Pulse(ctx); err != nil {
		f.Unknown, f.Fault, f.Advice = inspect.Cause(err), inner(err), inspect.Advice(err)
		f.Misconfigured = errors.Is(err, core.ErrMisconfigured)
	}
	for _, p := range a.cfg.Policies {
		if _, blocks := p.Algorithm().(core.Block); blocks {
			f.Blocks = append(f.Blocks, p.Name())
		}
	}
	live := a.cfg.Live
	if live == nil {
		f.Servers = a.servers(nil)
		return f
	}
	f.IsLive = true
	f.Rates = live.rates.read(now)
	most, since := live.refused.most(2*maxCounts, now)
	f.Since = since
	for _, c := range most {
		if f.Crowd = f.Crowd || !c.standsOut(); !c.standsOut() {
			continue
		}
		if len(f.Refused) == maxRefused {
			f.More++
			continue
		}
		f.Refused = append(f.Refused, c)
	}
	f.Servers = a.servers(live.failing())
	f.WithoutRedis, f.Overloads = live.withoutRedis.minute(now), live.overloads.minute(now)
	f.Lost, f.Failed = live.lost.minute(now), live.failed.minute(now)
	if err := live.failure.Load(); err != nil {
		f.FailedBy = inspect.Cause(*err)
	}
	return f
}

// servers returns the servers of Redis that this process has asked.
func (a *Admin) servers(failures map[string]failure) (all []serverRow) {
	if a.hub.Nodes == nil {
		return nil
	}
	for addr, open := range a.hub.Nodes() {
		row := serverRow{Addr: cmp.Or(addr, "Redis"), Open: open}
		if why := failures[addr]; open {
			row.Since = why.since
			if why.err != nil {
				row.Why = inspect.Explain(why.err).Error()
			}
		}
		all = append(all, row)
	}
	slices.SortFunc(all, func(a, b serverRow) int { return cmp.Compare(a.Addr, b.Addr) })
	return all
}
