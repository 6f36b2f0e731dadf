package nethttp

import (
	"net/http"

	"github.com/headgate/headgate/core"
)

// Draft11 is the default Dialect. It sets RateLimit and RateLimit-Policy as
// draft-ietf-httpapi-ratelimit-headers-11 specifies them; drafts 08 to 11 are the same on the wire.
// Both are lists with a member for each policy. q is the limit, qu its unit unless it counts
// requests, and w the seconds that it is for; the w of a bucket is the time in which an empty one
// refills. r is what remains and t the seconds until more does.
type Draft11 struct {
	// Refusal is the body of a refusal. The zero value is problem details.
	Refusal Refusal
}

// Status returns the same status.
func (Draft11) Status(status int) int { return status }

// WriteRefusal answers with problem details or a line of text.
func (d Draft11) WriteRefusal(w http.ResponseWriter, r *http.Request, a *Admission) {
	d.Refusal.write(w, r, a)
}

// WriteHeaders states every policy. It adds to the lists of an outer Guard.
func (Draft11) WriteHeaders(h http.Header, a *Admission) {
	var rooms [2][128]byte
	policies, limits := rooms[0][:0], rooms[1][:0]
	for i := range a.decision.Len() {
		r := a.decision.At(i)
		ad := &a.charged[i].by.advert // a block has none: clients need not know how many strikes it takes
		policy := ad.memberFor(r, a.limitUnder(r.Policy))
		if policy == "" {
			continue
		}
		policies = appendMember(policies, policy)
		if !r.Known || r.Source == core.SourceLocal { // the share of one process is not the limit
			continue
		}
		limits = append(appendMember(limits, ad.name), ";r="...)
		limits = appendInteger(limits, r.Remaining)
		if r.NextAfter > 0 && r.NextAfter != core.Never {
			limits = appendInteger(append(limits, ";t="...), ceilSeconds(r.NextAfter))
		}
	}
	if a.capped {
		policies = appendMember(policies, a.capMembers())
	}
	if len(policies) == 0 {
		return
	}
	all := a.guard.policies
	if string(policies) != all {
		all = string(policies)
	}
	a.add(h, 0, "Ratelimit-Policy", all)
	if len(limits) > 0 {
		a.add(h, 1, "Ratelimit", string(limits))
	}
}

// add is h.Add for a canonical name. It keeps the only value of a name in slot i of the Admission,
// if that is free.
func (a *Admission) add(h http.Header, i int, name, value string) {
	if len(h[name]) > 0 || a.inlineHeaders[i] != "" {
		h[name] = append(h[name], value)
		return
	}
	a.inlineHeaders[i] = value
	h[name] = a.inlineHeaders[i : i+1 : i+1]
}

// capMembers returns the members of RateLimit-Policy for the caps.
func (a *Admission) capMembers() string {
	if a.ownCaps {
		return a.guard.cfg.Slot.advertise(a.caps)
	}
	return a.guard.caps
}
