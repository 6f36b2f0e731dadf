package nethttp

import (
	"net/http"
	"time"
)

// writeTimeout is that of the server of a request that may have to wait. It runs while the request
// waits.
type writeTimeout struct {
	timeout time.Duration
	began   time.Time
}

// mayWait is called for a request that may have to wait, before any of its body is read: that takes as long
// as the client likes. Without a server that has a WriteTimeout, it does nothing.
func (x *Exchange) mayWait(r *http.Request) {
	server, _ := r.Context().Value(http.ServerContextKey).(*http.Server)
	if x.write == nil && server != nil && server.WriteTimeout > 0 {
		x.write = &writeTimeout{server.WriteTimeout, time.Now()}
	}
}

// atMost returns how long the request may wait of a wait that the configuration allows. All waits
// together leave a quarter of the WriteTimeout for a refusal. A stream of HTTP/2 is gone at its
// deadline, so extendDeadline must come before.
func (x *Exchange) atMost(wait time.Duration) time.Duration {
	if x.write == nil {
		return wait
	}
	left := x.write.timeout/4*3 - time.Since(x.write.began)
	return min(wait, max(0, left))
}

// extendDeadline gives the handler of a request that has waited, for its turn or for its body, the whole
// WriteTimeout of its http.Server. Without a wait it does nothing.
func (x *Exchange) extendDeadline(w http.ResponseWriter) {
	if x.write == nil || time.Since(x.write.began) < x.write.timeout/100 {
		return
	}
	// If w cannot move the deadline, a response may still come in time.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(x.write.timeout))
}
