package nethttp_test

import (
	"bytes"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/internal/gatetest"
)

// A form that was parsed outside the Guard keeps its uploads, even if a Cost reads the body.
func TestCostBodyKeepsUploads(t *testing.T) {
	guard := priced(t, nethttp.Rule{CostBody: 10, Cost: func(*http.Request) int64 { return 1 }})
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
	part := gatetest.Must(form.CreateFormFile("upload", "file"))(t)
	content := bytes.Repeat([]byte("x"), 20<<20)
	gatetest.Must(part.Write(content))(t)
	gatetest.NoError(t, form.Close())
	r := httptest.NewRequest(http.MethodPost, "/", &body)
	r.Header.Set("Content-Type", form.FormDataContentType())
	outer.ServeHTTP(httptest.NewRecorder(), r)
	if !bytes.Equal(uploaded, content) {
		t.Errorf("%d bytes uploaded, want %d", len(uploaded), len(content))
	}
}
