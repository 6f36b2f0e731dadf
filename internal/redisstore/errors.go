package redisstore

import (
	"context"
	"errors"
	"net"
	"strings"
	"syscall"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/request"
)

// ErrPeriod is the error of a server whose clock went to another period of a calendar each time it
// was asked.
var ErrPeriod = errors.New("redisstore: Redis's clock leaps from period to period")

// ErrReply is a reply that breaks the script's contract.
var ErrReply = errors.New("redisstore: the script's reply has a wrong shape")

// Class says what an error of a Store means.
type Class uint8

const (
	// Outage is an error that may pass: silence, a refused or broken connection, or a reply of a
	// Redis that starts, fails over, is full or is busy.
	Outage Class = iota
	// Overload is an error of this process: it has asked for more than it can send.
	Overload
	// Answered is an error that says nothing against the server.
	Answered
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
	case errors.Is(err, ErrPeriod), errors.Is(err, request.ErrPeriod):
		return Answered
	case errors.Is(err, ErrReply):
		return Misconfigured
	case errors.As(err, &reply) && !errors.Is(err, redis.TxFailedErr) && !passes(reply.Error()):
		return Misconfigured
	case errors.Is(err, ErrOverloaded), errors.Is(err, redis.ErrPoolTimeout):
		return Overload
	}
	return Outage
}

// timedOut reports whether an error is that of a server that did not answer in time.
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

// errSplit is the error of a call that may run alone: its script wrote nothing because one call asked
// for a key that holds something else, or for one of another node while its slot moves; or it is an
// operation on leases, which may run a second time.
type errSplit struct{ error }

// errFailed is the error of one operation of several.
var errFailed = errors.New("redisstore: the operation failed beside others")

func split(err error, calls []*call) error {
	if len(calls) == 1 {
		return err
	}
	text := err.Error()
	unreadable := strings.HasPrefix(text, "ERR ") && strings.Contains(text, "script")
	refused := calls[0].isOwn() && (Classify(err) == Misconfigured || strings.Contains(text, "OOM "))
	if redis.HasErrorPrefix(err, "WRONGTYPE") || redis.HasErrorPrefix(err, "TRYAGAIN") ||
		unreadable || refused {
		return errSplit{err}
	}
	return err
}

const permissions = "the user lacks a permission: a Gate needs " +
	"+ping +eval +evalsha +time +get +mget +set +del +getrange +setrange +pexpire on its keys, " +
	"and more for semaphores, filters, holds and quotas"

// causes explains the replies of Redis by what is in them.
var causes = []struct{ reply, words string }{
	{"NOAUTH", "Redis wants a password, and the client has none"},
	{"unauthenticated", "Redis wants a password, and the client has none or an old one"},
	{"WRONGPASS", "Redis does not accept the user name or password"},
	{"NOPERM", permissions},
	{"The user executing the script", permissions},
	{"WRONGTYPE", "a key of the Gate holds something else: choose another Config.Prefix"},
	{"READONLY", "the server is a replica: the client must connect to the primary"},
	{"LOADING", "Redis is loading its data"},
	{"MASTERDOWN", "the server is a replica that has lost its primary"},
	{"CLUSTERDOWN", "the cluster does not serve all slots"},
	{"OOM", "Redis is out of memory (maxmemory)"},
	{"NOREPLICAS", "too few replicas are connected (min-replicas-to-write)"},
	{"MISCONF", "Redis cannot save to disk and rejects writes"},
	{"CROSSSLOT", "the server is part of a cluster, but Config.Topology is OneServer"},
}

// Explain says in words what an error of Redis means.
func Explain(err error) string {
	var reply redis.Error
	switch {
	case errors.As(err, &reply):
		for _, c := range causes {
			if strings.Contains(reply.Error(), c.reply) {
				return c.words
			}
		}
		return "Redis rejects the command"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "nothing listens at the address"
	case timedOut(err):
		return "Redis does not answer in time"
	case errors.Is(err, redis.ErrClosed):
		return "the client is closed"
	}
	return "Redis cannot be reached"
}
