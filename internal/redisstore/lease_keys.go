package redisstore

import "github.com/headgate/headgate/internal/lease"

// scopeKeys is the number of KEYS of a scope.
const scopeKeys = 5

// recordsSuffix ends the name of a scope's records, where the text of a lone holder is.
const recordsSuffix = ":m"

// leaseKeys writes the KEYS of a scope, as lua/lease/lease.lua reads them, as parts of one string.
func (a *arguments) leaseKeys(scope string) {
	n := len(scope) + len(":h")
	all := scope + ":h" + scope + recordsSuffix + scope + ":w" + scope + ":p" + scope + ":s"
	a.name(all[:n])
	for i := 1; i < scopeKeys; i++ {
		a.name(all[i*n : (i+1)*n])
	}
}

const (
	acquireWords = 5 // the number of ARGV of an acquire behind the operation
	// loneMargin is for how many milliseconds longer than its lease Redis keeps a lone holder: five
	// minutes, as it keeps the last token, and the scripts' margin.
	loneMargin = 301_000
)

// acquire writes the ARGV of an acquire behind the operation.
func (a *arguments) acquire(q *lease.Request) {
	a.name(q.ID)
	a.int(q.SignedPatience())
	a.int(q.Waiters)
	a.int(q.Lease/1000 + loneMargin)
	a.name(q.Lone())
}
