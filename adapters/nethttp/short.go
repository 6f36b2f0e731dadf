package nethttp

import (
	"fmt"
	"net/http"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/keyfunc"
)

// Limit returns a Guard of one rule: a policy of this name and algorithm, counted by key. Policies
// with the same name and algorithm share their counts across guards and processes. To make a Guard
// at the start of a program, use core.Must:
//
//	var api = core.Must(nethttp.Limit(gate, "api", core.PerMinute(100), keyfunc.RemoteIP()))
func Limit(
	gate *core.Gate, name string, algorithm core.Algorithm, key keyfunc.Func,
) (*Guard, error) {
	policy, err := core.NewPolicy(core.PolicyConfig{Name: name, Algorithm: algorithm})
	if err != nil {
		return nil, fmt.Errorf("nethttp: Limit: %w", err)
	}
	g, err := NewGuard(Config{Gate: gate, Rules: []Rule{{Policy: policy, Key: key}}})
	if err != nil {
		return nil, fmt.Errorf("nethttp: Limit: %w", err)
	}
	return g, nil
}

// Concurrency returns a Guard of one cap: of each key at most limit requests run at a time, also
// streams, and it refuses the others at once. The limit is between 1 and semaphore.MaxLimit. Caps
// with the same name share their slots across guards and processes:
//
//	var chat = core.Must(nethttp.Concurrency(gate, "streams", 3, userOf))
func Concurrency(gate *core.Gate, name string, limit int64, key keyfunc.Func) (*Guard, error) {
	return Queue(gate, name, limit, key, 0)
}

// Queue is Concurrency with a queue: a request without a slot waits for one, for up to maxWait, and
// is refused only then. At most 100 requests of a key wait.
func Queue(
	gate *core.Gate, name string, limit int64, key keyfunc.Func, maxWait time.Duration,
) (*Guard, error) {
	slots, err := semaphore.New(gate, semaphore.Config{Name: name})
	if err != nil {
		return nil, fmt.Errorf("nethttp: Concurrency: %w", err)
	}
	g, err := NewGuard(Config{Gate: gate, Slot: &Slot{
		Semaphore: slots, Caps: []Cap{{Name: name, Key: key, Limit: limit}}, MaxWait: maxWait,
	}})
	if err != nil {
		return nil, fmt.Errorf("nethttp: Concurrency: %w", err)
	}
	return g, nil
}

// PlanBook is what Quotas asks of a *plans.Book.
type PlanBook interface {
	// Plan returns a func for Config.Plan: the plan of the tenant that outermost derives.
	Plan(
		outermost func(*http.Request) (string, error), inner ...func(*http.Request) (string, error),
	) func(*http.Request) (core.Plan, error)
	// Names returns the names of all limits and caps, and fixes them.
	Names() (limits, caps []string, err error)
	// Then returns the names of the limits that answer when a limit is spent, in their order.
	Then(limit string) []string
	// KeptName returns the name of the limit that counts what a limit has admitted in one period, or "".
	KeptName(limit string) string
	// Counts reports whether a limit counts a request, by its route.
	Counts(limit string, r *http.Request) bool
}

// Quotas returns a Guard of all limits and caps that the plans of a *plans.Book name. Each is a rule
// or a cap of its name, counted by tenant: the same name that book knows it by, which therefore must
// not be a hash. A limit that Routes of the plans name counts the requests for these routes alone, so the
// Guard must stand where their pattern is known: in net/http and chi in front of single handlers. In front
// of a mux such a limit counts nothing. What a plan says of a limit that is spent, an overage or a slower
// limit, is its Rule.Then. A request without a slot is refused at once.
//
//	var guard = core.Must(nethttp.Quotas(gate, book, tenantOf))
func Quotas(gate *core.Gate, book PlanBook, tenant keyfunc.Func) (*Guard, error) {
	g, err := quotas(gate, book, tenant)
	if err != nil {
		return nil, fmt.Errorf("nethttp: Quotas: %w", err)
	}
	return g, nil
}

func quotas(gate *core.Gate, book PlanBook, tenant keyfunc.Func) (*Guard, error) {
	limits, caps, err := book.Names()
	if err != nil {
		return nil, err
	}
	cfg := Config{Gate: gate, Plan: book.Plan(tenant)}
	charges := len(limits)
	for _, name := range limits {
		rule := Rule{Key: tenant, Skip: func(r *http.Request) bool { return !book.Counts(name, r) }}
		names := append([]string{name}, book.Then(name)...)
		kept := make([]*core.Policy, len(names))
		// Every plan names the limit, so DenyAll never holds, except under those of Then and KeptName.
		for i, name := range names {
			policy, err := core.NewPolicy(core.PolicyConfig{Name: name, Algorithm: core.DenyAll{}})
			if err != nil {
				return nil, err
			}
			rule.Then = append(rule.Then, policy)
			if name := book.KeptName(name); name != "" {
				kept[i], err = core.NewPolicy(core.PolicyConfig{Name: name, Algorithm: core.DenyAll{}, Shadow: true})
				rule.kept = kept
			}
			if err != nil {
				return nil, err
			}
		}
		rule.Policy, rule.Then = rule.Then[0], rule.Then[1:]
		if rule.kept != nil {
			charges++
		}
		cfg.Rules = append(cfg.Rules, rule)
	}
	if charges > core.MaxCharges {
		return nil, fmt.Errorf("the plans have %d limits with the counts that they keep: they must have at most %d",
			charges, core.MaxCharges)
	}
	if len(caps) > 0 {
		slots, err := semaphore.New(gate, semaphore.Config{Name: "plans"})
		if err != nil {
			return nil, err
		}
		cfg.Slot = &Slot{Semaphore: slots}
		for _, name := range caps {
			cfg.Slot.Caps = append(cfg.Slot.Caps, Cap{Name: name, Key: tenant, Limit: 1})
		}
	}
	return NewGuard(cfg)
}
