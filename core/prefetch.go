package core

import (
	"context"
	"fmt"
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/algorithm"
)

const (
	prefetchKeys  = 1024        // at a time
	prefetchLasts = time.Second // at most, from before it was charged
	prefetchTick  = prefetchLasts / 8
	prefetchWaits = 3 // and then it asks with all others
)

// checkPrefetch says what is wrong with PolicyConfig.Prefetch.
func checkPrefetch(cfg *PolicyConfig, own *limit) error {
	fault := func(format string, args ...any) error {
		return fmt.Errorf("core: PolicyConfig.Prefetch "+format, args...)
	}
	switch {
	case cfg.Prefetch == 0:
		return nil
	case cfg.Prefetch < 0:
		return fault("is %d: it must not be negative", cfg.Prefetch)
	case cfg.Shadow:
		return fault("is %d, but what only watches takes nothing ahead", cfg.Prefetch)
	case own == nil: // another fault
		return nil
	}
	current := own.current()
	switch {
	case !keeps(current):
		return fault("is %d, which is for a TokenBucket, LeakyBucket, FixedWindow or Calendar", cfg.Prefetch)
	case cfg.Prefetch > current.Capacity():
		return fault("is %d: it must be at most the limit, %d", cfg.Prefetch, current.Capacity())
	}
	return nil
}

// keeps says whether what a limit charged may be used later: all others count what every window that ends now holds.
func keeps(l algorithm.Limit) bool {
	switch l.(type) {
	case *algorithm.TokenBucket, *algorithm.FixedWindow, *algorithm.Period:
		return true
	}
	return false
}

// prefetches are what a process has taken ahead, of keys that were asked for twice within prefetchLasts. It is charged before
// it is used, and what is left is given back.
type prefetches struct {
	gate  *Gate
	clock func() time.Duration // never goes back
	slots [prefetchKeys]atomic.Pointer[stock]

	mu      sync.Mutex
	tended  bool
	closing chan struct{}
	close   func() // closes it, once
}

func newPrefetches(g *Gate) *prefetches {
	p := &prefetches{gate: g, clock: fromNow(), closing: make(chan struct{})}
	p.close = sync.OnceFunc(func() { close(p.closing) })
	return p
}

func (p *prefetches) slot(policy *Policy, key Key) *atomic.Pointer[stock] {
	return &p.slots[(key.number()^maphash.String(hashes, policy.name)*denialMixing)%prefetchKeys]
}

// take admits a charge by what is there of its key.
func (p *prefetches) take(ctx context.Context, charges []Charge, d *Decision) bool {
	if len(charges) != 1 || charges[0].Policy == nil || charges[0].Policy.prefetch == 0 || charges[0].Cost < 1 {
		return false
	}
	c := &charges[0]
	s := p.slot(c.Policy, c.Key).Load()
	if s == nil || s.left.Load() < c.Cost || !s.of(c.Policy, c.Key) || p.clock() >= s.until {
		return false
	}
	limit := s.charge.limit
	if c.Policy.forKey != nil {
		if now, err := c.Policy.limitOf(ctx, c.Key); err != nil || now.current() != limit {
			return false
		}
	}
	if !s.take(c.Cost) {
		return false
	}
	d.Allowed, d.Source = true, SourcePrefetch
	d.resize(1)
	d.at(0).Policy = c.Policy
	d.at(0).prefetched(limit)
	return true
}

// serves says whether more may be charged than requests ask for: for a single charge.
func (p *prefetches) serves(requests []request) bool {
	r := &requests[0]
	if len(requests) > 1 || !r.ahead || r.op != algorithmDecide || r.receipts || r.slot != nil {
		return false
	}
	c := &r.charges[0]
	return c.units >= 1 && 2*c.units <= min(c.policy.prefetch, c.limit.Capacity()) && keeps(c.limit)
}

// decide asks the store, and where a key is hot, also for what it will need next. Those who come meanwhile wait for that, and what
// they want is asked for by the next of them.
func (p *prefetches) decide(ctx context.Context, requests []request) error {
	r := &requests[0]
	c, store := &r.charges[0], p.gate.store
	slot := p.slot(c.policy, c.key)
	for range prefetchWaits {
		now, s := p.clock(), slot.Load()
		first := &stock{policy: c.policy, key: c.key, until: now + prefetchLasts, waiting: new(atomic.Int64)}
		if s == nil {
			slot.CompareAndSwap(nil, first)
			break
		}
		if now >= s.until && s.left.Load() == 0 {
			if b := s.begin(); b != nil {
				slot.CompareAndSwap(s, first)
				s.end(b)
			}
			break
		}
		if now >= s.until || !s.of(c.policy, c.key) || s.charge.limit != nil && s.charge.limit != c.limit {
			break
		}
		if s.take(c.units) {
			r.verdict, c.answered, c.fits, c.here = 0, true, true, true
			return nil
		}
		if b := s.begin(); b != nil {
			if slot.Load() == s {
				return p.fill(ctx, r, now, slot, s, b)
			}
			s.end(b)
			continue
		}
		if came, err := s.wait(ctx, c.units); err != nil {
			return err
		} else if !came {
			break
		}
	}
	return store.decide(ctx, requests)
}

