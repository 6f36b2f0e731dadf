package nethttp

import (
	"net/http"
	"reflect"
	"slices"
	"strings"
)

// keptHeader is a header that stood before the handler.
type keptHeader struct {
	name   string
	values []string
}

// keepHeaders remembers the headers that stand in h, for restoreHeaders. Later calls do nothing.
func (x *Exchange) keepHeaders(h http.Header) {
	if x.kept != nil || x.skipped {
		return
	}
	x.kept = make([]keptHeader, 0, len(h))
	for name, values := range h {
		x.kept = append(x.kept, keptHeader{name, slices.Clip(values)})
	}
}

// restoreHeaders mends in h what a reverse proxy in the handler does to the headers that were kept,
// before a header with this status is written:
//
//   - httputil.ReverseProxy deletes them all when its server sends an informational response. Those
//     that are missing in the final header are set again.
//   - It adds the limits of its server to those that the Guard states under the same names, such as
//     X-RateLimit-Limit or RateLimit-Limit. These are deleted. RateLimit and RateLimit-Policy are
//     lists, which keep the members of both.
//
// A handler may change or delete headers otherwise.
func (x *Exchange) restoreHeaders(h http.Header, status int) {
	if len(x.kept) == 0 {
		return
	}
	if outer := x.outer(); outer != nil && same(outer.headers, h) {
		outer.covered.Store(true) // its headers are among those that x keeps
	}
	switch {
	case x.covered.Load():
	case informational(status):
		x.informed = true
	default:
		x.restore(h)
		x.informed = false
	}
}

// same reports whether two headers are one, of the same response. A request that a handler makes out of
// its own has another one.
func same(a, b http.Header) bool {
	return reflect.ValueOf(a).UnsafePointer() == reflect.ValueOf(b).UnsafePointer()
}

// informational reports whether another header follows one with this status. After 101 none does.
func informational(status int) bool {
	return status < http.StatusOK && status != http.StatusSwitchingProtocols
}

// restore sets in h what a reverse proxy has deleted, and deletes what it has added to the Guard's
// limits.
func (x *Exchange) restore(h http.Header) {
	for _, k := range x.kept {
		now := h[k.name]
		if !x.informed && len(now) <= len(k.values) {
			continue // nobody has added to it
		}
		stands := len(now) >= len(k.values) && slices.Equal(now[:len(k.values)], k.values)
		switch {
		case !x.informed:
			if stands && statesLimit(k.name) {
				h[k.name] = k.values
			}
		case now == nil, statesLimit(k.name):
			h[k.name] = k.values
		case !stands && isList(k.name):
			h[k.name] = slices.Concat(k.values, now)
		}
	}
}

// statesLimit reports whether a header has one value that states a limit. Servers write the words of
// its name together or apart, and with or without a prefix.
func statesLimit(name string) bool {
	return !isList(name) && (strings.Contains(name, "Ratelimit-") || strings.Contains(name, "Rate-Limit-"))
}

// isList reports whether a header of limits is a list of policies.
func isList(name string) bool { return name == "Ratelimit" || name == "Ratelimit-Policy" }
