// Package requests shows the handlers around a middleware what the handlers inside it have written
// into their copy of a request.
package requests

import "net/http"

// Show makes r what a handler has made of a copy of r that WithContext made, except for the body and the
// context. It leaves r alone if the copy does not differ in what handlers write: another goroutine may read it.
//
// The server removes the files of the MultipartForm of its own request, so the form must reach that.
func Show(r, copied *http.Request) {
	if r.Pattern == copied.Pattern && r.Method == copied.Method && r.URL == copied.URL &&
		r.Host == copied.Host && r.RequestURI == copied.RequestURI && r.RemoteAddr == copied.RemoteAddr &&
		r.MultipartForm == copied.MultipartForm && (copied.Form == nil || r.Form != nil) &&
		(copied.PostForm == nil || r.PostForm != nil) && (copied.Trailer == nil || r.Trailer != nil) {
		return
	}
	shown := copied.WithContext(r.Context()) // with the path values, whose names a request does not tell
	shown.Body = r.Body
	*r = *shown
}

// ExpectTrailers has the server put trailers that a request did not announce into a map that its
// copies share. Without a map, the server makes one for its own request when the body has ended.
func ExpectTrailers(r *http.Request) {
	if r.Trailer == nil && r.ContentLength < 0 {
		r.Trailer = make(http.Header)
	}
}
