package llm

import (
	"bytes"
	"errors"
	"io"
	"mime"
	"net/http"
	"strings"

	"github.com/headgate/headgate/adapters/llm/internal/wire"
	"github.com/headgate/headgate/adapters/nethttp"
)

// begin reads a request and estimates it.
func (m *Meter) begin(r *http.Request, f wire.Format) (*exchange, *wire.Fault) {
	if !plain(r.Header) {
		return nil, invalid(http.StatusUnsupportedMediaType, "invalid_request",
			"The body must be UTF-8 without a Content-Encoding.")
	}
	body, fault := m.read(r)
	if fault != nil {
		return nil, fault
	}
	q, err := wire.ParseRequest(f, body)
	if err != nil {
		return nil, malformed(err)
	}
	x := &exchange{
		meter: m, request: q, body: body, outer: nethttp.AdmissionFromContext(r.Context()),
	}
	if x.models = m.modelsFor(q.Model); x.models == nil {
		return nil, invalid(http.StatusNotFound, "model_not_found", "The model is not known here.")
	}
	x.guess = m.guess(&q)
	if x.estimate, err = m.estimate(r, x, body); err != nil {
		return nil, malformed(err)
	}
	if q.HidesUsage() && !m.cfg.KeepBody {
		x.body, x.hides = wire.InjectUsage(body), true
	}
	return x, nil
}

// plain reports whether a server reads the bytes of a body as the Meter does.
func plain(h http.Header) bool {
	for _, e := range h.Values("Content-Encoding") {
		if !wire.IsIdentity(e) {
			return false
		}
	}
	for _, t := range h.Values("Content-Type") {
		_, parameters, _ := mime.ParseMediaType(t) // the server judges the rest
		switch strings.ToLower(parameters["charset"]) {
		case "", "utf-8", "us-ascii":
		default:
			return false
		}
	}
	return true
}

// invalid returns the fault of a request that the client must change.
func invalid(status int, code, message string) *wire.Fault {
	return &wire.Fault{Status: status, Type: "invalid_request_error", Code: code, Message: message}
}

// malformed returns the fault of a body, or of an estimate that failed.
func malformed(err error) *wire.Fault {
	if errors.Is(err, ErrRequest) {
		message := strings.TrimPrefix(err.Error(), "llm: ")
		return invalid(http.StatusBadRequest, "invalid_request",
			strings.ToUpper(message[:1])+message[1:]+".")
	}
	return &wire.Fault{
		Status: http.StatusInternalServerError, Type: "server_error", Code: "server_error",
		Message: "The request could not be estimated.",
	}
}

// read reads the whole body, if it is not too long.
func (m *Meter) read(r *http.Request) ([]byte, *wire.Fault) {
	long := func() *wire.Fault {
		return invalid(http.StatusRequestEntityTooLarge, "request_too_large",
			"The body is too long.")
	}
	if r.ContentLength > m.cfg.MaxBody {
		return nil, long()
	}
	if r.Body == nil {
		return nil, nil
	}
	var body bytes.Buffer
	if r.ContentLength > 0 { // the client need not send as much
		body.Grow(int(min(r.ContentLength, 1<<20)) + bytes.MinRead)
	}
	_, err := body.ReadFrom(io.LimitReader(r.Body, m.cfg.MaxBody+1))
	switch {
	case errors.As(err, new(*http.MaxBytesError)) || int64(body.Len()) > m.cfg.MaxBody:
		return nil, long()
	case err != nil:
		return nil, invalid(http.StatusBadRequest, "invalid_request", "The body breaks off.")
	}
	return body.Bytes(), nil
}
