package llm

import (
	"errors"
	"mime"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/headgate/headgate/llm/internal/wire"
)

// begin reads a request and estimates it.
func (m *Meter) begin(w http.ResponseWriter, r *http.Request, t wire.Target) (x *call, fault *wire.Fault) {
	if !plain(r.Header) {
		return nil, invalid(http.StatusUnsupportedMediaType, "invalid_request",
			"The body must be UTF-8 without a Content-Encoding.")
	}
	body, fault := m.read(w, r, t.Format)
	if fault != nil {
		return nil, fault
	}
	defer func() {
		if x == nil { // also if Config.Estimate panics
			body.drop()
		}
	}()
	x, err := m.open(r, t, body.rest)
	if err != nil {
		return nil, malformed(err)
	}
	x.body = body
	x.injectUsage()
	return x, nil
}

// errUnknownModel is the error of a request for a model that has no entry.
var errUnknownModel = errors.New("llm: unknown model")

// open reads what a body asks for and estimates it.
func (m *Meter) open(r *http.Request, t wire.Target, body []byte) (*call, error) {
	q, err := wire.ParseRequest(t, r.Header, body)
	if err != nil {
		return nil, err
	}
	x := &call{request: q, pricing: m.pricing(q.Models, q.InPath)}
	if m.cfg.UnknownModel == UnknownModelRefuse && !x.knowsAll() {
		return nil, errUnknownModel
	}
	x.guess = x.guessOf(&q)
	x.estimate, err = m.estimate(r, x, body)
	return x, err
}

// injectUsage has the server state the usage of a stream, unless the client has.
func (x *call) injectUsage() {
	if x.request.HidesUsage() && !x.meter.cfg.KeepBody {
		x.change, x.hides = x.request.UsageChange(x.body.rest), true
		x.body.apply(x.change)
	}
	if x.meter.cfg.Downgrade != nil {
		x.whole = x.body.rest
	}
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
		case "", "utf-8", "utf8", "us-ascii":
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
	if err == errUnknownModel {
		return invalid(http.StatusNotFound, "model_not_found", "The model is not known here.")
	}
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

// overloaded returns the fault of a request for whose body there is no memory.
func overloaded(f *wire.Format) *wire.Fault {
	return &wire.Fault{
		Status: dialectOf(f, 0).Status(http.StatusServiceUnavailable),
		Type:   "server_error", Message: "Too many requests are being read.", RetryAfter: time.Second,
	}
}

// read reads the whole body, if it is not too long and comes fast enough.
func (m *Meter) read(w http.ResponseWriter, r *http.Request, f *wire.Format) (*heldBody, *wire.Fault) {
	long := func() *wire.Fault {
		return invalid(http.StatusRequestEntityTooLarge, "request_too_large",
			"The body is too long.")
	}
	if r.ContentLength > m.cfg.MaxBody {
		return nil, long()
	}
	body := &heldBody{of: &m.bodies}
	if r.Body == nil || r.Body == http.NoBody {
		return body, nil
	}
	body.key = m.bodyKey(r, f)
	from := paced(w, r)
	room, err := body.fill(from, r.ContentLength, m.cfg.MaxBody)
	var fault *wire.Fault
	switch {
	case !room:
		fault = overloaded(f)
	case errors.As(err, new(*http.MaxBytesError)) || int64(len(body.rest)) > m.cfg.MaxBody:
		fault = long()
	case errors.Is(err, os.ErrDeadlineExceeded):
		fault = invalid(http.StatusRequestTimeout, "request_timeout", "The body comes too slowly.")
	case err != nil:
		fault = invalid(http.StatusBadRequest, "invalid_request", "The body breaks off.")
	default:
		_ = from.server.SetReadDeadline(time.Time{}) // which net/http does for HTTP/1 alone
		return body, nil
	}
	body.drop()
	return nil, fault
}
