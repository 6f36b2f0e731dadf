package main

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/hub"
	"github.com/headgate/headgate/internal/stored"
)

// countView is a count in Redis that fits no limit that is known.
type countView struct {
	Policy    string  `json:"policy"` // or the label of a bucket
	Key       string  `json:"key"`
	Algorithm string  `json:"algorithm"`
	Value     string  `json:"value"`
	TTL       seconds `json:"ttl_seconds"`
}

func printCounts(out io.Writer, all []countView) {
	for _, c := range all {
		fmt.Fprintf(out, "Redis has a count of %s at %s that fits no limit that is known: %s, %s, for %s\n",
			printable(c.Policy), printable(c.Key), c.Algorithm, printable(c.Value), wait(time.Duration(c.TTL)))
	}
}

// unknown returns the counts that no known limit counts.
func (l *looked) unknown() []countView {
	counters := l.counters()
	all := []countView{}
	for _, c := range l.stands.Counts {
		title, known := "#"+c.Label, counters[c.Label]
		if c.Label == "" {
			title, known = c.Of, counters[":"+c.Of+":"+c.Tag]
		}
		if known == "" && !isOnce(c.Of) {
			all = append(all, countView{
				title, formatPath(c.Path), cmp.Or(stored.Algorithm(c.Tag), "bucket"), c.Value, seconds(c.TTL),
			})
		}
	}
	return all
}

// counters returns the names of the policies whose limits are known, by what follows the key in the names
// of their counts, and by the labels of their buckets.
func (l *looked) counters() map[string]string {
	all := make(map[string]string)
	add := func(p *core.Policy) {
		of := suffixOf(p)
		all[of], all[stored.Label(of)] = p.Name(), p.Name()
	}
	for _, s := range l.stated {
		if s.Err == nil && !s.Varies {
			add(s.Policy)
		}
	}
	for _, one := range l.subject.Limits {
		add(one.Policy)
	}
	for _, name := range l.limits {
		policy, _, _ := strings.Cut(name, "/") // that of a model counts under the policy's name
		if p, err := policyOf(policy, l.plan.Algorithm(name)); err == nil {
			add(p)
		}
	}
	return all
}

// suffixOf returns what follows the path of a key in the name of what is counted under a policy.
func suffixOf(p *core.Policy) string { return core.Inside(hub.Pass{}).Suffix(p) }
