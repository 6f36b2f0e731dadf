package core

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/algorithm"
	"github.com/headgate/headgate/internal/enum"
	"github.com/headgate/headgate/internal/lease"
	"github.com/headgate/headgate/internal/request"
)

// PolicyConfig configures a Policy.
type PolicyConfig struct {
	// Name identifies the policy among those on the same key, in Redis and in headers. It has 1 to
	// 64 of the characters A-Z a-z 0-9 _ . and -.
	Name string
	// Algorithm is the limit of every charge without a Charge.Limit. It is required.
	Algorithm Algorithm
	// Unit is the unit of the policy's costs. It decides which headers state the policy; see Unit.
	// Zero means UnitRequests.
	Unit Unit
	// OnFailure says who decides while Redis does not answer. Zero means FailLocal.
	OnFailure FailureMode
	// Shadow makes a policy that counts and never denies. It is charged if it has room and the
	// request is admitted.
	Shadow bool
	// Hold is how long a Reservation keeps what it spent under the policy after it was last
	// renewed: after that the charge has gone back, as Reservation.Cancel gives it back. A
	// Reservation renews itself until it is settled, so a process that dies strands nothing of a
	// budget. Decide, Allow, Wait and SpendUpTo spend for good. Zero keeps it until it is settled.
	// It is at least a millisecond and at most 10 years, and all processes must agree on whether it
	// is zero.
	//
	// A hold may end before the wait of a denial is over, so that there is room earlier: see
	// Result.RetryAfter.
	Hold time.Duration
	// Raisable lets Gate.Adjust raise the limit of single keys for a time. A decision then reads a
	// second key of Redis, in a script of its own. The Algorithm must be a quota; see Adjustment.
	Raisable bool
	// Ledger, if not nil, returns what a key has used in a period as the user's own database knows
	// it, for a quota that must survive a Redis that loses its data. It is asked before the first
	// decision on a key in each period of Redis's clock, and again when Redis has lost the key: by
	// one caller at a time in each process. What is used is raised to the first figure that comes,
	// as by Gate.RaiseUsed. See Adjustment for what a quota is, and Raisable for the price.
	//
	// It is called in a goroutine of the Gate, for at most 5 s, with the values of a caller's
	// context, and 32 times at once in a process. The decision waits for it, for at most
	// Config.Timeout. Without a figure OnFailure decides on this policy, with a Cause that wraps
	// ErrLedger. A process repeats a call that fails after a second at the earliest. It must end
	// with its context: Gate.Close ends that, and waits for the call. It may call Gate.Adjust with
	// raises of the key, which Redis has lost too.
	Ledger func(ctx context.Context, key Key, period Span) (used int64, err error)
	// Thresholds are percentages of the limit, such as 80, 90 and 100: at most 8, between 1 and
	// 100, in ascending order. When a key reaches one, Config.Observe receives a ThresholdEvent,
	// once for each key, threshold and period over all processes, and again after the key's limit
	// changes. It may come again from another process if one dies in between. A decision on the key
	// finds it, admitted or denied, so a Settle for more is reported with the next decision.
	// Decisions take no further round trips for it.
	//
	// Algorithm must be a Calendar, a FixedWindow of at least a minute without FromFirst, or a
	// TokenBucket with Rate 0, which is one period; or without state, for charges that have such a
	// limit of their own. No event comes while a key has a limit of another kind, or while Redis
	// does not answer; later decisions make up for that.
	Thresholds []int
}

// Policy is a named limit. Make it once, at start-up, with NewPolicy: a decision on the zero value
// is an error. It is immutable and safe for concurrent use. The policies of one decision have
// different names.
type Policy struct {
	cfg    PolicyConfig
	own    *limit     // the compiled algorithm
	held   lease.Mean // of the reservations of this process
	blocks bool       // the algorithm is a Block
	hash   uint64     // random, to find cached denials by

	// The limits of charges and keys with limits of their own. The first are compared one by one:
	// that takes 5 ns for the plan that most tenants have, and a look into others 45 ns.
	first      [4]atomic.Pointer[limit]
	others     sync.Map // identity to *limit
	remembered atomic.Int64
	planned    atomic.Bool // a plan may give keys limits of their own

	stated atomic.Pointer[policyList] // the last that has it
}

// maxLimits is the most compiled limits that a policy keeps.
const maxLimits = 1024

// NewPolicy returns a Policy, or every fault of the configuration at once.
func NewPolicy(cfg PolicyConfig) (*Policy, error) {
	var errs []error
	if err := checkName(cfg.Name, 64); err != nil {
		errs = append(errs, fmt.Errorf("core: PolicyConfig.Name %w", err))
	}
	if cfg.Unit > UnitContentBytes {
		errs = append(errs, fmt.Errorf("core: PolicyConfig.Unit is %d: it must be UnitRequests, "+
			"UnitTokens, UnitInputTokens, UnitOutputTokens, UnitMicroDollars or UnitContentBytes", cfg.Unit))
	}
	if cfg.OnFailure > FailClosed {
		errs = append(errs, fmt.Errorf(
			"core: PolicyConfig.OnFailure is %d: it must be FailLocal, FailOpen or FailClosed", cfg.OnFailure))
	}
	p := &Policy{cfg: cfg, hash: rand.Uint64()}
	p.cfg.Thresholds = slices.Clone(cfg.Thresholds)
	if cfg.Algorithm == nil {
		errs = append(errs, errors.New(
			"core: PolicyConfig.Algorithm is nil: it must be a limit, such as PerMinute(100)"))
	} else {
		own, err := p.compile(cfg.Algorithm)
		if err != nil {
			errs = append(errs, prefixed("core: PolicyConfig.Algorithm: ", err))
		}
		p.own = own
		_, p.blocks = cfg.Algorithm.(Block)
	}
	errs = append(errs, checkHold(cfg))
	if cfg.Raisable {
		errs = append(errs, p.checkQuota("Raisable"))
	}
	if cfg.Ledger != nil {
		errs = append(errs, p.checkQuota("Ledger"))
	}
	errs = append(errs, checkThresholds(cfg.Thresholds, p.own))
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return p, nil
}

