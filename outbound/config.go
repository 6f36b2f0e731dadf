package outbound

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/hub"
)

// Config configures a Transport.
type Config struct {
	// Base sends the requests that are admitted. Nil is http.DefaultTransport.
	Base http.RoundTripper
	// Gate decides. It is required, and one on Redis shares the limits and cooldowns with all
	// replicas.
	Gate *core.Gate
	// Rules are the limits, each under a policy of another name: at most 14. Without any, the
	// Transport obeys cooldowns only.
	Rules []Rule
	// Slot caps how many requests run at a time. Nil caps nothing.
	Slot *Slot
	// Credential returns the credential of a request, or whatever else names its account at the
	// host, for ByCredential, ByModel and Account. Only a hash of it is kept. An empty value is that of
	// a request without credentials. Use it for a header or a signature that the default does not
	// know: otherwise all accounts of the host share their cooldowns. It must be safe for concurrent
	// use. Nil is Authorization, X-Api-Key, Api-Key, X-Goog-Api-Key, and key in the query.
	Credential func(*http.Request) string
	// Account derives whose cooldowns a request obeys. Nil is ByCredential. A cooldown of a model
	// stands below its key.
	Account KeyFunc
	// Meter reads the model and the cost of requests. Nil measures nothing.
	Meter Meter
	// Skip returns true for requests that go to Base as if there were no Transport. Nil skips none.
	Skip func(*http.Request) bool
	// MaxWait bounds how long a request waits, all its retries together. The deadline of its context
	// bounds that too. A request that would wait longer fails immediately with a BusyError. Zero waits
	// for nothing. It is at most 10 years.
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

// Backoff is how long the narrowest key of a request, which is its model's or else its account's,
// cools after a refusal that tells no wait. The next one after a response below 500 that is no
// refusal lasts First again, and so does one that comes Most after the end of the last.
type Backoff struct {
	// First is the first cooldown. Zero means 1 s.
	First time.Duration
	// Most bounds the cooldowns, each of which is twice as long as the one before. Zero means 30 s,
	// or First if that is longer.
	Most time.Duration
}

const (
	longestWait    = 10 * 365 * 24 * time.Hour // of MaxWait
	longestBackoff = time.Hour

	maxRules   = core.MaxCharges - maxAsks
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
	} else if hub.Of(cfg.Gate) == nil {
		fault("Gate is the zero Gate")
	}
	if n := len(cfg.Rules); n > maxRules {
		fault("Rules has %d entries: it must have at most %d", n, maxRules)
	}
	if cfg.MaxWait < 0 || cfg.MaxWait > longestWait {
		fault("MaxWait is %v: it must be between 0 and 10 years", cfg.MaxWait)
	}
	if cfg.Retry.Max < 0 || cfg.Retry.Max > maxRetries {
		fault("Retry.Max is %d: it must be between 0 and %d", cfg.Retry.Max, maxRetries)
	}
	names := map[string]bool{coolingName: true, spentName: true}
	for i := range cfg.Rules {
		cfg.Rules[i].check(i, cfg.Meter != nil, names, fault)
	}
	if cfg.Slot != nil {
		cfg.Slot.check(cfg.Gate, fault)
	}
	cfg.Backoff = cfg.Backoff.complete(fault)
	if cfg.Base == nil {
		cfg.Base = http.DefaultTransport
	}
	if cfg.Account == nil {
		cfg.Account = ByCredential
	}
	return cfg, errors.Join(errs...)
}

func (b Backoff) complete(fault faultFunc) Backoff {
	duration := func(field string, d *time.Duration, otherwise, least time.Duration) {
		if *d == 0 {
			*d = otherwise
		} else if *d < least || *d > longestBackoff {
			fault("Backoff.%s is %v: it must be between %v and 1h", field, *d, least)
		}
	}
	duration("First", &b.First, time.Second, time.Millisecond)
	duration("Most", &b.Most, max(30*time.Second, b.First), b.First)
	return b
}
