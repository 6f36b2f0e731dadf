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

// showPathValues looks for names between the marks of patterns: {name}, {name...} and {name:regexp} as in
// http.ServeMux and chi, :name and *name as in gin and echo, and *, whose value has that name. Other words
// of a pattern are names of no value.
func showPathValues(r, copied *http.Request) {
	isMark := func(c rune) bool { return strings.ContainsRune("/{}:*", c) }
	for word := range strings.FieldsFuncSeq(copied.Pattern, isMark) {
		showPathValue(r, copied, strings.TrimSuffix(word, "..."))
	}
	showPathValue(r, copied, "*")
}

func showPathValue(r, copied *http.Request, name string) {
	if value := copied.PathValue(name); value != r.PathValue(name) {
		r.SetPathValue(name, value)
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
