package nethttp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfunc"
)

// Config configures a Guard.
type Config struct {
	// Gate decides. It is required if there are Rules or Blocks.
	Gate *core.Gate
	// Rules are the limits, each under a policy of another name. At least one is required unless there
	// are Blocks or a Slot. Rules and Blocks are at most 16.
	Rules []Rule
	// Blocks keep clients that misbehave away for a while.
	Blocks []BlockRule
	// Slot caps how many requests run at a time. Nil caps nothing.
	Slot *Slot
	// Skip returns true for requests that go on as if there were no guard, such as those of a
	// monitor; see keyfunc.InNetworks and IsPreflight. Deny returns true for requests that are
	// refused with 403 and count against nothing. Nil is none. The order is Skip, Deny, Blocks, then
	// Rules and Slot.
	Skip, Deny func(*http.Request) bool
	// Plan returns the plan of a request's customer, such as the func of plans.Book.Plan. The Guard
	// calls it once for a request that a rule or a cap applies to, and every rule, cap and llm.Budget
	// reads that one value: the limit under a Policy by its name, and the limit, share and floor of a
	// Cap by its name. A key keeps its count when its limit changes, unless the new limit is another
	// Algorithm. If Plan is nil or returns nil, every policy and cap has its own limits.
	//
	// A request that waits keeps its plan. Only the limit of a cap for which it waits is that of the
	// newest request with the cap's key.
	//
	// An error refuses the request as one of a rule's Key does: with 400 if it wraps
	// keyfunc.ErrNoKey, and otherwise with 500. A limit that is not valid refuses it with 500.
	Plan func(*http.Request) (core.Plan, error)
	// Scope derives the outermost part of the keys of all rules and caps, such as the tenant. On a
	// Redis Cluster one script decides all rules of a scope. Nil adds no part.
	//
	// A request that a rule or a cap applies to is refused with 400 if it has no scope.
	Scope keyfunc.Func
	// MaxDelay is the longest time for which a request is delayed, instead of refused, until its
	// rules have room. Rules whose policy is a core.TokenBucket or a core.LeakyBucket queue
	// requests up to that long; the others admit a request immediately or refuse it. A client that
	// leaves in the meantime spends nothing. Zero delays no request.
	//
	// The http.Server.WriteTimeout runs while a request waits. So MaxDelay, Slot.MaxWait and
	// ReplayConfig.MaxWait together wait for at most three quarters of it, and the client is refused
	// in time. After a wait the Guard moves the write deadline, and the handler has the whole
	// WriteTimeout. Middleware that sets a write deadline of its own stands inside of the Guard.
	MaxDelay time.Duration
	// Background returns true for requests that can wait, such as those of a bulk job, which the Guard
	// lets wait for MaxDelay and for Slot.MaxWait as background work: all others go first. The context
	// of the handler is that of background work too. See core.WithBackground. Nil is what the context
	// of the request says.
	Background func(*http.Request) bool
	// BufferBody is the number of body bytes to read before a request waits, for MaxDelay or for
	// Slot.MaxWait. The handler reads these bytes from memory. Zero reads nothing.
	//
	// An HTTP/1 server notices that a client has left only once the body has been read. A longer
	// body is passed on unread, and its request keeps its place in the queue when the client
	// leaves. A body that breaks off is refused with 400, one that http.MaxBytesReader rejects with
	// 413. Neither spends anything.
	//
	// A client of HTTP/1 that expects 100 Continue sends its body only once it is asked for it. The
	// Guard asks it only if the request is not denied without the body. That takes another round trip.
	BufferBody int64
	// DenyAllStatus is the status for a request that a core.DenyAll denies, such as one for what the
	// customer's plan does not include. Zero means 403. A customer that could buy it may be told 402.
	DenyAllStatus int
	// Reconsider is called with a request that a rule denies, before anything is told of the denial.
	// If it returns true, the Guard derives the request's keys, costs and plan anew, and decides once
	// more. So it may change what they read of r, such as a value that its context points to. It may
	// change r in place. Nil reconsiders nothing.
	Reconsider func(r *http.Request, denied *Admission) bool
	// Dialect is how responses state the limits and refusals. Nil is Draft11.
	Dialect Dialect
	// LongestWait is the longest wait that a response states. Clients sleep for whatever they are
	// told, and some sleep for a millisecond if that is more than 24.8 days. A refusal with a longer
	// wait, or with one that never ends, has no Retry-After and no other header by which clients
	// sleep, and has X-Should-Retry: false. Admission.RetryAfter still returns the wait. Zero means a
	// day. core.Never states every wait that ends.
	LongestWait time.Duration
	// Refuse answers a request that is not admitted, in place of the Dialect's WriteRefusal. The
	// headers are set before, and Refuse may change them. Like WriteRefusal it is not called for a
	// ReplayConfig.HandledStatus below 300. Nil answers as the Dialect does.
	Refuse func(http.ResponseWriter, *http.Request, *Admission)
	// Observe is called with an *AdmissionEvent for every request, except those that Skip skips,
	// before the guard acts on its decision. The context is that of the request. It must be fast and
	// safe for concurrent use. Nil observes nothing.
	Observe func(context.Context, core.Event)
}

// check returns every fault of the configuration, or nil.
func (cfg *Config) check() error {
	var errs []error
	fault := faultFunc(func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("nethttp: Config."+format, args...))
	})
	cfg.checkCounts(fault)
	fault.when(cfg.MaxDelay < 0, "MaxDelay is %v: it must not be negative", cfg.MaxDelay)
	fault.when(cfg.BufferBody < 0, "BufferBody is %d: it must not be negative", cfg.BufferBody)
	fault.when(cfg.LongestWait < 0, "LongestWait is %v: it must not be negative", cfg.LongestWait)
	s := cfg.DenyAllStatus
	fault.when(s != 0 && (s < 400 || s > 499), "DenyAllStatus is %d: it must be 0 or between 400 and 499", s)
	names := make(map[string]bool)
	for i := range cfg.Rules {
		cfg.Rules[i].check(i, names, fault)
	}
	for i := range cfg.Blocks {
		cfg.Blocks[i].check(i, names, fault)
	}
	if cfg.Slot != nil {
		cfg.Slot.check(cfg.Gate, names, fault)
	}
	return errors.Join(errs...)
}

// checkCounts finds what is missing, or more than one decision may have.
func (cfg *Config) checkCounts(fault faultFunc) {
	limits := len(cfg.Rules) + len(cfg.Blocks)
	fault.when(cfg.Gate == nil && (limits > 0 || cfg.Slot == nil), "Gate is nil")
	fault.when(limits == 0 && cfg.Slot == nil, "Rules is empty, and there are no Blocks and no Slot")
	fault.when(limits > core.MaxCharges,
		"Rules and Blocks have %d entries: they must have at most %d", limits, core.MaxCharges)
}

// IsPreflight reports whether a request is a CORS preflight (Fetch standard, section 3.3.2). It is
// for Config.Skip, where the CORS middleware stands inside the guard or passes preflights on. Any
// client can send preflights, so the handler that answers them must be cheap.
func IsPreflight(r *http.Request) bool {
	return r.Method == http.MethodOptions && r.Header.Get("Origin") != "" &&
		r.Header.Get("Access-Control-Request-Method") != ""
}
