package nethttp

import (
	"cmp"
	"errors"
	"net/http"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/keyfunc"
)

// errLimit is wrapped by the error of a plan's limit that is not valid.
var errLimit = errors.New("nethttp: limit")

// refuse refuses the request with a status, or the one that the dialect has in its place.
func (x *Exchange) refuse(status int) {
	x.overloaded = status == http.StatusServiceUnavailable
	x.status = int32(x.guard.cfg.Dialect.Status(status))
}

// statusOf returns the status of a refusal, and notes whether policies deny the request. derived
// says that the charges and the slot could be derived from the request.
func (x *Exchange) statusOf(derived bool, err error) int {
	switch {
	case x.Full() != nil && x.fullCap().Global:
		return http.StatusServiceUnavailable
	case x.Full() != nil:
		return http.StatusTooManyRequests
	case errors.Is(err, errLimit):
		return http.StatusInternalServerError
	case errors.As(err, new(*http.MaxBytesError)):
		return http.StatusRequestEntityTooLarge
	case errors.Is(err, keyfunc.ErrNoKey), errors.Is(err, keyfunc.ErrAmbiguous),
		errors.Is(err, core.ErrKey), errors.Is(err, errBody):
		return http.StatusBadRequest
	case !derived, errors.Is(err, core.ErrCharge), errors.Is(err, semaphore.ErrRequest):
		return http.StatusInternalServerError
	case err != nil:
		return http.StatusServiceUnavailable
	}
	return x.denialStatus()
}

// denialStatus returns the status of a refusal by policies, or by the failure modes of some.
func (x *Exchange) denialStatus() int {
	kind, source := x.kind(), x.decision.Source
	if kind != deniesAll && (source == core.SourceClosed || source == core.SourceOverload) {
		return http.StatusServiceUnavailable // nobody need ask Redis about a limit that denies all
	}
	x.denied = kind
	switch kind {
	case deniesAll:
		return cmp.Or(x.guard.cfg.DenyAllStatus, http.StatusForbidden)
	case tooLarge:
		return http.StatusRequestEntityTooLarge
	}
	return http.StatusTooManyRequests
}
