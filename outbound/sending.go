package outbound

import (
	"context"
	"net/http/httptrace"
	"sync/atomic"
)

// sending is what is known of how far Base has come with a request.
type sending struct {
	hooks            httptrace.ClientTrace
	asked, connected atomic.Bool
}

// trace returns a context by which Base tells the sending of connections.
func (s *sending) trace(ctx context.Context) context.Context {
	s.hooks.GetConn = func(string) { s.asked.Store(true) }
	s.hooks.GotConn = func(httptrace.GotConnInfo) { s.connected.Store(true) }
	return httptrace.WithClientTrace(ctx, &s.hooks)
}

// nothing reports whether certainly nothing was sent: Base has asked for a connection, and had none,
// not even one that broke before it dialed again. The error of a dial does not tell that.
func (s *sending) nothing() bool { return s.asked.Load() && !s.connected.Load() }
