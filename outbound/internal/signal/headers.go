package signal

import (
	"slices"
	"strings"
	"time"
)

// limit is one limit of a response, as its headers state it.
type limit struct {
	family *family
	name   string
	// Each is what the header of a member has, such as X-RateLimit-Remaining-Tokens.
	limits, left, resets, policies, status []string
}

// window is one limit of a response as it was read.
type window struct {
	Remaining
	apart  bool // it is of some requests only, beside those of all
	told   bool // Remaining is told, and its reset is not past
	judged bool // the provider says whether this limit refuses
	denied bool // it does
}

// empty reports whether a limit has nothing left.
func (w *window) empty() bool { return w.denied || w.told && w.Remaining.Remaining == 0 }

const (
	longWindow = 24 * time.Hour
	// maxWindows bounds the limits that are read of one response.
	maxWindows = 32
)

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
	for i := range r.stated {
		r.build(&r.stated[i])
	}
}

// set keeps the values of a header for the member of a limit that the rest of its name states.
func (r *response) set(f *family, rest string, values []string) {
	member, name, _ := strings.Cut(rest, "-")
	if at := strings.LastIndexByte(rest, '-'); f.last {
		member, name = rest[at+1:], rest[:max(0, at)]
	}
	if name == "after" { // docs.discord.com/developers/topics/rate-limits: X-RateLimit-Reset-After
		name = ""
	}
	switch member {
	case "limit":
		r.limit(f, name).limits = values
	case "remaining":
		r.limit(f, name).left = values
	case "reset":
		l := r.limit(f, name)
		l.resets = append(l.resets, values...)
	case "policy":
		r.limit(f, name).policies = values
	case "status": // of Anthropic's unified limits, which subscriptions have
		if name != overage {
			r.limit(f, name).status = values
		}
	}
}

// limit returns the limit of this name. With too many of them it returns one that nobody reads.
func (r *response) limit(f *family, name string) *limit {
	for i := range r.stated {
		if l := &r.stated[i]; l.family == f && l.name == name {
			return l
		}
	}
	if len(r.stated) == maxWindows {
		return new(limit)
	}
	r.stated = append(r.stated, limit{family: f, name: name})
	return &r.stated[len(r.stated)-1]
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
		w := window{Remaining: Remaining{Name: nameOf(value)}}
		if w.Remaining.Remaining, w.told = count(parameter(part, "r")); w.Name == "" || !w.told {
			continue
		}
		w.Reset = moment(parameter(part, "t"), r.now())
		for _, policy := range parts(r.header["Ratelimit-Policy"]) {
			if value, _, _ := strings.Cut(policy, ";"); nameOf(value) == w.Name {
				w.Limit, _ = count(parameter(policy, "q"))
				w.Window = period(policy)
			}
		}
		r.windows = append(r.windows, w)
	}
}

// nameOf returns what a string or a token of a structured field says, in lower case, or "".
func nameOf(value string) string {
	value = strings.ToLower(strings.TrimSpace(value))
	name := strings.Trim(value, `"`)
	if n := len(value) - len(name); n != 0 && n != 2 {
		return "" // it is broken
	}
	return name
}

// build reads a limit. If the lists of what is left and of the resets have equally many parts, as
// those of Brave Search do, the parts at one place are of one window.
func (r *response) build(l *limit) {
	left, resets, limits, policies := parts(l.left), l.resets, parts(l.limits), parts(l.policies)
	n := 1
	if all := parts(resets); len(left) > 1 && len(left) == len(all) {
		n, resets = len(left), all
	}
	for i := range n {
		at := func(list []string) []string {
			switch {
			case n == 1:
				return list
			case len(list) == n:
				return list[i : i+1]
			}
			return nil
		}
		r.windows = append(r.windows, r.windowOf(l, at(left), at(resets), at(limits), at(policies)))
	}
}

// windowOf reads one window of a limit.
func (r *response) windowOf(l *limit, left, resets, limits, policies []string) (w window) {
	w.Name, w.apart = l.name, l.family.apart != ""
	if name := r.resource(); l.name == "" {
		w.Name, w.apart = name, name != requests
	} else {
		w.Name = l.family.apart + w.Name
	}
	w.Remaining.Remaining, w.told = least(left)
	w.Reset = longest(resets, func(v string) time.Duration { return moment(v, r.now()) })
	if w.Reset == 0 && len(resets) > 0 && startsWithDigit(resets[0]) {
		w.told = false // the reset is past, so what was left before it tells nothing
	}
	if len(limits) > 0 {
		var limited bool
		w.Limit, limited = count(limits[0])
		w.told = w.told && (!limited || w.Limit > 0) // a limit of 0 is none
	}
	short, _, _ := strings.Cut(l.name[strings.LastIndexByte(l.name, '-')+1:], "_")
	w.Window = periods[short]
	for _, policy := range slices.Concat(policies, limits) {
		if q, ok := count(policy); ok && q == w.Limit && period(policy) > 0 {
			w.Window = period(policy)
			break
		}
	}
	w.Refills = l.family.refills && l.name != "" && w.Window == 0
	w.judged = len(l.status) > 0
	w.denied = slices.ContainsFunc(l.status, func(v string) bool { return strings.EqualFold(v, "rejected") })
	return w
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

// startsWithDigit reports whether a value is a number or a moment.
func startsWithDigit(v string) bool { return v != "" && '0' <= v[0] && v[0] <= '9' }

// remaining returns the limits that tell how much is left.
func (r *response) remaining() (all []Remaining) {
	for _, w := range r.windows {
		if w.told {
			all = append(all, w.Remaining)
		}
	}
	return all
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
