package trips

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
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
	// Outage is an error that may pass: silence, a refused or broken connection, or a reply of a
	// Redis that starts, fails over, is full or is busy.
	Outage Class = iota
	// Overload is an error of this process: it has asked for more than it can send.
	Overload
	// Misconfigured is an error that no waiting mends.
	Misconfigured
	// Panicked is the error of a call that did not return.
	Panicked
)

// outages begin the replies of a Redis that may decide later.
var outages = []string{
	"LOADING", "CLUSTERDOWN", "READONLY", "MASTERDOWN", "NOREPLICAS", "TRYAGAIN", "MOVED", "ASK",
	"BUSY", "OOM",
	"MISCONF", "NOTBUSY", "UNBLOCKED", "ERR max number of clients", "max number of clients",
}

// Classify judges an error.
func Classify(err error) Class {
	var reply redis.Error
	switch {
	case errors.Is(err, ErrPanicked):
		return Panicked
	case errors.Is(err, ErrReply):
		return Misconfigured
	case errors.As(err, &reply) && !errors.Is(err, redis.TxFailedErr) && !passes(reply.Error()):
		return Misconfigured
	case errors.Is(err, ErrOverloaded), errors.Is(err, redis.ErrPoolTimeout):
		return Overload
	}
	return Outage
}

// answered reports whether a server has sent an answer.
func answered(err error) bool { return err == nil || errors.As(err, new(redis.Error)) }

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

// moves reports whether a server says that another has the key.
func moves(err error) bool {
	return redis.HasErrorPrefix(err, "MOVED") || redis.HasErrorPrefix(err, "ASK") ||
		redis.HasErrorPrefix(err, "TRYAGAIN")
}

func passes(reply string) bool {
	for _, prefix := range outages {
		// A script reports the errors of its calls behind words of its own.
		if strings.HasPrefix(reply, prefix) || strings.Contains(reply, "-"+prefix+" ") {
			return true
		}
	}
	return false
}

// errSplit is the error of a call that may run alone: its script wrote nothing because one call
// asked for a key that holds something else, or for one of another node while its slot moves; or it
// is an operation, which may run a second time.
type errSplit struct{ error }

// errFailed is the error of one operation of several.
var errFailed = errors.New("redisstore: the operation failed beside others")
