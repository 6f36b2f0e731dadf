package admin_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/headgate/headgate/admin"
	"github.com/headgate/headgate/core"
)

func ExampleNew() {
	var live admin.Live
	gate := core.Must(core.NewMemory(core.Config{Observe: live.Observe}))
	defer func() { _ = gate.Close(context.Background()) }()
	api := core.Must(core.NewPolicy(core.PolicyConfig{Name: "api", Algorithm: core.PerMinute(100)}))
	page := core.Must(admin.New(admin.Config{
		Gate: gate, Policies: []*core.Policy{api}, Live: &live,
		Read: func(r *http.Request) (string, error) {
			if name, password, _ := r.BasicAuth(); password == "secret" { // of your own authentication
				return name, nil
			}
			return "", errors.New("unknown")
		},
	}))
	mux := http.NewServeMux()
	mux.Handle("/headgate/", http.StripPrefix("/headgate", page))
	for _, password := range []string{"guess", "secret"} {
		r := httptest.NewRequest("GET", "http://localhost/headgate/subject?key=acme", nil)
		r.SetBasicAuth("kim", password)
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		fmt.Println(w.Code)
	}
	// Output:
	// 403
	// 200
}
