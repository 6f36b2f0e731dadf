package plans

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
)

// Config configures Plans.
type Config struct {
	// File is the path of a file of ParseSet. It is looked at every 250 ms, and read again when it
	// has changed and stands still: see Plans.Reload. Either File or Set is required.
	File string
	// Set is the plans, for programs that have no file. Plans.Replace replaces it.
	Set *Set
	// Resolve returns the name of a tenant's plan, such as from a database, or "" for the Set's
	// default. It is called when a tenant is not known, and again when TTL has passed. Callers for
	// one tenant share a call. It must be safe for concurrent use. If Resolve is nil, every tenant
	// has the default plan, unless it has an Override. It must return when its context ends, after
	// Timeout: otherwise each decision on the tenant waits a second longer until it returns, and
	// Close waits for it.
	Resolve func(ctx context.Context, tenant string) (plan string, err error)
	// OnFailure says what holds for a tenant if Resolve fails and has never succeeded for it.
	// Otherwise the last known plan holds. Zero means UseDefault.
	OnFailure OnFailure
	// Tenant returns whose key it is. Nil means the outermost part of the key. An empty tenant is
	// an error. It is called in the goroutine of the decision.
	Tenant func(ctx context.Context, key core.Key) string
	// MaxTenants bounds the tenants that are kept in memory. It is rounded up to a multiple of 64
	// from 64 on. Zero means 100,000. Beyond it, tenants that have not been asked for lately are
	// evicted. A tenant takes at most 400 bytes, 8 of them from the start, besides its Override.
	MaxTenants int
	// TTL is how long the plan of a tenant is known. Zero means a minute. Each tenant's is up to a
	// tenth shorter, so that they do not all end at once. Plans.Refresh ends it.
	TTL time.Duration
	// Timeout bounds one call of Resolve, and one read of Redis. A decision on a tenant that is not
	// known waits for both, one after the other. Zero means 300 ms, and it is at most 500 ms.
	Timeout time.Duration
	// Client is the Redis that keeps the overrides and tells all processes of changes. Every
	// process asks it for the last change every 400 ms. If Client is nil, this process keeps them
	// in memory.
	Client redis.UniversalClient
	// Prefix begins the names of the keys in Redis. Empty means "hg".
	Prefix string
	// Policies and Semaphores are the names that limits and caps may have: all others are faults of
	// a Set and of an Override, such as a name that is misspelt. Nil permits all names.
	Policies, Semaphores []string
	// Observe is called with every Event. It must be fast and safe for concurrent use, and must not
	// call Reload, Replace or Close, which may wait for it. Nil observes nothing.
	Observe func(Event)
}

// OnFailure says what holds for a tenant whose plan was never known.
type OnFailure uint8

const (
	// UseDefault gives it the default plan of the Set.
	UseDefault OnFailure = iota
	// Refuse returns the error of Resolve, so that a decision denies with an error.
	Refuse
)

// String returns "use default" or "refuse".
func (f OnFailure) String() string { return nameOf([]string{"use default", "refuse"}, int(f)) }

const (
	defaultTenants = 100_000
	maxTenants     = 100_000_000
	defaultTTL     = time.Minute
	defaultTimeout = 300 * time.Millisecond
	maxTimeout     = 500 * time.Millisecond // a poll and a timeout are below a second
	defaultPrefix  = "hg"
	retryAfter     = time.Second // after a failure
	maxRetries     = 64          // that nobody waits for, at a time
)

var (
	// ErrUnknownPlan is wrapped by the errors of a plan that the Set does not have.
	ErrUnknownPlan = errors.New("plans: unknown plan")
	// ErrNoCap is wrapped by the error of Plans.Cap for a cap that the plan does not have.
	ErrNoCap = errors.New("plans: no cap")
	// ErrTenant is wrapped by the errors of a tenant without a name.
	ErrTenant = errors.New("plans: no tenant")
	// ErrClosed is wrapped by errors after Plans.Close.
	ErrClosed = errors.New("plans: closed")
)

// Plans gives tenants the limits of their plans. New makes it; the zero value is of no use. It is
// safe for concurrent use and must not be copied.
type Plans struct {
	cfg     Config
	current atomic.Pointer[Set]
	tenants cache
	start   time.Time
	epoch   atomic.Uint64 // of all tenants: what is known of an earlier one is not fresh
	store   overrides
	shadows sync.Map // *core.Policy that is a shadow, to the *core.Policy beside it

	loading sync.Mutex // held while the Set is replaced
	file    watcher

	ctx     context.Context // ends with Close
	cancel  context.CancelFunc
	mu      sync.Mutex // guards closed
	closed  bool
	running sync.WaitGroup
	retries chan struct{}
}