func (p *Policy) compile(a Algorithm) (*limit, error) {
	if reflect.TypeOf(a).Kind() == reflect.Pointer {
		return nil, fmt.Errorf("%T must be a value: it is copied", a)
	}
	c, err := compile(a)
	if err != nil {
		return nil, err
	}
	l := &limit{compiled: c, policy: p, own: a}
	if current := c.current(); current != nil {
		l.kind = *request.KindOf(":"+p.cfg.Name+":"+current.Tag(), current)
		l.kind.Shadow = p.cfg.Shadow
		l.kind.HoldFor = p.cfg.Hold.Microseconds()
		l.kind.Adjusts = p.adjusts() && algorithm.QuotaOf(current) != nil
		l.kind.Seeds = l.kind.Adjusts && p.cfg.Ledger != nil
	}
	return l, nil
}

// windows is the comparable form of the windows of a SlidingLog.
type windows struct {
	number int
	all    [algorithm.MaxWindows]Window
}

// identity returns a comparable value that is equal for equal algorithms, or false if there is
// none.
func identity(a Algorithm) (any, bool) {
	log, ok := a.(SlidingLog)
	if !ok {
		return a, reflect.TypeOf(a).Comparable()
	}
	w := windows{number: len(log.Windows)}
	all := copy(w.all[:], log.Windows) == w.number // before w is copied
	return w, all
}

// sameLimit reports whether two algorithms are the same limit.
func sameLimit(a, b Algorithm) bool {
	x, ok := identity(a)
	y, also := identity(b)
	return ok && also && x == y
}

// Name returns the name of the policy.
func (p *Policy) Name() string { return p.cfg.Name }

// Algorithm returns the limit of the policy.
func (p *Policy) Algorithm() Algorithm { return p.cfg.Algorithm }

// Quota returns the policy's limit as responses state it: how many units an untouched key allows
// at once, and the time in which an exhausted key recovers, Never if it does not. It returns false
// for Unlimited. Limits of single charges and keys do not change it.
func (p *Policy) Quota() (limit int64, window time.Duration, ok bool) {
	if p.own == nil {
		return 0, Never, false
	}
	current := p.own.current()
	if current == nil {
		return 0, Never, p.own.denies
	}
	limit, window = quota(current)
	return limit, window, true
}

// quota returns the limit that responses state, and its window.
func quota(l algorithm.Limit) (limit int64, window time.Duration) {
	if log, ok := l.(*algorithm.SlidingLog); ok {
		return log.Longest()
	}
	return l.Capacity(), l.Window()
}

// Unit returns the unit of the policy's costs.
func (p *Policy) Unit() Unit { return p.cfg.Unit }

// Shadow reports whether the policy counts and never denies.
func (p *Policy) Shadow() bool { return p.cfg.Shadow }

// Raisable reports whether Gate.Adjust may raise the limits of single keys; see
// PolicyConfig.Raisable.
func (p *Policy) Raisable() bool { return p.cfg.Raisable }

// Hold returns how long a Reservation keeps what it spent under the policy; see PolicyConfig.Hold.
func (p *Policy) Hold() time.Duration { return p.cfg.Hold }

// Unit says what a policy counts. Decisions do not depend on it: the caller charges costs in this
// unit. Responses state it, so that a client can tell a limit on tokens from one on requests:
// package nethttp sends it as the quota unit qu in RateLimit-Policy, and the headers of model APIs
// have one set of names for requests and others for tokens.
type Unit uint8

const (
	// UnitRequests counts requests. RateLimit-Policy states no quota unit then.
	UnitRequests Unit = iota
	// UnitTokens counts tokens of a language model, input and output together.
	UnitTokens
	// UnitInputTokens counts the tokens that a model reads.
	UnitInputTokens
	// UnitOutputTokens counts the tokens that a model writes.
	UnitOutputTokens
	// UnitMicroDollars counts money in millionths of a dollar. The headers of model APIs have no
	// names for it.
	UnitMicroDollars
	// UnitContentBytes counts bytes of bodies, such as those of requests under
	// nethttp.ContentLength. The headers of model APIs have no names for it.
	UnitContentBytes
)

var units = [...]string{
	"requests", "tokens", "input-tokens", "output-tokens", "micro-dollars", "content-bytes",
}

// String returns the unit in lower case, as RateLimit-Policy states it.
func (u Unit) String() string { return enum.Name(units[:], int(u)) }

func checkName(name string, longest int) error {
	if name == "" {
		return errors.New("is empty")
	}
	if len(name) > longest {
		return fmt.Errorf("is %d bytes long: it must be at most %d", len(name), longest)
	}
	if strings.ContainsFunc(name, func(r rune) bool { return !plain(r) }) {
		return fmt.Errorf("is %q: it may hold only A-Z a-z 0-9 _ . and -", name)
	}
	return nil
}

func plain(r rune) bool {
	return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' ||
		r == '_' || r == '.' || r == '-'
}
