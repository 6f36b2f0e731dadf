package outbound

import (
	"net/http"

	"github.com/headgate/headgate/core"
)

// Meter reads the model and the cost of requests, such as those to a language model. It must be
// safe for concurrent use.
type Meter interface {
	// Measure reads a request before it is decided on. The request is a copy that the Transport sends
	// on. Measure may replace its Body and GetBody, and whatever it reads of the body it must put
	// back. It returns nil for a request that has nothing to measure. An error fails the request.
	Measure(*http.Request) (Measure, error)
}

// Measure is what a Meter knows of one request. The Transport calls its methods one at a time.
//
// If Meter.Measure changes what a body says, its Measure must have the method
// Restore(*http.Request), which gives the request a body that says what it did before. A Pool calls
// Restore before another upstream measures the request.
type Measure interface {
	// Model returns the model, or "" if there is none.
	Model() string
	// Estimate returns what the request costs at most, or probably, in a unit.
	Estimate(core.Unit) int64
	// Response is called with each response before the caller gets it. It may replace the Body, to
	// read along. With Config.Retry there may be several, one after the other.
	Response(*http.Response)
	// Actual returns what the request has cost in a unit, when the body of the last response has ended
	// or was closed; that of a refusal may have ended before the caller reads it. It returns false if
	// that is not known. Then the estimate stays, and so it does if there was no response.
	Actual(core.Unit) (int64, bool)
}
