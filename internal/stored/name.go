// Package stored finds what stands in Redis below a prefix, for people who look at a server: it
// knows the names of Headgate's keys, and of their values the labels in a bundle alone. It writes nothing.
package stored

import (
	"encoding/hex"
	"regexp"
	"strings"

	"github.com/headgate/headgate/internal/request"
)

// Kind is what a key of Redis holds.
type Kind string

// The kinds.
const (
	Bundle      Kind = "bundle"      // the token and leaky buckets of a key
	State       Kind = "state"       // what is spent of one limit that is no bucket
	Holds       Kind = "holds"       // the holds of a state
	Adjustments Kind = "adjustments" // of a state
	Answer      Kind = "answer"      // of work that is done, beside the state that says so
	Threshold   Kind = "threshold"   // one was told for a state, or is being told
	Scope       Kind = "semaphore"   // a part of a semaphore at an outermost key
	Override    Kind = "override"    // of the plan of a tenant, or the latest changes of all
	Filter      Kind = "filter"      // a Bloom filter, or bits of it
)

// Name is the name of a key of Redis.
type Name struct {
	Kind Kind
	// Path is the key that it is about, as core.Key.String: the tenant of an Override; the outermost
	// part of a Scope.
	Path string
	// Of is the name of the policy or of the semaphore. It is empty for a Bundle.
	Of string
	// Tag is the algorithm of the limit and the version of its layout, as algorithm.Limit.Tag.
	Tag string
}

// algorithms are the words for the algorithms, by the beginnings of their tags.
var algorithms = map[string]string{
	"tb2": "token bucket", "tf3": "units in all", "lb2": "leaky bucket", "fw2": "fixed window",
	"sl1": "sliding log", "sb1": "sliding window in buckets", "bl1": "block", "ca2": "calendar",
	"sw2": "sliding window",
}

// Algorithm returns the algorithm of a tag in words, or an empty text if there is none.
func Algorithm(tag string) string { return algorithms[tag[:min(len(tag), len("tb2"))]] }

// forms are the names of each kind: path, policy or semaphore, tag.
var forms = []struct {
	kind Kind
	name *regexp.Regexp
}{
	{Bundle, form(`()()` + request.BundleSuffix)},
	{Override, form(`()():ov1`)},
	{Filter, form(`()():bf2(?::[eo]\d+)?`)},
	{Scope, regexp.MustCompile(`^(\{[^}]+\}):([^:]+)():se7:[hmwps]$`)},
	{Holds, form(state + request.HoldsSuffix)},
	{Adjustments, form(state + request.AdjustmentsSuffix)},
	{Answer, form(state + request.AnswerSuffix)},
	{Threshold, form(state + `:t\d+-\d+-\d+(?::claim)?`)},
	{State, form(state)},
}

const state = `:([^:]+):([a-z]{2}\d[0-9A-Za-z]*)`

func form(behind string) *regexp.Regexp {
	return regexp.MustCompile(`^(\{[^}]+\}(?::[^:]+)*?)` + behind + `$`)
}

// Parse parses a name without its prefix. It reports false for one that is not Headgate's.
func Parse(name string) (n Name, ok bool) {
	for _, f := range forms {
		m := f.name.FindStringSubmatch(name)
		if m != nil && (m[3] == "" || Algorithm(m[3]) != "") {
			return Name{Kind: f.kind, Path: m[1], Of: m[2], Tag: m[3]}, true
		}
	}
	return n, false
}

// Label returns the label under which a bundle has the bucket of a name, such as ":api:tb2".
func Label(suffix string) string { return hex.EncodeToString([]byte(request.LabelOf(suffix))) }

// Outermost returns the outermost part of a path, with its braces.
func Outermost(path string) string { return path[:strings.IndexByte(path, '}')+1] }

// Within reports whether a path is another or one below it.
func Within(path, outer string) bool {
	rest, ok := strings.CutPrefix(path, outer)
	return ok && (rest == "" || rest[0] == ':')
}
