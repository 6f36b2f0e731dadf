package signal

import (
	"net/http"
	"slices"
	"strings"
	"time"
)

// readHeaders reads the headers of all families.
func (r *response) readHeaders(h http.Header) {
	for name, values := range h {
		r.readHeader(name, values)
	}
}

// readHeader reads one header if a family has it.
func (r *response) readHeader(name string, values []string) {
	for i := range families {
		f := &families[i]
		rest, ok := strings.CutPrefix(name, f.prefix)
		if !ok {
			continue
		}
		member, limit := f.split(strings.ToLower(rest))
		r.set(f.prefix, member, limit, values)
		return
	}
}

// split returns the member that the rest of a header's name states, and the name of the limit.
func (f *family) split(rest string) (member, limit string) {
	if !f.last {
		member, limit, _ = strings.Cut(rest, "-")
		if member == "reset" && limit == "after" { // docs.discord.com/developers/topics/rate-limits
			limit = ""
		}
		return member, limit
	}
	at := strings.LastIndexByte(rest, '-')
	if at < 0 {
		return rest, ""
	}
	return rest[at+1:], rest[:at]
}

// set sets a member of a limit to what the values of a header state.
func (r *response) set(family, member, limit string, values []string) {
	switch member {
	case "limit":
		if n, ok := first(values); ok {
			r.window(family, limit).Limit = n
		}
	case "remaining":
		if n, ok := least(values); ok {
			w := r.window(family, limit)
			w.Remaining.Remaining, w.told = n, true
		}
	case "reset":
		d := longest(values, func(v string) time.Duration { return moment(v, r.now()) })
		if d > 0 {
			w := r.window(family, limit)
			w.Reset = max(w.Reset, d)
		}
	case "status": // of Anthropic's unified limits, which subscriptions have
		if slices.ContainsFunc(values, func(v string) bool { return strings.EqualFold(v, "rejected") }) {
			r.window(family, limit).denied = true
		}
	}
}

// count reads a number of units. A list may have parameters, as in 100;w=60. A negative number says
// that the provider does not know.
func count(value string) (int64, bool) {
	value, _, _ = strings.Cut(value, ";")
	n, ok := number(value)
	if !ok || !(n >= 0 && n < maxCount) {
		return 0, false
	}
	return int64(n), true
}

// maxCount bounds a number of units, so that it is exact in Redis.
const maxCount = 1e15

// first returns the first count of a header: the drafts list the limits of all windows behind it.
func first(values []string) (int64, bool) {
	for _, v := range values {
		for part := range strings.SplitSeq(v, ",") {
			if n, ok := count(part); ok {
				return n, true
			}
		}
	}
	return 0, false
}

// least returns the smallest count of a header.
func least(values []string) (n int64, ok bool) {
	for _, v := range values {
		for part := range strings.SplitSeq(v, ",") {
			if c, read := count(part); read && (!ok || c < n) {
				n, ok = c, true
			}
		}
	}
	return n, ok
}
