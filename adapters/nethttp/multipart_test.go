package nethttp_test

import (
	"bytes"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfunc"
)

// A form that was parsed outside the Guard keeps its uploads, even if a Cost reads the body.
func TestCostBodyKeepsUploads(t *testing.T) {
	gate := core.Must(core.NewMemory(core.Config{}))
	guard := core.Must(nethttp.NewGuard(nethttp.Config{Gate: gate, Rules: []nethttp.Rule{{
		Policy:   core.Must(core.NewPolicy(core.PolicyConfig{Name: "p", Algorithm: core.PerMinute(10)})),
		Key:      keyfunc.RemoteIP(),
		CostBody: 10,
		Cost:     func(*http.Request) int64 { return 1 },
	}}}))
	var uploaded []byte
	inner := guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		file, _, err := r.FormFile("upload")
		if err != nil {
			t.Error(err)
			return
		}
		defer file.Close()
		uploaded, _ = io.ReadAll(file)
	}))
	outer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := r.ParseMultipartForm(10); err != nil { // larger uploads are files
			t.Error(err)
		}
		inner.ServeHTTP(w, r)
	})
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	part, err := form.CreateFormFile("upload", "file")
	if err != nil {
		t.Fatal(err)
	}
	content := bytes.Repeat([]byte("x"), 20<<20)
	if _, err := part.Write(content); err != nil {
		t.Fatal(err)
	}
	if err := form.Close(); err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest(http.MethodPost, "/", &body)
	r.Header.Set("Content-Type", form.FormDataContentType())
	outer.ServeHTTP(httptest.NewRecorder(), r)
	if !bytes.Equal(uploaded, content) {
		t.Errorf("%d bytes uploaded, want %d", len(uploaded), len(content))
	}
}
