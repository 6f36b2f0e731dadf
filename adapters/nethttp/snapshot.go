package nethttp

import (
	"context"
	"net/http"

	"github.com/headgate/headgate/core"
)

// snapshot takes the snapshot by which the request is decided, if limits depend on the request. It
// lasts until the caller calls the function that it returns.
func (x *Exchange) snapshot(r *http.Request) (end func()) {
	if !x.guard.varies {
		return func() {}
	}
	x.deciding, end = core.WithSnapshot(r.Context())
	return end
}

// context returns the context in which the request is decided.
func (x *Exchange) context(r *http.Request) context.Context {
	if x.deciding != nil {
		return x.deciding
	}
	return r.Context()
}

// inSnapshot calls f with the request in the context in which it is decided. What f parses and
// reads of the request counts as if f had been given r.
func inSnapshot[V any](x *Exchange, r *http.Request, f func(*http.Request) (V, error)) (V, error) {
	if x.deciding == nil {
		return f(r)
	}
	own := r.WithContext(x.deciding)
	v, err := f(own)
	r.Body, r.Form, r.PostForm, r.MultipartForm = own.Body, own.Form, own.PostForm, own.MultipartForm
	return v, err
}
