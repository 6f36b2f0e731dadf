package outbound

import (
	"net/http"
	"time"

	"github.com/headgate/headgate/outbound/internal/signal"
)

// Refusal is what a response says that refuses a request because of a limit.
type Refusal struct {
	// Reason is why the upstream refuses. ReasonNone says that the response refuses nothing.
	Reason Reason
	// Scope is whom the refusal concerns.
	Scope Scope
	// Wait is how long to wait before the next request, at most Config.Longest. Zero says that the
	// response does not tell, and Config.Backoff does.
	Wait time.Duration
}

// Reason is why an upstream refuses.
type Reason uint8

const (
	ReasonNone   Reason = iota // it does not
	ReasonSlow                 // the account is too fast
	ReasonLoaded               // the upstream has too much load
	ReasonSpent                // money or a quota is used up: nothing waits, and BusyError.Spent is set
)

// Scope is whom a refusal concerns.
type Scope uint8

const (
	ScopeModel      Scope = iota // the model of the request, or its account if it has no model
	ScopeCredential              // the account: see Config.Credential
	ScopeRoute                   // the route of Config.Route; without a route nothing cools
	ScopeRequest                 // the request alone: nothing cools, and waiting does not help
)

// read returns what a response tells. The head is the beginning of its body if its status may refuse.
func (t *Transport) read(res *http.Response, head []byte) signal.Signal {
	s := signal.Read(res.StatusCode, res.Header, head, time.Now())
	if t.cfg.Read != nil {
		if r, known := t.cfg.Read(res, head); known {
			s.Reason = signal.Reason(r.Reason)
			s.Scope = signal.Scope(min(r.Scope, ScopeRequest))
			s.Wait = max(0, r.Wait)
		}
	}
	return s
}
