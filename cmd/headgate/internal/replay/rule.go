// Package replay asks a Gate in memory, on a clock that follows an access log, which of its
// requests a plan would have refused.
package replay

import (
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"

	"github.com/headgate/headgate/cmd/headgate/internal/accesslog"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfunc"
	"github.com/headgate/headgate/plans"
)

// rule is a limit of the plan.
type rule struct {
	policy *core.Policy
	then   []*core.Policy // that are charged in its place once it is spent
	answer bool           // it is one of these
	parts  []part
	prefix string // of the paths that it is for
	exempt int64  // requests that it is for, without one of its parts
}

// part returns one part of a key. It is empty for a request that lacks it.
type part func(*accesslog.Request) string

// parts are what a key may have.
var parts = map[string]part{
	"ip":     func(r *accesslog.Request) string { return address(r.Client) },
	"user":   func(r *accesslog.Request) string { return r.User },
	"host":   func(r *accesslog.Request) string { return r.Host },
	"method": func(r *accesslog.Request) string { return r.Method },
	"path":   func(r *accesslog.Request) string { return r.Path },
	"all":    func(*accesslog.Request) string { return "all" },
}

// newRules returns the rules of a plan, in the order of their names, and the names of limits that
// are for one model alone, which a log does not tell.
func newRules(cfg *Config) (rules []*rule, skipped []string, err error) {
	for _, name := range slices.Sorted(maps.Keys(cfg.Plan.Limits)) {
		if strings.Contains(name, "/") {
			skipped = append(skipped, name)
			continue
		}
		if of, kept := strings.CutSuffix(name, plans.KeptName("")); kept && cfg.Plan.Limits[of] != nil {
			continue // it counts what that one admits
		}
		policy, err := core.NewPolicy(core.PolicyConfig{Name: name, Algorithm: cfg.Plan.Limits[name]})
		if err != nil {
			return nil, nil, err
		}
		r := &rule{policy: policy, prefix: cfg.Prefixes[name]}
		key := cfg.Keys[name]
		if key == "" {
			key = cfg.Keys[""]
		}
		if r.parts, err = parseParts(key); err != nil {
			return nil, nil, fmt.Errorf("the key of %s: %w", name, err)
		}
		rules = append(rules, r)
	}
	link(rules)
	for _, names := range []map[string]string{cfg.Keys, cfg.Prefixes} {
		for name := range names {
			if name != "" &&
				!slices.ContainsFunc(rules, func(r *rule) bool { return r.policy.Name() == name }) {
				return nil, nil, fmt.Errorf("the plan has no limit %q: it has %s", name, listOf(cfg.Plan))
			}
		}
	}
	if len(rules) == 0 {
		return nil, nil, fmt.Errorf("the plan has no limit that a log can tell")
	}
	return rules, skipped, nil
}

// link gives each rule the policies that follow once it is spent.
func link(rules []*rule) {
	for _, r := range rules {
		for _, name := range plans.Then(r.policy.Name()) {
			for _, next := range rules {
				if next.policy.Name() == name {
					next.answer = true
					r.then = append(r.then, next.policy)
				}
			}
		}
	}
}

func listOf(p plans.Plan) string {
	return strings.Join(slices.Sorted(maps.Keys(p.Limits)), ", ")
}

// parseParts parses the parts of a key, such as host,ip. An empty text is ip.
func parseParts(text string) (all []part, err error) {
	if text == "" {
		text = "ip"
	}
	for name := range strings.SplitSeq(text, ",") {
		of := parts[name]
		if of == nil {
			return nil, fmt.Errorf("%q is no part of a key: it must be ip, user, host, method, path or all", name)
		}
		all = append(all, of)
	}
	return all, nil
}

// key returns the key of a request under the rule, and whether the rule is for it.
func (r *rule) key(e *accesslog.Request) (core.Key, bool) {
	if r.prefix != "" && !strings.HasPrefix(e.Path, r.prefix) {
		return core.Key{}, false
	}
	var texts []string
	for _, part := range r.parts {
		texts = append(texts, part(e))
	}
	key, err := core.NewKey(texts[0], texts[1:]...)
	if err != nil { // a part is missing
		r.exempt++
	}
	return key, err == nil
}

// remote is the key of a client's address.
var remote = keyfunc.RemoteIP()

// address returns an address as the key of an application has it: an IPv6 address by its /64. A
// log may have a name in its place.
func address(client string) string {
	key, err := remote(&http.Request{RemoteAddr: net.JoinHostPort(client, "0")})
	if err != nil {
		return client
	}
	return key
}
