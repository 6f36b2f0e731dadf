package signal

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// limit names one limit of a response.
type limit struct {
	family *family
	name   string
}

// maxWindows bounds the limits that are read of one response.
const maxWindows = 32

// readHeaders reads the headers of all families.
func (r *response) readHeaders() {
	for name, values := range r.header {
		for i := range families {
			if rest, ok := strings.CutPrefix(name, families[i].prefix); ok {
				r.readHeader(&families[i], strings.ToLower(rest), values)
				break
			}
		}
	}
	r.readFields()
	for l, members := range r.limits {
		r.build(l, members)
	}
}

// readHeader reads the header of a member of a limit, which the rest of its name states.
func (r *response) readHeader(f *family, rest string, values []string) {
	member, name, _ := strings.Cut(rest, "-")
	if at := strings.LastIndexByte(rest, '-'); f.last {
		member = rest[at+1:]
		name = rest[:max(0, at)]
	}
	if name == "after" { // docs.discord.com/developers/topics/rate-limits: X-RateLimit-Reset-After
		name = ""
	}
	if slices.Contains(members, member) && name != overage {
		r.add(limit{f, name}, member, values...)
	}
}

// add keeps the values of a member of a limit.
func (r *response) add(l limit, member string, values ...string) {
	if r.limits == nil {
		r.limits = make(map[limit]map[string][]string)
	}
	if r.limits[l] == nil {
		if len(r.limits) == maxWindows {
			return
		}
		r.limits[l] = make(map[string][]string)
	}
	r.limits[l][member] = append(r.limits[l][member], values...)
}

// readFields reads the structured field RateLimit of draft-ietf-httpapi-ratelimit-headers: the names of
// -08 to -11 with their policies, and the members of -07.
func (r *response) readFields() {
	for _, part := range parts(r.header["Ratelimit"]) {
		value, parameters, _ := strings.Cut(part, ";")
		if member, of, ok := strings.Cut(value, "="); ok {
			r.add(limit{fieldFamily, ""}, strings.TrimSpace(member), of)
			continue
		}
		l := limit{fieldFamily, nameOf(value)}
		r.add(l, "remaining", parameter(parameters, "r"))
		if t := parameter(parameters, "t"); t != "" {
			r.add(l, "reset", t)
		}
	}
	for _, policy := range parts(r.header["Ratelimit-Policy"]) {
		value, parameters, _ := strings.Cut(policy, ";")
		if q := parameter(parameters, "q"); q != "" {
			r.add(limit{fieldFamily, nameOf(value)}, "limit", q+";"+parameters)
		}
	}
}

// nameOf returns what a string or a token of a structured field says, in lower case.
func nameOf(value string) string { return strings.ToLower(strings.Trim(value, ` "`)) }

// build reads the windows of a limit of these members, whose remaining tells what is left. If the lists of
// what is left and of the resets have equally many parts, as those of Brave Search do, the parts at one
// place are of one window.
func (r *response) build(l limit, members map[string][]string) {
	left, resets := parts(members["remaining"]), parts(members["reset"])
	limits := append(parts(members["limit"]), "")
	if slices.Contains(members["status"], rejected) { // Anthropic's unified limits, which subscriptions have
		left = []string{"0"}
	}
	name := l.family.apart + l.name
	if l.name == "" {
		name = r.resource()
	}
	short, _, _ := strings.Cut(l.name[strings.LastIndexByte(l.name, '-')+1:], "_")
	for i, value := range left {
		n, told := count(value)
		limit, known := count(limits[min(i, max(0, len(limits)-2))])
		of := resets
		if len(left) == len(resets) {
			of = resets[i : i+1]
		}
		w := Remaining{Name: name, Remaining: n, Limit: limit, Reset: r.longest(of, "")}
		w.Window = cmp.Or(windowOf(limit, append(parts(members["policy"]), limits...)), periods[short])
		w.Refills = l.family.refills && l.name != "" && w.Window == 0
		// A limit of 0 is none, and what was left before a reset that is past tells nothing.
		if told && (limit > 0 || !known) && (w.Reset > 0 || len(of) == 0) {
			r.windows = append(r.windows, w)
		}
	}
}

// windowOf returns the period of the policy that has this limit, or 0.
func windowOf(limit int64, policies []string) (window time.Duration) {
	for _, p := range policies {
		if q, ok := count(p); ok && q == limit {
			window = cmp.Or(window, period(p))
		}
	}
	return window
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
