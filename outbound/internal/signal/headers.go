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
		r.set(f, member, limit, values)
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
func (r *response) set(family *family, member, limit string, values []string) {
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
		w := r.window(family, limit)
		w.Reset = max(w.Reset, d)
		w.past = d == 0 && stated(values)
	case "status": // of Anthropic's unified limits, which subscriptions have
		if limit == overage {
			return
		}
		w := r.window(family, limit)
		w.judged = true
		w.denied = slices.ContainsFunc(beginning(values), func(v string) bool {
			return strings.EqualFold(v, "rejected")
		})
	case "bucket":
		r.route = r.route || limit == ""
	case "resource":
		r.resource = limit == "" && len(values) > 0 && values[0] != coreResource
	}
}

// stated reports whether the values of a header are numbers or moments, which begin with a digit.
func stated(values []string) bool {
	return len(values) > 0 && values[0] != "" && '0' <= values[0][0] && values[0][0] <= '9'
}

// readLists reads the lists of a limit without a name. If those of what is left and of the resets
// have equally many parts, as those of Brave Search do, the parts at one place are of one window.
// Otherwise the least and the longest count, and a policy tells the window.
func (r *response) readLists(h http.Header) {
	for i := range r.windows { // those that are added need no second look
		w := &r.windows[i]
		if w.Name != "" || !w.told || w.family.last {
			continue
		}
		left, resets := parts(h[w.family.prefix+"Remaining"]), parts(h[w.family.prefix+"Reset"])
		limits, policies := parts(h[w.family.prefix+"Limit"]), parts(h[w.family.prefix+"Policy"])
		if len(left) < 2 || len(left) != len(resets) {
			w.Window = max(w.Window, windowOf(w.Limit, policies, limits))
			continue
		}
		f := w.family
		*w = r.listed(f, 0, left, resets, limits, policies)
		for at := 1; at < min(len(left), maxWindows); at++ {
			r.add(r.listed(f, at, left, resets, limits, policies))
		}
	}
}

// listed returns the limit at one place of lists. A list of another length tells nothing of it, and
// a limit of 0 is none.
func (r *response) listed(f *family, at int, left, resets, limits, policies []string) (w window) {
	w.family, w.Unit = f, requests
	w.Remaining.Remaining, w.told = count(left[at])
	w.Reset = moment(resets[at], r.now())
	for _, list := range [][]string{policies, limits} {
		if len(list) != len(left) {
			continue
		}
		var limited bool
		w.Limit, limited = count(list[at])
		w.told = w.told && (!limited || w.Limit > 0)
		w.Window = max(w.Window, period(list[at]))
	}
	return w
}

// windowOf returns the period of the first of these policies that has a limit, or 0.
func windowOf(limit int64, lists ...[]string) time.Duration {
	for _, list := range lists {
		for _, part := range list {
			if n, ok := count(part); ok && n == limit && period(part) > 0 {
				return period(part)
			}
		}
	}
	return 0
}

// parts returns the parts of the lists that a header's values are, as far as they are read.
func parts(values []string) (all []string) {
	for _, v := range beginning(values) {
		all = append(all, strings.SplitN(v, ",", maxWindows+1)...)
	}
	return all[:min(len(all), maxWindows)]
}

// maxValue is the number of bytes that are read of a header.
const maxValue = 1 << 10

// beginning returns the part of a header's values that is read.
func beginning(values []string) []string {
	size := 0
	for i, v := range values {
		if i == maxWindows {
			return values[:i]
		}
		if size += len(v); size > maxValue {
			v = v[:len(v)-(size-maxValue)]
			whole := v[:max(0, strings.LastIndexByte(v, ','))]
			return append(values[:i:i], whole)
		}
	}
	return values
}

// period returns the period of a policy such as 100;w=60, or 0.
func period(policy string) time.Duration {
	for parameter := range strings.SplitSeq(policy, ";") {
		name, value, _ := strings.Cut(strings.TrimSpace(parameter), "=")
		if name != "w" && name != "window" { // developer.whoop.com/docs/developing/rate-limiting
			continue
		}
		if n, ok := count(value); ok {
			return time.Duration(min(n, maxPeriod)) * time.Second
		}
	}
	return 0
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
	for _, part := range parts(values) {
		if n, ok := count(part); ok {
			return n, true
		}
	}
	return 0, false
}

// least returns the smallest count of a header.
func least(values []string) (n int64, ok bool) {
	for _, part := range parts(values) {
		if c, read := count(part); read && (!ok || c < n) {
			n, ok = c, true
		}
	}
	return n, ok
}
