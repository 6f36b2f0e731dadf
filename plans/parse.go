package plans

import (
	"fmt"
	"io"
	"os"

	"github.com/goccy/go-yaml/ast"

	"github.com/headgate/headgate/core"
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
//	      beta: deny
//	      health: unlimited
//	    caps: {streams: 2}                              # by the names of semaphores
//	    shadow: free-2027                               # is tried beside this plan
//	  free-2027:
//	    limits: {api: {rate: 50, per: 1m}}
//
// A duration is a number and a unit: ms, s, m, h or d, which is 24 hours. Units may follow each
// other, as in 1h30m. An anchor is a date in the calendar's zone, or a time as in RFC 3339.
func ParseSet(text []byte) (*Set, error) { return parseSet("", text) }

// ReadSet is ParseSet for the file of a path.
func ReadSet(path string) (*Set, error) {
	text, err := readFile(path)
	if err != nil {
		return nil, err
	}
	return parseSet(path+": ", text)
}

func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("plans: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("plans: %w", err)
	}
	return text, nil
}

func parseSet(file string, text []byte) (*Set, error) {
	r := &reader{lines: make(map[string]int)}
	root := r.parse(text)
	if root == nil {
		return nil, joined(file, r.faults, r.lines)
	}
	var cfg SetConfig
	r.mapping("", root, map[string]readFunc{
		"default": func(path string, n ast.Node) { cfg.Default = r.text(path, n) },
		"plans":   func(path string, n ast.Node) { cfg.Plans = r.plans(path, n) },
	})
	set, faults := compile(cfg)
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
		r.mapping(path, n, r.planFields(&p.Limits, &p.Caps, map[string]readFunc{
			"shadow": func(path string, n ast.Node) { p.Shadow = r.text(path, n) },
		}))
		all[name] = p
	})
	return all
}

// planFields returns more with the fields of limits and caps.
func (r *reader) planFields(
	limits *map[string]core.Algorithm, caps *map[string]int64, more map[string]readFunc,
) map[string]readFunc {
	more["limits"] = func(path string, n ast.Node) {
		*limits = make(map[string]core.Algorithm)
		r.entries(path, n, func(name, path string, n ast.Node) {
			if limit := r.limit(path, n); limit != nil {
				(*limits)[name] = limit
			}
		})
	}
	more["caps"] = func(path string, n ast.Node) {
		*caps = make(map[string]int64)
		r.entries(path, n, func(name, path string, n ast.Node) {
			if most, ok := r.integer(path, n); ok {
				(*caps)[name] = most
			}
		})
	}
	return more
}
