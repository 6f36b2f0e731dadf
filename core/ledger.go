package core

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/algorithm"
	"github.com/headgate/headgate/internal/breaker"
	"github.com/headgate/headgate/internal/deadline"
	"github.com/headgate/headgate/internal/flight"
	"github.com/headgate/headgate/internal/request"
)

// ErrLedger is wrapped by the Cause of a decision that needed the figure of a PolicyConfig.Ledger
// and did not get it in time.
var ErrLedger = errors.New("core: no figure from the ledger")

const (
	ledgerTime  = 5 * time.Second // bounds a call of PolicyConfig.Ledger
	ledgerPause = time.Second     // between calls for a key that fail
	ledgerTries = 2               // of a decision
)

// newLedgers returns the calls of ledgers of a Gate whose decisions have that time.
func newLedgers(tasks *breaker.Tasks, timeout time.Duration) *flight.Group {
	return flight.New(flight.Config{
		Tasks: tasks, Long: timeout, Turn: 2 * ledgerTime, Pause: ledgerPause,
		Failed: ErrLedger, Closed: ErrClosed,
	})
}

// adjusts reports whether decisions heed the adjustments of a key.
func (p *Policy) adjusts() bool { return p.cfg.Raisable || p.cfg.Ledger != nil }

// checkQuota returns the fault of a field that needs a quota, or a limit without state.
func (p *Policy) checkQuota(field string) error {
	if p.own == nil || p.own.current() == nil || algorithm.QuotaOf(p.own.current()) != nil {
		return nil
	}
	return fmt.Errorf("core: PolicyConfig.%s is set, and the Algorithm is no quota: %s",
		field, whatQuotas)
}

// askLedgers asks for a request again if its keys are to be seeded first. If a ledger does not
// answer, it asks for the charges that need none. Otherwise it returns err.
func (g *Gate) askLedgers(
	ctx, caller context.Context, p *inquiry, one []request.Request, err error,
) error {
	r := &one[0]
	if err == nil {
		err = g.sendSeeded(ctx, caller, p, one)
	}
	if err == nil || !errors.Is(err, ErrLedger) {
		return err
	}
	closed, others := p.dropLedgers(r, err)
	if !others {
		return err
	}
	p.cause = cmp.Or(p.cause, err)
	if p.admitted = p.admitted && !closed; !p.admitted {
		r.Op = algorithm.Peek
	}
	return g.send(ctx, one)
}

// sendSeeded waits for the ledgers of a request with keys that are to be seeded first, and asks the
// store again. All of a decision's waits end within Config.Timeout.
func (g *Gate) sendSeeded(
	ctx, caller context.Context, p *inquiry, requests []request.Request,
) error {
	r := &requests[0]
	for range ledgerTries {
		if err := g.seed(caller, p, r); err != nil {
			return request.Unsent{Err: err}
		}
		if err := g.send(ctx, requests); err != nil || !r.Unseeded {
			return err
		}
	}
	return request.Unsent{Err: ErrLedger}
}

// dropLedgers leaves to the failure modes the charges of a request whose ledgers do not answer, and
// reports whether one is Closed. The others stay in the request; it reports whether there are some.
// The slot is asked for afterwards.
func (p *inquiry) dropLedgers(r *request.Request, cause error) (closed, others bool) {
	var rest []*request.Charge
	for _, c := range r.Charges {
		if c.Seeds {
			closed = closed || p.of(c).mode(cause) == FailClosed
		} else {
			rest = append(rest, c)
		}
	}
	if len(rest) == 0 {
		return closed, false
	}
	r.Charges = rest
	r.Receipts = true
	if r.Slot != nil {
		r.Slot.Sent = false
		r.Slot = nil
	}
	return closed, true
}

// seed waits until the keys of a request are seeded. It begins to seed those of the inquiry's other
// requests too, because the decision has one deadline for all ledgers.
func (g *Gate) seed(ctx context.Context, p *inquiry, r *request.Request) error {
	if p.seedBy.IsZero() {
		p.seedBy = time.Now().Add(g.cfg.Timeout)
	}
	var calls []*flight.Call
	for i := range p.wire {
		c := &p.wire[i]
		if !c.Seeds || c.answered() {
			continue
		}
		asked := Charge{Policy: c.from.policy, Key: c.key()}
		if c.from != asked.Policy.own {
			asked.Limit = c.from.own
		}
		call := g.ledgers.Call(ctx, c.from.policy, c.Path+c.Suffix, func(ctx context.Context) error {
			return g.askLedger(ctx, asked)
		})
		if slices.Contains(r.Charges, &c.Charge) {
			calls = append(calls, call)
		}
	}
	return g.ledgers.Wait(ctx, calls, p.seedBy, deadline.Patience(g.cfg.Timeout)-g.cfg.Timeout)
}

// seedKey waits until a key is seeded, for at most Config.Timeout.
func (g *Gate) seedKey(ctx context.Context, c Charge) error {
	p := newInquiry(algorithm.Peek, 0, moment{})
	defer p.release()
	if err := p.lay([]Charge{c}); err != nil {
		return err
	}
	return g.seed(ctx, p, &request.Request{Charges: p.whole[0].Charges})
}

// askLedger seeds a key with the figure of its ledger, unless another process has done so.
func (g *Gate) askLedger(ctx context.Context, c Charge) error {
	verdict, err := g.adjust(ctx, algorithm.Ask, c, time.Time{}, algorithm.Adjustment{})
	if err != nil || verdict == 0 {
		return err
	}
	start := time.Now()
	err = g.seedFrom(ctx, &c, time.UnixMicro(-verdict))
	g.tellKey(ctx, OpLedger, c.Policy, c.Key, err, start)
	if errors.Is(err, ErrPeriod) && !errors.Is(err, ErrLedger) {
		return nil // its period has ended: the decision asks again, for the present one
	}
	return err
}

// seedFrom asks the ledger of a key for the period of that time, and seeds the key.
func (g *Gate) seedFrom(ctx context.Context, c *Charge, now time.Time) error {
	limit, err := c.Policy.limitOf(c.Limit)
	if err != nil {
		return err
	}
	quota := algorithm.QuotaOf(limit.current()) // adjust has asked about it
	called, cancel := context.WithTimeout(ctx, ledgerTime)
	defer cancel()
	var period Span
	if _, from, until := algorithm.PeriodOf(quota, now.UnixMicro()); until > 0 {
		period = Span{time.UnixMicro(from), time.UnixMicro(until)}
	}
	var used int64
	err = safely(func() (err error) {
		used, err = c.Policy.cfg.Ledger(called, c.Key, period)
		return err
	})
	if err == nil && used < 0 {
		err = fmt.Errorf("it says that %d units are used", used)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrLedger, err)
	}
	k := algorithm.Adjustment{
		Units: min(used, algorithm.MaxCount), Seeds: algorithm.SeedsFirst,
	}
	_, err = g.adjust(ctx, algorithm.AtLeast, *c, now, k)
	return err
}