// fill decides a request by asking for it several times at once. What was left of the stock before is given back first, so that
// nothing of what is denied is held here.
func (p *prefetches) fill(ctx context.Context, r *request, now time.Duration, slot *atomic.Pointer[stock], s *stock, b *busy) error {
	b.dry = true
	defer s.end(b)
	units := r.charges[0].units
	ahead := r.charges[0].policy.prefetch
	most := min(ahead+min(s.waiting.Load(), ahead), r.charges[0].limit.Capacity())
	all := []request{{op: algorithmAtMost, bound: most / units, charges: r.charges, receipts: true}}
	if rest := s.left.Swap(0); rest > 0 {
		all = slices.Insert(all, 0, request{op: algorithmGive, charges: []charge{s.back(rest)}})
		defer p.gate.cache.lifting(s.charge.number)()
	}
	if err := p.gate.store.decide(ctx, all); err != nil {
		return err
	}
	granted := all[len(all)-1].verdict
	if granted == 0 {
		r.verdict = 1
		return nil
	}
	r.verdict = 0
	c := r.charges[0]
	next := &stock{policy: c.policy, key: c.key, charge: c, until: now + prefetchLasts, waiting: s.waiting}
	if _, bucket := c.limit.(*algorithm.TokenBucket); !bucket {
		// Not beyond the window, whose end is when there is more again than nothing.
		next.until = now + min(prefetchLasts, c.limit.Read(c.reply, c.limit.Cost(c.limit.Capacity()), 1).NextAfter)
	}
	next.left.Store((granted - 1) * units)
	if slot.CompareAndSwap(s, next) { // else the key was reset, and what was spent of it forgotten
		b.dry = granted == 1
		p.attend()
	}
	return nil
}

// attend sees to it that what is left is given back.
func (p *prefetches) attend() {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.gate.closed.Load(): // nobody waits for what begins in the background now
		p.giveBack(context.Background(), true)
	case !p.tended:
		p.tended = true
		p.gate.tasks.run(p.tend)
	}
}

func (p *prefetches) tend() {
	tick := time.NewTicker(prefetchTick)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-p.closing:
			return
		}
		p.giveBack(context.Background(), false)
		if p.idle() {
			return
		}
	}
}

// idle says whether nothing is left to be tended.
func (p *prefetches) idle() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tended = false
	for i := range p.slots {
		s := p.slots[i].Load()
		p.tended = p.tended || s != nil && s.left.Load() > 0
	}
	return !p.tended
}

// giveBack gives back what is left of stocks that are too old, or of all.
func (p *prefetches) giveBack(ctx context.Context, all bool) {
	for i := range p.slots {
		s := p.slots[i].Load()
		if s == nil || !all && p.clock() < s.until || ctx.Err() != nil {
			continue
		}
		b := s.begin()
		if b == nil {
			continue
		}
		p.slots[i].CompareAndSwap(s, nil)
		if rest := s.left.Swap(0); rest > 0 {
			p.gate.give(ctx, []request{{op: algorithmGive, charges: []charge{s.back(rest)}}})
		}
		s.end(b)
	}
}

// stop gives everything back. What comes later is given back by whoever it comes to.
func (p *prefetches) stop(ctx context.Context) {
	if p == nil {
		return
	}
	p.close()
	p.giveBack(ctx, true)
}

// resetting is called before a key is reset, and what it returns after that, with whether it was: what was taken ahead before is
// void then, and not given back.
func (p *prefetches) resetting(policy *Policy, key Key) (done func(reset bool)) {
	if p == nil || policy.prefetch == 0 {
		return func(bool) {}
	}
	slot := p.slot(policy, key)
	s := slot.Load()
	var b *busy
	for s != nil && b == nil {
		if b = s.begin(); b == nil {
			_, _ = s.wait(context.Background(), 0) // it ends by its own deadline
		}
	}
	return func(reset bool) {
		if now := slot.Load(); reset && now != nil && now.policy.name == policy.name && now.key == key && slot.CompareAndSwap(now, nil) {
			now.left.Store(0)
		}
		if s != nil {
			s.end(b)
		}
	}
}
