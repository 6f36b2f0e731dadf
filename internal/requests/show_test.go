package requests_test

import (
	"context"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/requests"
)

func TestShowTellsPathValues(t *testing.T) {
	values := map[string]string{"id": "7", "rest": "a/b", "*": "c/d"}
	tests := map[string]struct{ pattern, shown string }{
		"of net/http":           {"GET /users/{id}/{rest...}", "id rest *"},
		"of chi, with a regexp": {"/users/{id:[0-9]{1,3}}/*", "id *"},
		"of gin and echo":       {"/users/:id/*rest", "id rest *"},
		"after another name":    {"/:tenant/:id", "id *"},
		"of no name":            {"/users", "*"},
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
