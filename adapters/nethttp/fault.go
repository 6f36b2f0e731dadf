package nethttp

import (
	"strings"

	"github.com/headgate/headgate/core"
)

// faultFunc records one fault of a Config.
type faultFunc func(format string, args ...any)

// checkPolicy records the faults of a rule's policy, and reports whether there is one.
func checkPolicy(at string, p *core.Policy, names map[string]bool, fault faultFunc) bool {
	if p == nil || p.Name() == "" {
		fault("%s.Policy is missing: core.NewPolicy must make it", at)
		return false
	}
	if names[p.Name()] {
		fault("%s.Policy is named %q, like that of another rule", at, p.Name())
	}
	names[p.Name()] = true
	return true
}

func invalidInName(r rune) bool {
	return !(r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' || r >= '0' && r <= '9' ||
		strings.ContainsRune("_.-", r))
}
