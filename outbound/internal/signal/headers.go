package signal

import (
	"slices"
	"strings"
	"time"
)

// limit is one limit of a response: what the headers of its members have, such as "remaining".
type limit struct {
	family *family
	name   string
	of     map[string][]string
}

// maxWindows bounds the limits that are read of one response.
const maxWindows = 32

// readHeaders reads the headers of all families.
func (r *response) readHeaders() {
	for name, values := range r.header {
		for i := range families {
			if rest, ok := strings.CutPrefix(name, families[i].prefix); ok {
				r.set(&families[i], strings.ToLower(rest), values)
				break
			}
		}
	}
	r.readFields()
	for i := range r.limits {
		r.build(&r.limits[i])
	}
}

// set keeps the values of a header for the member of a limit that the rest of its name states.
func (r *response) set(f *family, rest string, values []string) {
	member, name, _ := strings.Cut(rest, "-")
	if at := strings.LastIndexByte(rest, '-'); f.last {
		member = rest[at+1:]
		name = rest[:max(0, at)]
	}
	if !slices.Contains(members, member) || name == overage {
		return
	}
	if name == "after" { // docs.discord.com/developers/topics/rate-limits: X-RateLimit-Reset-After
		name = ""
	}
	at := slices.IndexFunc(r.limits, func(l limit) bool { return l.family == f && l.name == name })
	if at < 0 {
		at = len(r.limits)
		if at == maxWindows {
			return
		}
		r.limits = append(r.limits, limit{f, name, make(map[string][]string)})
	}
	of := r.limits[at].of
	of[member] = append(of[member], values...)
}

// readFields reads the structured field RateLimit of draft-ietf-httpapi-ratelimit-headers: the names of
// -08 to -11 with their policies, and the members of -07.
func (r *response) readFields() {
	for _, part := range parts(r.header["Ratelimit"]) {
		value, _, _ := strings.Cut(part, ";")
		if member, of, ok := strings.Cut(value, "="); ok {
			r.set(fieldFamily, strings.TrimSpace(member), []string{of})
			continue
		}
		left, ok := count(parameter(part, "r"))
		w := Remaining{Name: nameOf(value), Remaining: left}
		w.Reset = moment(parameter(part, "t"), r.now())
		for _, policy := range parts(r.header["Ratelimit-Policy"]) {
			if value, _, _ := strings.Cut(policy, ";"); nameOf(value) == w.Name {
				w.Limit, _ = count(parameter(policy, "q"))
				w.Window = period(policy)
			}
		}
		if w.Name != "" && ok {
			r.windows = append(r.windows, w)
		}
	}
}

// nameOf returns what a string or a token of a structured field says, in lower case.
func nameOf(value string) string { return strings.ToLower(strings.Trim(value, ` "`)) }

// build reads a limit. If the lists of what is left and of the resets have equally many parts, as
// those of Brave Search do, the parts at one place are of one window.
func (r *response) build(l *limit) {
	n := 1
	if left := len(parts(l.of["remaining"])); left > 1 && left == len(parts(l.of["reset"])) {
		n = left
	}
	for i := range n {
		w, told := r.windowOf(l, func(member string) []string {
			list := l.of[member]
			if n > 1 {
				list = parts(list)
				list = list[min(i, len(list)):min(i+1, len(list))]
			}
			return list
		})
		if told {
			r.windows = append(r.windows, w)
		}
	}
}

// windowOf reads one window of a limit, whose members have these values, and reports whether they tell
// what is left.
func (r *response) windowOf(l *limit, of func(member string) []string) (w Remaining, told bool) {
	w.Name = l.family.apart + l.name
	if l.name == "" {
		w.Name = r.resource()
	}
	w.Remaining, told = least(parts(of("remaining")))
	if slices.Contains(of("status"), rejected) { // Anthropic's unified limits, which subscriptions have
		told = true
	}
	resets := of("reset")
	w.Reset = longest(resets, func(v string) time.Duration { return moment(v, r.now()) })
	if w.Reset == 0 && len(resets) > 0 {
		told = false // the reset is past, so what was left before it tells nothing
	}
	short, _, _ := strings.Cut(l.name[strings.LastIndexByte(l.name, '-')+1:], "_")
	w.Window = periods[short]
	limits := parts(of("limit"))
	if len(limits) > 0 {
		var known bool
		w.Limit, known = count(limits[0])
		told = told && (!known || w.Limit > 0) // a limit of 0 is none
	}
	for _, policy := range append(parts(of("policy")), limits...) {
		if q, ok := count(policy); ok && q == w.Limit && period(policy) > 0 {
			w.Window = period(policy)
			break
		}
	}
	w.Refills = l.family.refills && l.name != "" && w.Window == 0
	return w, told
}

// resource returns the name of a limit that has none in its headers.
func (r *response) resource() string {
	for _, header := range resourceHeaders {
		if v := r.header.Get(header); v != "" && v != coreResource {
			return strings.ToLower(v)
		}
	}
	return requests
}

// maxValue is the number of bytes that are read of a header.
const maxValue = 1 << 10

// parts returns the parts of the lists that a header's values are, as far as they are read.
func parts(values []string) (all []string) {
	size := 0
	for _, v := range values {
		if size += len(v); size > maxValue { // what is cut off may be a part of a number
			v = v[:len(v)-(size-maxValue)]
			v = v[:max(0, strings.LastIndexByte(v, ','))]
		}
		all = append(all, strings.SplitN(v, ",", maxWindows+1)...)
		if size > maxValue || len(all) > maxWindows {
			break
		}
	}
	return all[:min(len(all), maxWindows)]
}

// parameter returns a parameter of a part such as 100;w=60, or "".
func parameter(part, name string) string {
	for p := range strings.SplitSeq(part, ";") {
		if key, value, _ := strings.Cut(strings.TrimSpace(p), "="); key == name {
			return value
		}
	}
	return ""
}

// period returns the period of a policy such as 100;w=60, or 0.
func period(policy string) time.Duration {
	for _, name := range [...]string{"w", "window"} { // developer.whoop.com/docs/developing/rate-limiting
		if n, ok := count(parameter(policy, name)); ok {
			return time.Duration(min(n, maxPeriod)) * time.Second
		}
	}
	return 0
}

// maxPeriod is a year in seconds.
const maxPeriod = 366 * 24 * 3600

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

// least returns the smallest count of a list.
func least(list []string) (n int64, ok bool) {
	for _, part := range list {
		if c, read := count(part); read && (!ok || c < n) {
			n, ok = c, true
		}
	}
	return n, ok
}
