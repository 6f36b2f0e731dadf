package requests_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/requests"
)

func TestShowTellsPathValues(t *testing.T) {
	values := map[string]string{"id": "7", "rest": "a/b", "*": "c/d"}
	tests := map[string]struct{ pattern, shown string }{
		"of net/http":           {"GET /users/{id}/{rest...}", "id rest"},
		"of chi, with a regexp": {"/users/{id:[0-9]{1,3}}/*", "id *"},
		"of gin and echo":       {"/users/:id/*rest", "id rest"},
		"after another name":    {"/:tenant/:id", "id"},
		"whose brace is open":   {"/users/{id", ""},
		"whose regexp is open":  {"/users/{id:[0-9]{1,3}/:rest", "id"},
		"of no name":            {"/users", ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r := httptest.NewRequest("GET", "/", nil)
			copied := r.WithContext(context.WithValue(r.Context(), t, name))
			copied.Pattern = test.pattern
			for name, value := range values {
				copied.SetPathValue(name, value)
			}
			requests.Show(r, copied)
			var shown []string
			for _, name := range []string{"id", "rest", "*"} {
				if r.PathValue(name) == values[name] {
					shown = append(shown, name)
				}
			}
			if shown := strings.Join(shown, " "); shown != test.shown {
				t.Errorf("the path values %q are shown, want %q", shown, test.shown)
			}
		})
	}
}

func TestShowTellsFormsAndTrailers(t *testing.T) {
	r := httptest.NewRequest("GET", "/", nil)
	copied := r.WithContext(context.WithValue(r.Context(), t, ""))
	copied.Form, copied.PostForm = url.Values{"a": {"1"}}, url.Values{"b": {"2"}}
	copied.Trailer = http.Header{"X-Sum": {"3"}}
	requests.Show(r, copied)
	if r.Form.Get("a") != "1" || r.PostForm.Get("b") != "2" || r.Trailer.Get("X-Sum") != "3" {
		t.Errorf("form %v, posted form %v and trailer %v", r.Form, r.PostForm, r.Trailer)
	}
}
