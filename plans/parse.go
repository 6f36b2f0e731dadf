package plans

import (
	"fmt"

	"github.com/goccy/go-yaml/ast"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/watch"
)

const (
	maxFile = 1 << 20 // bytes
	// maxLines bounds the time of the parser, which is quadratic in the entries of a mapping that
	// have lines of their own: 20,000 take a second, and 120,000 take most of a minute.
	maxLines = 20_000
)

// ParseSet returns the Set of a file in YAML or JSON, or every fault of the file at once, each with
// its line and the path of its field. A field that is unknown or there twice is a fault. Anchors,
// aliases and tags are not supported. A file has at most 1 MiB and 20,000 lines. This one has
// everything:
//
//	default: free
//	plans:
//	  free:
//	    limits:                                         # by the names of policies
//	      api: {rate: 100, per: 1m, burst: 20}          # TokenBucket; burst is rate if it is absent
//	      export: {leak: 10, per: 1s, capacity: 50}     # LeakyBucket; capacity is leak if absent
//	      login: {limit: 5, fixed_window: 1m, from_first: true}
//	      search: {limit: 100, sliding_window: 1m, buckets: 60}
//	      orders: {limit: 10, sliding_log: 1m}          # or [{limit: 10, window: 1m}, ...]
//	      tokens: {limit: 1000000, calendar: month, in: Europe/Berlin, anchor: 2026-01-31}
//	      month: {limit: 5000, calendar: month, in: UTC, anchor: subscription} # see Subscribed
//	      calls:                                        # see Then and Book.Kept
//	        {limit: 900, calendar: day, in: UTC, then: {overage: 100, slow: {rate: 1, per: 1m}}, keep: 40d}
//	      beta: deny
//	      health: unlimited
//	      chat/large: {rate: 5, per: 1m}                # of requests for the model large
//	    caps:                                           # by the names of caps
//	      streams: 2
//	      jobs: {limit: 10, share: 2, floor: 1}         # each is the cap's own if absent; 0 is a fault
//	routes:                                             # of the requests that a limit counts
//	  search: [/v1/search, POST /v1/users/{id}/search]  # the others count all
//
// A duration is a number and a unit: ms, s, m, h or d, which is 24 hours. Units may follow each
// other, as in 1h30m. An anchor is a date in the calendar's zone, or a time as in RFC 3339.
func ParseSet(text []byte) (*Set, error) { return parseSet("", text) }

// ReadSet is ParseSet for the file of a path.
func ReadSet(path string) (*Set, error) {
	return readSet(&watch.File{Path: path, Max: maxFile})
}

// readSet reads and takes a file.
func readSet(f *watch.File) (*Set, error) {
	text, err := f.Read()
	if err != nil {
		return nil, fmt.Errorf("plans: %w", err)
	}
	return parseSet(f.Path+": ", text)
}

func parseSet(file string, text []byte) (*Set, error) {
	r := newReader()
	root := r.parse(text)
	if root == nil {
		return nil, joined(file, r.faults, r.lines)
	}
	var cfg SetConfig
	r.mapping("", root, map[string]readFunc{
		"default": func(path string, n ast.Node) { cfg.Default = r.text(path, n) },
		"plans":   func(path string, n ast.Node) { cfg.Plans = r.plans(path, n) },
		"routes":  func(path string, n ast.Node) { cfg.Routes = r.routes(path, n) },
	})
	set, faults := compile(cfg, r.named)
	r.add(faults)
	if len(r.faults) > 0 {
		return nil, joined(file, r.faults, r.lines)
	}
	return set, nil
}

func (r *reader) plans(path string, n ast.Node) map[string]Plan {
	all := make(map[string]Plan)
	r.entries(path, n, func(name, path string, n ast.Node) {
		var p Plan
		r.mapping(path, n, r.planFields(&p, make(map[string]readFunc)))
		all[name] = p
	})
	return all
}

func (r *reader) routes(path string, n ast.Node) map[string][]string {
	all := make(map[string][]string)
	r.entries(path, n, func(name, path string, n ast.Node) {
		list, ok := n.(*ast.SequenceNode)
		if !ok {
			r.fault(path, "is %s: it must be a list of routes", describe(n))
			return
		}
		all[name] = []string{}
		for i, n := range list.Values {
			all[name] = append(all[name], r.text(fmt.Sprintf("%s[%d]", path, i), n))
		}
	})
	return all
}

// planFields returns more with the fields of a plan.
func (r *reader) planFields(p *Plan, more map[string]readFunc) map[string]readFunc {
	more["limits"] = func(path string, n ast.Node) {
		p.Limits = make(map[string]core.Algorithm)
		r.entries(path, n, func(name, path string, n ast.Node) { r.limits(p, name, path, n) })
	}
	more["caps"] = func(path string, n ast.Node) {
		p.Caps = make(map[string]Cap)
		r.entries(path, n, func(name, path string, n ast.Node) {
			if c, ok := r.cap(path, n); ok {
				p.Caps[name] = c
			}
		})
	}
	return more
}

// cap reads a cap: its limit, or a mapping.
func (r *reader) cap(path string, n ast.Node) (c Cap, ok bool) {
	if _, ok := n.(ast.MapNode); !ok {
		c.Limit, ok = r.integer(path, n)
		return c, ok
	}
	before := len(r.faults)
	number := func(v *int64) readFunc {
		return func(path string, n ast.Node) {
			var ok bool
			if *v, ok = r.integer(path, n); ok && *v == 0 {
				r.fault(path, "is 0: it must be above 0, or absent for the cap's own")
			}
		}
	}
	r.mapping(path, n, map[string]readFunc{
		"limit": number(&c.Limit), "share": number(&c.Share), "floor": number(&c.Floor),
	})
	if c == (Cap{}) && len(r.faults) == before {
		r.fault(path, "has no number: it must have a limit, a share or a floor")
	}
	return c, len(r.faults) == before
}
