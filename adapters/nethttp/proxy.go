package nethttp

import "net/http"

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
	a := AdmissionFromContext(res.Request.Context())
	if a == nil {
		return nil
	}
	own := make(http.Header)
	a.stateAll(own)
	for name, values := range own {
		stated := a.headers[name] != nil
		switch {
		case name == "Ratelimit" || name == "Ratelimit-Policy":
			if !stated {
				res.Header[name] = append(values, res.Header[name]...)
			}
		case stated:
			res.Header.Del(name)
		default:
			res.Header[name] = values
		}
	}
	return nil
}

// stateAll sets the headers that state the limits of the Guard, and of those around it, in the order in which
// they stand in the response.
func (a *Admission) stateAll(h http.Header) {
	if outer := a.outer(); outer != nil {
		outer.stateAll(h)
	}
	a.guard.cfg.Dialect.WriteHeaders(h, a)
}
