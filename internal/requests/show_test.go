package requests_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/requests"
)

func TestShowTellsPathValues(t *testing.T) {
	for _, pattern := range []string{"GET /users/{id}/{rest...}", "/users/{id:[0-9]{1,3}}/*", "/users/:id/*rest", "/users"} {
		r := httptest.NewRequest("GET", "/", nil)
		copied := r.WithContext(context.WithValue(r.Context(), t, pattern))
		copied.Pattern, copied.Body = pattern, nil
		for _, name := range []string{"id", "rest", "*"} {
			copied.SetPathValue(name, "the "+name)
		}
		requests.Show(r, copied)
		for _, name := range []string{"id", "rest", "*"} {
			gatetest.Equal(t, r.PathValue(name), "the "+name, "%s: path value %s", pattern, name)
		}
		if r.Pattern != pattern || r.Body == nil || r.Context().Value(t) != nil {
			t.Errorf("%s: %+v", pattern, r)
		}
	}
}

// A request of which another goroutine reads stays as it is unless the copy differs.
func TestShowLeavesSameRequestAlone(t *testing.T) {
	for changed, change := range map[bool]func(*http.Request){
		false: func(*http.Request) {}, true: func(c *http.Request) { c.PostForm = url.Values{} },
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.Form = url.Values{"a": {"b"}}
		copied := r.WithContext(t.Context())
		copied.Proto = "seen"
		change(copied)
		requests.Show(r, copied)
		gatetest.Equal(t, r.Proto == "seen", changed, "shown")
	}
}
