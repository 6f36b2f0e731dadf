package nethttp

import (
	"maps"
	"net/http"
	"reflect"
)

// KeepHeaders keeps the headers of the Guards in front of an httputil.ReverseProxy. It is for the proxy's
// ModifyResponse, which may call it beside what it does otherwise:
//
//	proxy.ModifyResponse = nethttp.KeepHeaders
//
// The proxy adds the headers of its server to those of the Guard, and deletes all headers when its server
// sends an informational response, such as 103. KeepHeaders deletes those of the server that the Guard sets,
// such as X-RateLimit-Limit, and sets the Guard's again if they are gone. RateLimit and RateLimit-Policy are
// lists, which keep the members of both. It returns nil.
func KeepHeaders(res *http.Response) error {
	if res.Request == nil { // an answer of the proxy's Transport
		return nil
	}
	a := AdmissionFromContext(res.Request.Context())
	if a == nil {
		return nil
	}
	if res.Header == nil {
		res.Header = make(http.Header)
	}
	all := make(http.Header)
	for name := range res.Header {
		all[name] = nil // a dialect deletes a Reset that must not stand beside its own limit
	}
	a.stateAll(all)
	for name, own := range all {
		stated := a.headers[name] != nil
		switch list := name == "Ratelimit" || name == "Ratelimit-Policy"; {
		case own == nil, list && stated:
			all[name] = res.Header[name]
		case list:
			all[name] = append(own, res.Header[name]...)
		case stated:
			delete(all, name)
		}
	}
	clear(res.Header)
	maps.Copy(res.Header, all)
	return nil
}

// same reports whether two headers are one, of the same response. A request that a handler makes out of
// its own has another one.
func same(a, b http.Header) bool {
	return reflect.ValueOf(a).UnsafePointer() == reflect.ValueOf(b).UnsafePointer()
}

// stateAll sets the headers that state the limits of the Guard, and of those around it, in the order in which
// they stand in the response.
func (a *Admission) stateAll(h http.Header) {
	if outer := a.outer(); outer != nil && same(outer.headers, a.headers) {
		outer.stateAll(h)
	}
	a.guard.cfg.Dialect.WriteHeaders(h, a)
}
