package plans

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/hub"
)

// Config configures a Book.
type Config struct {
	// File is the path of a file of ParseSet. It is looked at every 250 ms, and read again when it
	// has changed and two looks have seen the same content. A bad file changes nothing. Either File or Set is required.
	File string
	// Set is the plans, for programs that have no file. Book.Replace replaces it.
	Set *Set
	// Resolve returns the name of a tenant's plan, such as from a database, or "" for none: then the
	// Set's default holds, or in a chain the plans of the tenants around it; see Book.For. It is
	// called when a tenant is not known, and again when TTL has passed. Callers for one tenant share
	// a call. It must be safe for concurrent use. If Resolve is nil, no tenant has a plan, unless it
	// has an Override. A tenant is asked for by the key that Book.Plan derives, so that must not be a
	// hash. It must return when its context ends, after Timeout: otherwise each request
	// of the tenant waits a second longer until it returns, and Close waits for it.
	Resolve func(ctx context.Context, tenant string) (plan string, err error)
	// Subscription is Resolve for programs whose tenants have periods of their own, or plans that
	// change with the next period: it returns these too. Either Resolve or Subscription may be set.
	Subscription func(ctx context.Context, tenant string) (Subscription, error)
	// OnFailure says what holds for a tenant if Resolve fails and has never succeeded for it.
	// Otherwise the last known plan holds. Zero means OnFailureDefault.
	OnFailure OnFailure
	// MaxTenants bounds the tenants that are kept in memory. It is rounded up to a multiple of 64
	// from 64 on. Zero means 100,000. Beyond it, tenants that have not been asked for lately are
	// evicted. A tenant takes at most 400 bytes, besides its Override.
	MaxTenants int
	// TTL is how long the plan of a tenant is known. Zero means a minute. Each tenant's is up to a
	// tenth shorter, so that they do not all end at once. Book.Refresh ends it.
	TTL time.Duration
	// Timeout bounds one call of Resolve, and one read of Redis. A request of a tenant that is not
	// known waits for both, one after the other. Zero means 300 ms, and it is at most 500 ms.
	Timeout time.Duration
	// Client is the Redis that keeps the overrides and tells all processes of changes. Every
	// process asks it for the last change every 400 ms. If Client is nil, this process keeps them
	// in memory.
	Client redis.UniversalClient
	// Prefix begins the names of the keys in Redis. Empty means "hg".
	Prefix string
	// Clock returns the time by which Subscription.Next begins, such as core.ManualClock.Now. Nil means
	// time.Now.
	Clock func() time.Time
	// Observe is called with every *Event. It must be fast and safe for concurrent use, and must not
	// call Replace or Close, which may wait for it. Nil observes nothing.
	Observe func(context.Context, core.Event)
}

// OnFailure says what holds for a tenant whose plan was never known.
type OnFailure uint8

const (
	// OnFailureDefault takes it for a tenant without a plan.
	OnFailureDefault OnFailure = iota
	// OnFailureRefuse returns the error of Resolve, so that the request is refused.
	OnFailureRefuse
)

const (
	defaultTenants = 100_000
	maxTenants     = 100_000_000
	defaultTTL     = time.Minute
	defaultTimeout = 300 * time.Millisecond
	maxTimeout     = 500 * time.Millisecond // a poll and a timeout are below a second
	defaultPrefix  = "hg"
)

var (
	// ErrUnknownPlan is wrapped by the errors of a plan that the Set does not have.
	ErrUnknownPlan = errors.New("plans: unknown plan")
	// ErrTenant is wrapped by the errors of a tenant without a name.
	ErrTenant = errors.New("plans: no tenant")
	// ErrClosed is wrapped by errors after Book.Close.
	ErrClosed = errors.New("plans: closed")

	errNoName = fmt.Errorf("%w: its name is empty", ErrTenant)
)

// checkSource returns the fault of the fields that say where the plans are.
func (cfg *Config) checkSource() error {
	switch {
	case cfg.File == "" && cfg.Set == nil:
		return errors.New("plans: Config.File and Set are missing: one of them is required")
	case cfg.File != "" && cfg.Set != nil:
		return errors.New("plans: Config.File and Set are both set: one of them must be")
	case cfg.Set != nil && cfg.Set.standard == nil:
		return errors.New("plans: Config.Set is zero: NewSet, ParseSet or ReadSet must make it")
	}
	return nil
}

var inside = core.Inside(hub.Pass{})

// complete fills in the defaults, and returns every fault of the other fields.
func (cfg *Config) complete() (errs []error) {
	fault := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("plans: Config."+format, args...))
	}
	if cfg.OnFailure > OnFailureRefuse {
		fault("OnFailure is %d: it must be OnFailureDefault or OnFailureRefuse", cfg.OnFailure)
	}
	if cfg.MaxTenants < 0 || cfg.MaxTenants > maxTenants {
		fault("MaxTenants is %d: it must be between 1 and %d", cfg.MaxTenants, maxTenants)
	}
	if cfg.TTL != 0 && (cfg.TTL < time.Second || cfg.TTL > 24*time.Hour) {
		fault("TTL is %v: it must be between 1s and 24h", cfg.TTL)
	}
	if cfg.Timeout != 0 && (cfg.Timeout < time.Millisecond || cfg.Timeout > maxTimeout) {
		fault("Timeout is %v: it must be between 1ms and %v", cfg.Timeout, maxTimeout)
	}
	if cfg.Resolve != nil && cfg.Subscription != nil {
		fault("Resolve and Subscription are both set: at most one of them may be")
	}
	if resolve := cfg.Resolve; resolve != nil {
		cfg.Subscription = func(ctx context.Context, tenant string) (s Subscription, err error) {
			s.Plan, err = resolve(ctx, tenant)
			return s, err
		}
	}
	if cfg.Clock == nil {
		cfg.Clock = time.Now
	}
	cfg.Prefix = cmp.Or(cfg.Prefix, defaultPrefix)
	if err := inside.CheckName(cfg.Prefix, 32); err != nil {
		fault("Prefix %w", err)
	}
	cfg.MaxTenants = cmp.Or(cfg.MaxTenants, defaultTenants)
	cfg.TTL, cfg.Timeout = cmp.Or(cfg.TTL, defaultTTL), cmp.Or(cfg.Timeout, defaultTimeout)
	return errs
}

// tell tells the observer.
func (cfg *Config) tell(ctx context.Context, e Event) {
	if cfg.Observe != nil {
		told := e // is allocated only here
		cfg.Observe(ctx, &told)
	}
}
