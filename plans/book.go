package plans

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/deadline"
	"github.com/headgate/headgate/internal/watch"
	"github.com/headgate/headgate/plans/internal/tenants"
)

// grace is how much longer than its Timeouts an attempt to learn about a tenant may take, in a
// process that is short of CPU. A Resolve that takes longer does not heed its context.
const grace = time.Second

// Book gives tenants the limits of their plans. New makes it; the zero value is of no use. It is
// safe for concurrent use and must not be copied.
type Book struct {
	cfg     Config
	sets    *sets
	store   overrides
	tenants *tenants.Table[*state]
	start   time.Time
	pulse   deadline.Pulse

	cancel  context.CancelFunc // of the goroutines
	running sync.WaitGroup
}

// New returns a Book, or every fault of the configuration and of its file at once. It does not ask
// Redis. Close ends its goroutines.
func New(cfg Config) (*Book, error) {
	b := &Book{cfg: cfg, start: time.Now(), pulse: deadline.Pulse{Every: 10 * time.Millisecond}}
	err := b.cfg.checkSource()
	if err == nil {
		b.sets, err = newSets(&b.cfg)
	}
	if err := errors.Join(append([]error{err}, b.cfg.complete()...)...); err != nil {
		return nil, err
	}
	b.tenants = tenants.New(tenants.Config[*state]{
		Max: b.cfg.MaxTenants, Retry: b.cfg.TTL, Patience: 2*b.cfg.Timeout + grace,
		Learn: b.learn,
	})
	ctx, cancel := context.WithCancel(context.Background())
	b.cancel = cancel
	if b.cfg.Client == nil {
		b.store = newMemory()
	} else {
		feed := newFeed(&b.cfg, b.tenants)
		b.store = feed
		b.running.Go(func() {
			feed.poll(ctx)
			watch.Every(ctx, pollInterval, feed.poll)
		})
	}
	if b.cfg.File != "" {
		go watch.Every(ctx, watch.Interval, b.sets.look)
	}
	return b, nil
}

// Close ends the goroutines and waits for them. It does not wait for a read of Config.File, which may
// hang, as on a network file system whose server is gone: its goroutine ends after that. Tenants
// that are known keep their plans; for all others the errors wrap ErrClosed. Close does not close the
// client. Later calls do nothing.
func (b *Book) Close() {
	b.cancel()
	b.tenants.Close()
	b.running.Wait()
	b.sets.looking.Lock() // the last look is over, unless it still reads
	defer b.sets.looking.Unlock()
}

// For returns the plan of a chain of tenants, outermost first, such as an organisation, a team and
// a user. The nearest tenant whose override or plan names a policy or a cap decides on it. An
// outermost tenant without a plan has the default plan of the Set. An inner tenant without a plan
// names nothing, and an inner name that is empty stands for no tenant.
//
// All tenants have names of one kind: where a user could call itself like an organisation, give
// them prefixes, such as org:acme and user:acme.
//
// Ask for a plan once a request. It is one state of each tenant and of the Set, and does not
// change. The error wraps ErrTenant for an outermost name that is empty, ErrClosed, or the error of
// a ctx that has ended; with OnFailureRefuse it may be the error of Config.Resolve.
func (b *Book) For(ctx context.Context, outermost string, inner ...string) (core.Plan, error) {
	set := b.Set()
	var room [inlinePlans]*plan
	chain, around, err := b.add(ctx, room[:0], set, outermost, set.standard, nil)
	for _, tenant := range inner {
		if tenant != "" && err == nil {
			chain, around, err = b.add(ctx, chain, set, tenant, nil, around)
		}
	}
	if err != nil {
		return nil, err
	}
	slices.Reverse(chain) // nearest first
	return chained(chain), nil
}

// add adds the plan and the override of a tenant to a chain, outermost first. A tenant without a plan
// has the other one, unless that is nil. A tenant without an anchor has that of the subscription around
// it. add returns the one that holds, which may be nil.
func (b *Book) add(
	ctx context.Context, chain []*plan, set *Set, tenant string, otherwise *plan, around *subscription,
) ([]*plan, *subscription, error) {
	s, err := b.know(ctx, tenant)
	if err != nil {
		return nil, nil, err
	}
	own, override, err := b.planOf(set, s)
	if err != nil {
		return nil, nil, err
	}
	if own == nil {
		own = otherwise
	}
	if s.subscription != nil && !s.subscription.anchor.IsZero() {
		around = s.subscription
	}
	if own != nil {
		chain = append(chain, own.begun(around))
	}
	if override != nil {
		chain = append(chain, override.begun(around))
	}
	return chain, around, nil
}

// know returns what is known of a tenant.
func (b *Book) know(ctx context.Context, tenant string) (*state, error) {
	if tenant == "" {
		return nil, errNoName
	}
	s, err := b.tenants.Get(ctx, tenant)
	switch {
	case err == nil:
		return s, nil
	case errors.Is(err, tenants.ErrClosed):
		return nil, ErrClosed
	case errors.Is(err, tenants.ErrLate) && b.cfg.OnFailure == OnFailureRefuse:
		return nil, fmt.Errorf("plans: resolve: %w", context.DeadlineExceeded)
	case errors.Is(err, tenants.ErrLate):
		return new(state), nil
	}
	return nil, fmt.Errorf("plans: %w", err)
}

// Plan returns a func for nethttp.Config.Plan: For of the tenants that the functions derive
// from a request, such as keyfunc.ContextValue. Their errors are returned unchanged. A func that
// hashes, such as keyfunc.Header, derives no name that Config.Resolve knows.
func (b *Book) Plan(
	outermost func(*http.Request) (string, error), inner ...func(*http.Request) (string, error),
) func(*http.Request) (core.Plan, error) {
	tenants := append([]func(*http.Request) (string, error){outermost}, inner...)
	return func(r *http.Request) (core.Plan, error) {
		var room [inlinePlans]string
		names := room[:0]
		for _, tenant := range tenants {
			name, err := tenant(r)
			if err != nil {
				return nil, err
			}
			names = append(names, name)
		}
		return b.For(r.Context(), names[0], names[1:]...)
	}
}

// Set returns the Set that holds now.
func (b *Book) Set() *Set { return b.sets.current.Load() }

// Replace makes another Set hold, for all requests that begin from now on. If there is a
// Config.File, its next change replaces the Set again.
func (b *Book) Replace(set *Set) error { return b.sets.replace(set) }