// New returns Plans, or every fault of the configuration and of its file at once. It does not ask
// Redis. Close ends its goroutines.
func New(cfg Config) (*Plans, error) {
	errs := cfg.complete()
	p := &Plans{
		cfg: cfg, start: time.Now(), tenants: newCache(max(1, cfg.MaxTenants)),
		retries: make(chan struct{}, maxRetries),
	}
	if cfg.File != "" && cfg.Set == nil {
		set, err := p.file.read(cfg.File)
		if err != nil {
			errs = append(errs, err)
		}
		cfg.Set = set
	}
	if cfg.Set != nil {
		errs = append(errs, p.checkNames(cfg.Set))
		p.current.Store(cfg.Set)
		p.cfg.Set = nil // it need not stay in memory
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	if cfg.Client == nil {
		p.store = newMemory()
	} else {
		feed := newFeed(p)
		p.store = feed
		p.running.Go(func() { p.every(pollInterval, feed.poll) })
	}
	if cfg.File != "" {
		p.running.Go(func() { p.every(lookInterval, p.look) })
	}
	return p, nil
}

// complete fills in the defaults, and returns every fault.
func (cfg *Config) complete() (errs []error) {
	fault := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("plans: Config."+format, args...))
	}
	switch {
	case cfg.File == "" && cfg.Set == nil:
		fault("File and Set are missing: one of them is required")
	case cfg.File != "" && cfg.Set != nil:
		fault("File and Set are both set: one of them must be")
	case cfg.Set != nil && cfg.Set.standard == nil:
		fault("Set is zero: NewSet, ParseSet or ReadSet must make it")
	}
	if cfg.OnFailure > Refuse {
		fault("OnFailure is %d: it must be UseDefault or Refuse", cfg.OnFailure)
	}
	if cfg.MaxTenants < 0 || cfg.MaxTenants > maxTenants {
		fault("MaxTenants is %d: it must be between 1 and %d", cfg.MaxTenants, maxTenants)
		cfg.MaxTenants = 1
	}
	if cfg.TTL != 0 && (cfg.TTL < time.Second || cfg.TTL > 24*time.Hour) {
		fault("TTL is %v: it must be between 1s and 24h", cfg.TTL)
	}
	if cfg.Timeout != 0 && (cfg.Timeout < time.Millisecond || cfg.Timeout > maxTimeout) {
		fault("Timeout is %v: it must be between 1ms and %v", cfg.Timeout, maxTimeout)
	}
	cfg.Prefix = cmp.Or(cfg.Prefix, defaultPrefix)
	if _, err := core.NewMemory(core.Config{Prefix: cfg.Prefix}); err != nil {
		fault("%s", strings.TrimPrefix(err.Error(), "core: Config."))
	}
	cfg.MaxTenants = cmp.Or(cfg.MaxTenants, defaultTenants)
	cfg.TTL, cfg.Timeout = cmp.Or(cfg.TTL, defaultTTL), cmp.Or(cfg.Timeout, defaultTimeout)
	return errs
}

// checkNames returns an error for each name of a Set that the configuration does not know.
func (p *Plans) checkNames(set *Set) error {
	var faults []fault
	for _, name := range set.Names() {
		plan := set.plans[name]
		faults = append(faults, p.unknownNames("plans."+name+".", plan.Limits, plan.Caps)...)
	}
	return joined("", faults, nil)
}

func (p *Plans) unknownNames(
	path string, limits map[string]core.Algorithm, caps map[string]int64,
) (faults []fault) {
	for _, name := range sortedKeys(limits) {
		if p.cfg.Policies != nil && !slices.Contains(p.cfg.Policies, name) {
			faults = append(faults, fault{path + "limits." + name, "is not in Config.Policies"})
		}
	}
	for _, name := range sortedKeys(caps) {
		if p.cfg.Semaphores != nil && !slices.Contains(p.cfg.Semaphores, name) {
			faults = append(faults, fault{path + "caps." + name, "is not in Config.Semaphores"})
		}
	}
	return faults
}

// Close ends the goroutines and waits for them. Tenants that are known keep their plans; for all
// others the errors wrap ErrClosed. Close does not close the client. Later calls do nothing.
func (p *Plans) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.cancel()
	p.running.Wait()
}

// every calls f now, and then at every interval, until Plans is closed.
func (p *Plans) every(interval time.Duration, f func()) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		f()
		select {
		case <-ticker.C:
		case <-p.ctx.Done():
			return
		}
	}
}

// run runs f in a goroutine, and reports false if Plans is closed. Of retries only so many run at a
// time.
func (p *Plans) run(retry bool, f func()) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	if retry {
		select {
		case p.retries <- struct{}{}:
		default:
			return false
		}
	}
	p.running.Go(func() {
		if retry {
			defer func() { <-p.retries }()
		}
		f()
	})
	return true
}

// now is a time that never goes back.
func (p *Plans) now() time.Duration { return time.Since(p.start) }

func (p *Plans) tell(e Event) {
	if p.cfg.Observe != nil {
		p.cfg.Observe(e)
	}
}
