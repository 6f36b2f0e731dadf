package nethttp

import (
	"errors"
	"net/http"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/once"
)

// attempt is the work on the id of one request, and the answer of its handler while that is written.
type attempt struct {
	answer
	replay *Replay
	work   *once.Attempt
	id     core.Key
}

// earlier tells of a request with the same id that came before, for which a request is refused.
type earlier struct {
	busy    time.Duration // it runs, and may for that time
	handled bool          // it was handled
	differs bool          // it was another request
	answer  *answer       // that is repeated, or nil
	lost    loss          // why it is not
}

// errID is wrapped by the errors of a ReplayConfig.ID.
var errID = errors.New("nethttp: id")

// end remembers or forgets the id, given the status of the response.
func (t *attempt) end(x *Exchange, r *http.Request, status int) {
	defer func() { _ = t.work.Fail(r.Context()) }() // does nothing after Succeed
	succeeded := status < http.StatusBadRequest
	if t.replay.cfg.Succeeded != nil {
		succeeded = t.replay.cfg.Succeeded(r, status)
	}
	if !succeeded || x.failed.Load() {
		return
	}
	var kept []byte
	if t.replay.keeper != nil {
		if x.w == nil { // the adapter tells nothing of the response
			t.lose(lostUnknown)
		}
		t.status = status
		t.finish(x.headers, r)
		kept = t.replay.keeper.seal(&t.answer, t.id)
	}
	_ = t.work.SucceedWith(r.Context(), kept) // it is sent again
}
