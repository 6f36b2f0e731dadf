// Package stored reads what stands in Redis below a prefix, for people who look at a server: it
// knows the names and the layouts of Headgate's keys, and needs neither policies nor scripts. It
// writes nothing.
package stored

import (
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
	Scope       Kind = "scope"       // a part of a semaphore at an outermost key
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
	// Part is the part of a Scope, or what is behind the state's name of a Threshold.
	Part string
}

// scopeTag is the version of the layout of a semaphore.
const scopeTag = "se7"

var (
	tagForm = regexp.MustCompile(
		`^(tb2|tf2|lb2|fw2|sl1|sb1|bl1|ca2[mhdwMy][0-9a-z]*|sw2[0-9a-z]+)$`,
	)
	thresholdForm = regexp.MustCompile(`^t\d+-\d+-\d+$`)
	bitsForm      = regexp.MustCompile(`^[eo]\d+$`)
	scopePart     = regexp.MustCompile(`^[hmwps]$`)
)

// wholeNames are the kinds of the names that end in a word behind the path.
var wholeNames = map[string]Kind{
	request.BundleSuffix[1:]: Bundle, "ov1": Override, "bf2": Filter,
}

// Parse parses a name without its prefix. It reports false for one that is not Headgate's.
func Parse(name string) (n Name, ok bool) {
	end := strings.IndexByte(name, '}')
	if end < 2 || name[0] != '{' || end+2 > len(name) || name[end+1] != ':' {
		return n, false
	}
	words := append([]string{name[:end+1]}, strings.Split(name[end+2:], ":")...)
	last := len(words) - 1
	word := words[last]
	if kind := wholeNames[word]; kind != "" {
		return Name{Kind: kind, Path: strings.Join(words[:last], ":")}, true
	}
	if last == 3 && words[2] == scopeTag && scopePart.MatchString(word) {
		return Name{Kind: Scope, Path: words[0], Of: words[1], Part: word}, true
	}
	if last >= 2 && words[last-1] == "bf2" && bitsForm.MatchString(word) {
		return Name{Kind: Filter, Path: strings.Join(words[:last-1], ":"), Part: word}, true
	}
	return parseBeside(words, word)
}

// parseBeside parses the name of a state, or of what is kept beside one.
func parseBeside(words []string, word string) (n Name, ok bool) {
	last := len(words) - 1
	switch {
	case ":"+word == request.HoldsSuffix:
		return ofState(Holds, words[:last], "")
	case ":"+word == request.AdjustmentsSuffix:
		return ofState(Adjustments, words[:last], "")
	case ":"+word == request.AnswerSuffix:
		return ofState(Answer, words[:last], "")
	case thresholdForm.MatchString(word):
		return ofState(Threshold, words[:last], word)
	case word == "claim" && thresholdForm.MatchString(words[last-1]):
		return ofState(Threshold, words[:last-1], words[last-1]+":"+word)
	}
	return ofState(State, words, "")
}

// ofState returns a name about the state whose own name is the words.
func ofState(kind Kind, words []string, part string) (n Name, ok bool) {
	last := len(words) - 1
	if last < 2 || !tagForm.MatchString(words[last]) {
		return n, false
	}
	path := strings.Join(words[:last-1], ":")
	return Name{Kind: kind, Path: path, Of: words[last-1], Tag: words[last], Part: part}, true
}

// Algorithm returns the algorithm of a tag in words.
func Algorithm(tag string) string {
	for prefix, words := range map[string]string{
		"tb2": "token bucket", "tf2": "units in all", "lb2": "leaky bucket", "fw2": "fixed window",
		"sl1": "sliding log", "sb1": "sliding window in buckets", "bl1": "block", "ca2": "calendar",
		"sw2": "sliding window",
	} {
		if strings.HasPrefix(tag, prefix) {
			return words
		}
	}
	return tag
}

// Outermost returns the outermost part of a path, with its braces.
func Outermost(path string) string { return path[:strings.IndexByte(path, '}')+1] }

// Within reports whether a path is another or one below it.
func Within(path, outer string) bool {
	rest, ok := strings.CutPrefix(path, outer)
	return ok && (rest == "" || rest[0] == ':')
}
