package outbound

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/headgate/headgate/core"
)

// Config configures a Transport.
type Config struct {
	// Base sends the requests that are admitted. Nil is http.DefaultTransport.
	Base http.RoundTripper
	// Gate decides. It is required, and one on Redis shares the limits and cooldowns with all
	// replicas.
	Gate *core.Gate
	// Rules are the limits, each under a policy of another name: at most 13, where one with a Limit
	// counts twice. Without any, the Transport obeys cooldowns only.
	Rules []Rule
	// Slot caps how many requests run at a time. Nil caps nothing.
	Slot *Slot
	// Credential returns the credential of a request, or whatever else names its account at the
	// host, for ByCredential, ByModel and cooldowns. Only a hash of it is kept. An empty value is that of
	// a request without credentials: a sender of webhooks returns it, so that the Retry-After of a host
	// holds for all subscribers. Use it for a header or a signature that the default does not
	// know: otherwise all accounts of the host share their cooldowns. It must be safe for concurrent
	// use. Nil is Authorization, X-Api-Key, Api-Key, X-Goog-Api-Key, and key in the query.
	Credential func(*http.Request) string
	// Route names the part of the upstream that a request needs, such as its search, for refusals of
	// ScopeRoute. An empty name is no part. It must not read the body. Nil knows no parts.
	Route func(*http.Request) string
	// Read reads what a response says, before the Transport does: a refusal, or one with ReasonNone
	// for none. If it returns false, the Transport reads the response itself. The head is the first
	// 64 KiB of the body, without gzip, of a response with a status of 400 or more. It is nil for
	// others, and if the body does not come within 250 ms. What Read takes of the Body it must put
	// back. It must be safe for concurrent use. Nil reads nothing.
	Read func(res *http.Response, head []byte) (Refusal, bool)
	// Longest bounds the cooldown of a refusal that tells a longer wait. Zero means 24 h. Above that it
	// holds for refusals of Read alone: the Transport itself reads no longer wait than 24 h.
	Longest time.Duration
	// Meter reads the model and the cost of requests. Nil measures nothing.
	Meter Meter
	// MaxWait bounds how long a request waits, all its retries together. The deadline of its context
	// bounds that too. A request that would wait longer fails immediately with a BusyError. Zero waits
	// for nothing. It is at most 10 years. For half of the time, a request with a context of
	// core.WithBackground lets all others go first.
	MaxWait time.Duration
	// Backoff is how long a refusal cools that tells no wait.
	Backoff Backoff
	// Retry sends refused requests again. The zero value sends none again.
	Retry Retry
	// Observe is called with a *RequestEvent for every request, with a *WaitEvent when one begins to
	// wait, with a *CooldownEvent for every refusal that begins a cooldown, and with a *LowerEvent
	// when a response lowers what is left under a rule. It must be fast and safe for concurrent use.
	// Nil observes nothing.
	Observe func(context.Context, core.Event)
}

// Backoff is how long a key cools after a refusal that tells no wait. The next one after a response
// below 500 that is no refusal lasts First again, and so does one that comes Most after the end of
// the last. Refusals of requests that were sent before a cooldown do not count.
type Backoff struct {
	// First is the first cooldown. Zero means 1 s.
	First time.Duration
	// Most bounds the cooldowns, each of which is twice as long as the one before. Zero means 30 s,
	// or First if that is longer.
	Most time.Duration
}

const (
	longestWait     = 10 * 365 * 24 * time.Hour // of MaxWait
	longestBackoff  = time.Hour
	longestCooldown = 24 * time.Hour

	maxAsks    = 3 // keys of the account, the model and the route
	maxRetries = 10
)

// faultFunc records one fault of a Config.
type faultFunc func(format string, args ...any)

// complete returns the configuration with defaults, or every fault.
func (cfg Config) complete() (Config, error) {
	var errs []error
	fault := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("outbound: Config."+format, args...))
	}
	if cfg.Gate == nil {
		fault("Gate is nil")
	} else if inside.Of(cfg.Gate) == nil {
		fault("Gate is the zero Gate")
	}
	cfg.checkRules(fault)
	cfg.Longest = cmp.Or(cfg.Longest, longestCooldown)
	within(fault, "Longest", cfg.Longest, time.Millisecond, longestWait)
	checkPatience(cfg.MaxWait, cfg.Retry, fault)
	if cfg.Slot != nil {
		cfg.Slot.check(cfg.Gate, fault)
	} else {
		cfg.Slot = new(Slot)
	}
	b := &cfg.Backoff
	b.First = cmp.Or(b.First, time.Second)
	b.Most = cmp.Or(b.Most, max(30*time.Second, b.First))
	within(fault, "Backoff.First", b.First, time.Millisecond, longestBackoff)
	within(fault, "Backoff.Most", b.Most, b.First, longestBackoff)
	if cfg.Base == nil {
		cfg.Base = http.DefaultTransport
	}
	return cfg, errors.Join(errs...)
}

func checkPatience(maxWait time.Duration, retry Retry, fault faultFunc) {
	within(fault, "MaxWait", maxWait, 0, longestWait)
	within(fault, "Retry.Max", retry.Max, 0, maxRetries)
}

// within records a value that is not between the least and the most.
func within[T cmp.Ordered](fault faultFunc, name string, value, least, most T) {
	if value < least || value > most {
		fault("%s is %v: it must be between %v and %v", name, value, least, most)
	}
}

func (cfg *Config) checkRules(fault faultFunc) {
	charges := len(cfg.Rules) + maxAsks
	names := map[string]bool{coolingName: true, spentName: true}
	for i := range cfg.Rules {
		if cfg.Rules[i].check(i, cfg.Meter != nil, names, fault); cfg.Rules[i].Limit != "" {
			charges++
		}
	}
	if charges > core.MaxCharges {
		fault("Rules has %d entries: with those that have a Limit counted twice, it must have at most %d",
			len(cfg.Rules), core.MaxCharges-maxAsks)
	}
}
