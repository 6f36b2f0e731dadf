package admin

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"path"
	"strings"
)

// operatorKey is that of the name of a request's operator in its context.
type operatorKey struct{}

func operatorOf(ctx context.Context) string {
	name, _ := ctx.Value(operatorKey{}).(string)
	return name
}

// policy allows nothing but what the page brings itself.
const policy = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; " +
	"form-action 'self'; frame-ancestors 'none'; base-uri 'none'"

// secure sets the headers of every response.
func secure(h http.Header) {
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "same-origin") // without one, a browser sends forms with the Origin null
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
}

// errUnnamed is the error of an operator without a name: a func that reads a value that is not there
// must let nobody pass.
var errUnnamed = errors.New("admin: the operator has no name")

// who returns the operator of a request.
func who(r *http.Request, may func(*http.Request) (string, error)) (string, error) {
	if may == nil {
		return "", errors.New("admin: nobody may")
	}
	name, err := may(r)
	if err == nil && name == "" {
		err = errUnnamed
	}
	return name, err
}

// answersTo reports whether the page may be asked by the name of a host.
func (a *Admin) answersTo(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if _, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		return true // no site of another name leads here
	}
	return host == "localhost" || strings.HasSuffix(host, ".localhost") || a.hosts[host] || a.hosts["*"]
}

// reads lets only operators that may read pass.
func (a *Admin) reads(next http.HandlerFunc) http.Handler {
	return a.admits(a.cfg.Read, "You may not read this page.", next)
}

// writes lets only operators that may change something pass.
func (a *Admin) writes(next http.HandlerFunc) http.Handler {
	return a.reads(func(w http.ResponseWriter, r *http.Request) {
		a.admits(a.cfg.Write, "You may not change anything.", next).ServeHTTP(w, r)
	})
}

func (a *Admin) admits(
	may func(*http.Request) (string, error), refusal string, next http.HandlerFunc,
) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := a.foreign.Check(r); err != nil {
			http.Error(w, "This request comes from another site.", http.StatusForbidden)
			return
		}
		name, err := who(r, may)
		if err != nil {
			http.Error(w, refusal, http.StatusForbidden)
			return
		}
		next(w, r.WithContext(context.WithValue(r.Context(), operatorKey{}, name)))
	})
}

// mayWrite reports whether the operator of a request may change something.
func (a *Admin) mayWrite(r *http.Request) bool {
	_, err := who(r, a.cfg.Write)
	return err == nil
}

// missing answers a path without a page. The prefix without its slash leads to the page.
func (a *Admin) missing(w http.ResponseWriter, r *http.Request) {
	asked, _, _ := strings.Cut(r.RequestURI, "?")
	if r.URL.Path == "" && !strings.HasSuffix(asked, "/") {
		w.Header().Set("Location", path.Base(asked)+"/")
		w.WriteHeader(http.StatusTemporaryRedirect)
		return
	}
	http.Error(w, "There is no such page.", http.StatusNotFound)
}
