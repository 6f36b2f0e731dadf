// Package requests shows the handlers around a middleware what the handlers inside it have written
// into their copy of a request.
package requests

import (
	"net/http"
	"strings"
)

// Show writes into r what a handler has written into a copy of r that WithContext made. It leaves the
// body and the context alone. It writes only what differs: another goroutine may read the rest.
//
// The server removes the files of the MultipartForm of its own request, so the form must reach that.
// A request does not tell the names of its path values. Show knows those in its pattern.
func Show(r, copied *http.Request) {
	if r == copied {
		return
	}
	if copied.Pattern != "" {
		showPathValues(r, copied)
	}
	show(&r.Pattern, copied.Pattern)
	show(&r.Method, copied.Method)
	show(&r.URL, copied.URL)
	show(&r.Host, copied.Host)
	show(&r.RequestURI, copied.RequestURI)
	show(&r.RemoteAddr, copied.RemoteAddr)
	show(&r.MultipartForm, copied.MultipartForm)
	if r.Form == nil && copied.Form != nil {
		r.Form = copied.Form
	}
	if r.PostForm == nil && copied.PostForm != nil {
		r.PostForm = copied.PostForm
	}
	if r.Trailer == nil && copied.Trailer != nil {
		r.Trailer = copied.Trailer
	}
}

func showPathValues(r, copied *http.Request) {
	for name := range names(copied.Pattern) {
		if value := copied.PathValue(name); value != r.PathValue(name) {
			r.SetPathValue(name, value)
		}
	}
}

func show[T comparable](to *T, value T) {
	if *to != value {
		*to = value
	}
}

// ExpectTrailers has the server put trailers that a request did not announce into a map that its
// copies share. Without a map, the server makes one for its own request when the body has ended.
func ExpectTrailers(r *http.Request) {
	if r.Trailer == nil && r.ContentLength < 0 {
		r.Trailer = make(http.Header)
	}
}

// names yields the names of the path values of a pattern: {name}, {name...} and {name:regexp} as in
// http.ServeMux and chi, :name and *name as in gin and echo, and *, whose value has that name.
func names(pattern string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for rest := pattern; ; {
			i := strings.IndexAny(rest, "{:*")
			if i < 0 {
				return
			}
			name, inner := "", rest[i+1:]
			switch rest[i] {
			case '{':
				end := strings.IndexAny(inner, ":}")
				if end < 0 {
					return
				}
				name, rest = strings.TrimSuffix(inner[:end], "..."), afterBrace(inner)
			default:
				name, rest, _ = strings.Cut(inner, "/")
				if rest = "/" + rest; name == "" {
					name = "*"
				}
			}
			if !yield(name) {
				return
			}
		}
	}
}

// afterBrace returns what follows the brace that closes a name. A regexp may have braces too.
func afterBrace(s string) string {
	depth := 1
	for i := range len(s) {
		switch s[i] {
		case '{':
			depth++
		case '}':
			if depth--; depth == 0 {
				return s[i+1:]
			}
		}
	}
	return ""
}
