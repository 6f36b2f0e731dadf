package nethttp

import (
	"context"
	"net/http"

	"github.com/headgate/headgate/core"
)

// snapshot takes the snapshot by which the request is decided, if limits depend on the request. It
// lasts until the caller calls the function that it returns.
func (a *Admission) snapshot(r *http.Request) (end func()) {
	if !a.guard.varies {
		return func() {}
	}
	a.deciding, end = core.WithSnapshot(r.Context())
	return end
}

// context returns the context in which the request is decided.
func (a *Admission) context(r *http.Request) context.Context {
	if a.deciding != nil {
		return a.deciding
	}
	return r.Context()
}

// inSnapshot calls f with the request in the context in which it is decided. What f parses and
// reads of the request counts as if f had been given r.
func inSnapshot[V any](a *Admission, r *http.Request, f func(*http.Request) (V, error)) (V, error) {
	if a.deciding == nil {
		return f(r)
	}
	own := r.WithContext(a.deciding)
	v, err := f(own)
	r.Body, r.Form, r.PostForm, r.MultipartForm = own.Body, own.Form, own.PostForm, own.MultipartForm
	return v, err
}
