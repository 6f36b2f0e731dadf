package trips

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"syscall"

	"github.com/redis/go-redis/v9"
)

// ErrOverloaded is the error of a call that this process could not send in time, or whose answer it
// could not read in time, although the server answers.
var ErrOverloaded = errors.New("redisstore: the server answers, and not this call in time")

// ErrOpen is the error of a call that was not sent, to a server that is known to fail.
var ErrOpen = errors.New("redisstore: the server failed just before and is not asked again yet")

// errSilent is the error of a call to a server that does not answer.
var errSilent = fmt.Errorf("no answer in time: %w", context.DeadlineExceeded)

// ErrUnanswered is the error of a call that was sent to a server before that was known to fail.
var ErrUnanswered = errors.New("redisstore: the server failed before it answered")

// ErrPanicked is the error of a round trip that did not return, because a hook of the client
// panicked.
var ErrPanicked = errors.New("redisstore: the call panicked")

// panicError is a panic in a hook of the client.
type panicError struct{ value any }

func (p *panicError) Error() string { return fmt.Sprint("the client panicked: ", p.value) }
func (p *panicError) Unwrap() error { return ErrPanicked }

// ErrReply is a reply that breaks the script's contract.
var ErrReply = errors.New("redisstore: the script's reply has a wrong shape")

// Class is what an error means.
type Class uint8

const (
	// Outage is an error that may pass: silence, a refused or broken connection, an answer that is
	// not Redis's, or any reply but those that are misconfigured. A proxy answers for a dead server
	// in words of its own, which nobody can list.
	Outage Class = iota
	// Overload is an error of this process: it has asked for more than it can send.
	Overload
	// Misconfigured is an error that no waiting mends.
	Misconfigured
	// Panicked is the error of a call that did not return.
	Panicked
)

// misconfigured begins the replies that no waiting mends. The list is closed: policies let their
// failure modes decide on every other reply.
var misconfigured = []string{
	"NOAUTH", "WRONGPASS", "NOPERM", "WRONGTYPE", "CROSSSLOT",
	"ERR AUTH ", "ERR Protocol error: unauthenticated", "ERR unknown command",
}

// Classify judges an error.
func Classify(err error) Class {
	var reply redis.Error
	switch {
	case errors.Is(err, ErrPanicked):
		return Panicked
	case errors.As(err, &reply) && isMisconfigured(reply.Error()):
		return Misconfigured
	case errors.Is(err, ErrOverloaded), errors.Is(err, redis.ErrPoolTimeout):
		return Overload
	}
	return Outage
}

// isMisconfigured judges a reply.
func isMisconfigured(reply string) bool {
	reply = causeIn(reply)
	if hasPrefix(reply, misconfigured) {
		return true
	}
	// The script's own errors and what its commands may not do. A script that an operator has killed
	// may run again.
	return strings.HasPrefix(reply, "ERR ") && strings.Contains(reply, "script") &&
		!strings.Contains(reply, "Script killed by user")
}

// causeIn returns the error of a script's command, which Redis 6 reports behind words of its own.
func causeIn(reply string) string {
	if strings.HasPrefix(reply, "ERR Error running script") {
		if _, cause, ok := strings.Cut(reply, ": -"); ok && !strings.HasPrefix(cause, "ERR ") {
			return cause
		}
	}
	return reply
}

func hasPrefix(reply string, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(reply, p) })
}

// unrun begins the replies of a server that has run no script, or none of its writes.
var unrun = []string{
	"NOAUTH", "WRONGPASS", "NOPERM", "ERR AUTH ", "ERR Protocol error: unauthenticated",
	"ERR unknown command", "ERR max number of clients", "LOADING", "MASTERDOWN", "CLUSTERDOWN", "BUSY ",
	"READONLY", "NOREPLICAS", "MISCONF", "OOM", "MOVED ", "ASK ", "TRYAGAIN",
}

// wroteNothing reports whether an error tells that a call has changed nothing. What a script may not
// do, and the words of proxies, do not tell that.
func wroteNothing(err error) bool {
	var reply redis.Error
	if errors.As(err, &reply) {
		text := causeIn(reply.Error())
		return hasPrefix(text, unrun) && !(strings.HasPrefix(text, "NOPERM") && strings.Contains(text, "script"))
	}
	var network *net.OpError
	return errors.As(err, &network) && network.Op == "dial"
}

// answered reports whether a server has sent an answer.
func answered(err error) bool {
	return err == nil || errors.As(err, new(redis.Error)) || errors.Is(err, ErrReply)
}

// hungUp reports whether a server has closed the connection. One that is full does so behind its
// refusal, which go-redis takes for that of a handshake that the server does not know.
func hungUp(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// timedOut reports whether an error means that the server did not answer in time.
func timedOut(err error) bool {
	var network net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &network) && network.Timeout()
}

// elsewhere reports whether a server says that another has the key, or none.
func elsewhere(err error) bool {
	return redis.HasErrorPrefix(err, "MOVED") || redis.HasErrorPrefix(err, "ASK") ||
		redis.HasErrorPrefix(err, "TRYAGAIN") || redis.HasErrorPrefix(err, "CLUSTERDOWN Hash slot")
}

// errSplit is the error of a call that may run alone: its script wrote nothing because one call
// asked for a key that holds something else, or for one of another node while its slot moves; or it
// is an operation, which may run a second time.
type errSplit struct{ error }

// errFailed is the error of one operation of several.
var errFailed = errors.New("redisstore: the operation failed beside others")
