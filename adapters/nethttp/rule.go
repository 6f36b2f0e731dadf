package nethttp

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfunc"
)

// Rule is one limit of a Guard.
type Rule struct {
	// Policy names the limit. It is required. Config.Plan may have another limit under its name.
	Policy *core.Policy
	// Then are the policies that answer when Policy is spent: a request that it denies is charged under
	// the first of them that admits it, on the same key and with the same cost, such as an overage and
	// then a slower rate. Policy and each of Then count what they have admitted. Responses and the
	// Decision have the one that decided, by its name, and a refusal has the shortest wait of all. A
	// policy whose limit is core.DenyAll, such as one that Config.Plan leaves its own, is skipped. A
	// request that is denied so takes one more round trip for each policy that it is charged under,
	// except where the denial is remembered.
	Then []*core.Policy
	// Key derives whose limit it is. It is required: no key is right for every program. What Key
	// reads of the body the handler cannot read again. Read a form with r.PostFormValue, which
	// keeps the form for the handler; package keyfunc says what to do with JSON.
	Key keyfunc.Func
	// NoKey says what happens to a request without a key. The zero value refuses it.
	NoKey NoKey
	// Cost returns what a request spends, zero or more; a request of 0 spends nothing. Nil is a cost
	// of 1. A negative cost refuses the request with 500. What Cost reads of the body the handler
	// cannot read again; see CostBody.
	Cost func(*http.Request) int64
	// CostBody is the number of body bytes that Cost may read. The guard reads up to that many
	// before it calls Cost, holds them in memory, and the handler reads the whole body afterwards.
	// Of a longer body Cost reads the first CostBody bytes and then io.EOF. Zero reads nothing
	// ahead.
	//
	// Cost is given a copy of the request, so that a form that it parses is not kept. A body that
	// breaks off is refused with 400, one that http.MaxBytesReader rejects with 413. Neither spends
	// anything. See Config.BufferBody for a client that expects 100 Continue.
	CostBody int64
	// Clamp lowers a cost above the limit to the limit, so that a request whose cost is an estimate
	// can pass. It requires Settle, which charges the rest as a debt.
	Clamp bool
	// Settle returns the actual cost of a request, given the status of its response, as CountOnly
	// and RefundServerErrors do. A cost below the one that was spent is refunded, and a higher one
	// is charged even if it does not fit; see core.Reservation.Settle. Nil keeps the cost.
	//
	// Until the handler returns the request has spent its cost, so concurrent requests cannot
	// overspend the limit, and the headers state what is left with that cost spent.
	//
	// The request is the one that the handler was given: AdmissionFromContext(r.Context()) has the
	// bytes that it has Written. A handler that panics before it responds
	// has status 500, and a hijacked connection 101. A handler that responds with an error because
	// its client has left is settled like any other error.
	Settle func(r *http.Request, status int, cost int64) (actual int64)
	// Skip skips the rule for the requests for which it returns true. Nil skips none.
	Skip func(*http.Request) bool

	// kept counts what Policy and each of Then have admitted in one period, for a plans.Book. It is empty,
	// or some of its elements are nil.
	kept []*core.Policy
}

func (r *Rule) check(i int, names map[string]bool, fault faultFunc) {
	at := fmt.Sprintf("Rules[%d]", i)
	checkPolicy(at+".Policy", r.Policy, names, fault)
	for j, p := range r.Then {
		checkPolicy(fmt.Sprintf("%s.Then[%d]", at, j), p, names, fault)
	}
	fault.when(r.Key == nil, "%s.Key is nil: say whose limit it is, such as keyfunc.RemoteIP()", at)
	r.NoKey.check(at+".NoKey", fault)
	fault.when(r.CostBody < 0, "%s.CostBody is %d: it must not be negative", at, r.CostBody)
	fault.when(r.Clamp && r.Settle == nil,
		"%s.Clamp is set, and Settle is nil: nothing would charge the rest of a cost", at)
	fault.when(r.CostBody > 0 && r.Cost == nil, "%s.CostBody is %d, and Cost is nil", at, r.CostBody)
}

// NoKey says what happens to a request from which a rule derives no key. Such requests never share
// a key.
//
// A request with an ambiguous key (keyfunc.ErrAmbiguous) does not lack one. It is always refused
// with 400, because the handler may read a value that the rule cannot.
type NoKey uint8

const (
	// NoKeyRefuse refuses the request with 400.
	NoKeyRefuse NoKey = iota
	// NoKeySkip skips the rule.
	NoKeySkip
)

func (n NoKey) check(field string, fault faultFunc) {
	fault.when(n > NoKeySkip, "%s is %d: it must be NoKeyRefuse or NoKeySkip", field, n)
}

// String returns "refuse" or "skip".
func (n NoKey) String() string {
	switch n {
	case NoKeyRefuse:
		return "refuse"
	case NoKeySkip:
		return "skip"
	}
	return "unknown"
}

// ContentLength returns a Rule.Cost that charges one unit for each byte of the body. A body that is
// sent in chunks has no known length and costs unknown units.
//
// Choose the length of the longest body that the handler accepts, and enforce it with
// http.MaxBytesHandler. Otherwise a client pays less for the same bytes if it sends them in chunks.
func ContentLength(unknown int64) func(*http.Request) int64 {
	return func(r *http.Request) int64 {
		if r.ContentLength < 0 {
			return unknown
		}
		return r.ContentLength
	}
}

// CountOnly returns a Rule.Settle that counts only requests with one of these statuses, such as 401
// and 403 for a limit on failed logins. Every request spends its cost until its handler returns. So
// the limit also caps how many requests of one key run at a time: a limit of 10, after 4 failed
// logins, lets 6 logins of that key run at a time.
func CountOnly(statuses ...int) func(r *http.Request, status int, cost int64) int64 {
	counts := statusIn(statuses)
	return func(r *http.Request, status int, cost int64) int64 {
		if counts(r, status) {
			return cost
		}
		return 0
	}
}

// statusIn reports whether a response has one of the statuses.
func statusIn(statuses []int) func(*http.Request, int) bool {
	statuses = slices.Clone(statuses)
	return func(_ *http.Request, status int) bool { return slices.Contains(statuses, status) }
}

// RefundServerErrors is a Rule.Settle that counts no request with a status of 500 or higher.
func RefundServerErrors(_ *http.Request, status int, cost int64) int64 {
	if status >= http.StatusInternalServerError {
		return 0
	}
	return cost
}

// faultFunc records one fault of a Config.
type faultFunc func(format string, args ...any)

// when records a fault if there is one.
func (fault faultFunc) when(faulty bool, format string, args ...any) {
	if faulty {
		fault(format, args...)
	}
}

// checkPolicy records the faults of a rule's policy, and reports whether there is one.
func checkPolicy(at string, p *core.Policy, names map[string]bool, fault faultFunc) bool {
	if p == nil || p.Name() == "" {
		fault("%s is missing: core.NewPolicy must make it", at)
		return false
	}
	fault.when(names[p.Name()], "%s is named %q, like that of another rule", at, p.Name())
	names[p.Name()] = true
	return true
}

func invalidInName(r rune) bool {
	return !(r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' || r >= '0' && r <= '9' ||
		strings.ContainsRune("_.-", r))
}
