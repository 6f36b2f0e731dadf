package nethttp

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
)

// errBody is wrapped by the errors of a body that cannot be read.
var errBody = errors.New("nethttp: the body breaks off")

// body is a request's body of which the first bytes have been read ahead.
type body struct {
	io.Reader
	io.Closer
}

func hasBody(r *http.Request) bool { return r.Body != nil && r.Body != http.NoBody }

// readAhead reads up to most bytes of the body and puts them back. It returns them.
func readAhead(r *http.Request, most int64) ([]byte, error) {
	head, err := io.ReadAll(io.LimitReader(r.Body, most))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errBody, err)
	}
	r.Body = body{io.MultiReader(bytes.NewReader(head), r.Body), r.Body}
	return head, nil
}

// bufferBody reads the whole body ahead if it has at most most bytes.
func bufferBody(r *http.Request, most int64) error {
	if most == 0 || !hasBody(r) || r.ContentLength > most {
		return nil
	}
	if most < math.MaxInt64 {
		most++ // the server knows that the body is whole once its end has been read
	}
	_, err := readAhead(r, most)
	return err
}

// costOfBody calls cost with a request whose body has at most most bytes.
func costOfBody(r *http.Request, cost func(*http.Request) int64, most int64) (int64, error) {
	head, err := readAhead(r, most)
	if err != nil {
		return 0, err
	}
	short := r.WithContext(r.Context())
	short.Body = io.NopCloser(bytes.NewReader(head))
	defer func() {
		// The server removes the files of r's form only.
		if short.MultipartForm != nil && short.MultipartForm != r.MultipartForm {
			_ = short.MultipartForm.RemoveAll()
		}
	}()
	return cost(short), nil
}
