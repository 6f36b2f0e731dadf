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

// askLedgers asks for a request again whose keys are to be seeded first. It leaves the charges whose
// ledgers do not answer to the failure modes, unless none is left then: its error is that of the
// ledgers. All of a decision's waits end within Config.Timeout.
func (g *Gate) askLedgers(
	ctx, caller context.Context, p *inquiry, one []request.Request,
) error {
	r := &one[0]
	for try := 0; r.Unseeded; try++ {
		var failed []*request.Charge
		var err error
		if try < ledgerTries {
			failed, err = g.seed(caller, p, r)
		} else {
			failed, err = slices.Clone(r.Charges), ErrLedger
		}
		if err != nil {
			err = request.Unsent{Err: err}
			if !errors.Is(err, ErrLedger) || !p.dropLedgers(r, failed, err) {
				return err
			}
		}
		within, err := g.raise(ctx, p, r) // the ledger may have raised limits
		if err == nil {
			err = g.send(within, one)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// dropLedgers leaves the charges of a request whose ledgers have failed to the failure modes. It
// changes nothing and reports false if no other is left. The slot is asked for afterwards.
func (p *inquiry) dropLedgers(
	r *request.Request, failed []*request.Charge, cause error,
) (others bool) {
	var rest []*request.Charge
	closed := false
	for _, c := range r.Charges {
		if c.Seeds && slices.Contains(failed, c) {
			closed = closed || p.of(c).mode(cause) == FailClosed
		} else {
			rest = append(rest, c)
		}
	}
	if len(rest) == 0 {
		return false
	}
	p.cause = cmp.Or(p.cause, cause)
	if p.admitted = p.admitted && !closed; !p.admitted {
		r.Op = algorithm.Peek
	}
	r.Charges = rest
	r.Receipts = true
	if r.Slot != nil {
		r.Slot.Sent = false
		r.Slot = nil
	}
	return true
}

// seed waits until the keys of a request are seeded. It begins to seed those of the inquiry's other
// requests too, because the decision has one deadline for all ledgers. With an error that wraps
// ErrLedger it returns the charges whose ledgers have failed.
func (g *Gate) seed(
	ctx context.Context, p *inquiry, r *request.Request,
) (failed []*request.Charge, err error) {
	if p.seedBy.IsZero() {
		p.seedBy = time.Now().Add(g.cfg.Timeout)
	}
	var charges []*request.Charge
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
			charges, calls = append(charges, &c.Charge), append(calls, call)
		}
	}
	more := deadline.Patience(g.cfg.Timeout) - g.cfg.Timeout
	for i, called := range g.ledgers.Wait(ctx, calls, p.seedBy, more) {
		switch {
		case called == nil:
		case !errors.Is(called, ErrLedger):
			return nil, called
		default:
			failed, err = append(failed, charges[i]), cmp.Or(err, called)
		}
	}
	return failed, err
}

// seedKey waits until a key is seeded, for at most Config.Timeout.
func (g *Gate) seedKey(ctx context.Context, c Charge) error {
	p := newInquiry(algorithm.Peek, 0, moment{})
	defer p.release()
	if err := p.lay([]Charge{c}); err != nil {
		return err
	}
	_, err := g.seed(ctx, p, &request.Request{Charges: p.whole[0].Charges})
	return err
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
	err = breaker.Safely(func() (err error) {
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
