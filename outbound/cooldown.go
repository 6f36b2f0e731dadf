package outbound

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/hub"
	"github.com/headgate/headgate/outbound/internal/signal"
)

// Names of policies, which no rule may have.
const (
	coolingName = "cooldown"
	spentName   = "spent"
)

// backoffName names the policy that counts cooldowns of a guessed length.
const backoffName = "backoff"

// maxAsks is the most keys whose cooldowns a request obeys: those of its account and of its model.
const maxAsks = 2

const (
	// shortestCooldown is as short as a wait in Redis can be told from none.
	shortestCooldown = time.Millisecond
	// longestCooldown bounds a cooldown, so that a header that is wrong stops an account for a day at
	// most.
	longestCooldown = 24 * time.Hour
)

// An account that is spent, and does not tell until when, is asked again after these times.
const (
	firstSpent = time.Minute
	mostSpent  = 16 * time.Minute
)

// A cooldown is a debt of a bucket that gets a token each microsecond: a request needs one, and is
// denied for as long as the bucket owes some. So a request asks about cooldowns in the short form of
// the script that decides its rules, in which a core.Block has no place.
const (
	coolingPer   = time.Microsecond
	coolingBurst = int64(time.Second / coolingPer) // far more than a batch has requests
)

// cooling is the limit of a key that cools for so long.
func cooling(rest time.Duration) core.TokenBucket {
	owes := int64((rest + coolingPer - 1) / coolingPer)
	return core.TokenBucket{Rate: 1, Per: coolingPer, Burst: coolingBurst + owes}
}

// restOf returns for how long a key cools whose bucket has that result.
func restOf(r core.Result) time.Duration {
	return max(0, r.ResetAfter-time.Duration(coolingBurst)*coolingPer)
}

// cooldowns are the keys that upstreams have refused, in the Gate.
type cooldowns struct {
	gate   *core.Gate
	policy *core.Policy // asked by every request
	// backoff has the lengths of guessed cooldowns, and spent the keys that cool because they are
	// spent. Only refusals, and requests that a cooldown denies, ask for them.
	backoff, spent blocked

	known   known // cooldowns that this process knows
	cooled  marks // keys that may have guessed cooldowns, and when this process learned that
	strains marks // keys that others use up, and when a response last told so
	crowds  marks // keys whose requests lately had no room, and when
	doubts  marks // accounts that one response calls spent, which is to be told twice, and when
}

// blocked are keys under a core.Block. A strike blocks one for a time that doubles.
type blocked struct {
	policy *core.Policy
	list   *core.Blocklist
}

func newCooldowns(g *core.Gate, b Backoff) (*cooldowns, error) {
	policy, err := core.NewPolicy(core.PolicyConfig{Name: coolingName, Algorithm: cooling(0)})
	if err != nil {
		return nil, wrapped(err)
	}
	backoff, err := newBlocked(g, backoffName, core.Block{
		Strikes: 1, Within: time.Second, For: b.First, Most: b.Most,
	})
	if err != nil {
		return nil, err
	}
	spent, err := newBlocked(g, spentName, core.Block{
		Strikes: 1, Within: time.Second, For: firstSpent, Most: mostSpent, Forgive: mostSpent,
	})
	return &cooldowns{gate: g, policy: policy, backoff: backoff, spent: spent}, err
}

func newBlocked(g *core.Gate, name string, b core.Block) (k blocked, err error) {
	k.policy, err = core.NewPolicy(core.PolicyConfig{Name: name, Algorithm: b})
	if err == nil {
		k.list, err = core.NewBlocklist(g, k.policy)
	}
	if err != nil {
		err = fmt.Errorf("outbound: Config.Backoff: %w", err)
	}
	return k, err
}

// asks returns the keys whose cooldowns a request obeys, that of the account first.
func (c *cooldowns) asks(asks []core.Key, account core.Key, model string) ([]core.Key, error) {
	asks = append(asks, account)
	if model == "" {
		return asks, nil
	}
	key, err := below(account, model)
	return append(asks, key), err
}

// ask returns the charge that asks whether a key cools.
func (c *cooldowns) ask(key core.Key) core.Charge {
	return core.Charge{Policy: c.policy, Key: key, Cost: core.NoCost}
}

// These are hub.Mark and hub.Forgive.
var (
	mark    = hub.Mark.(func(context.Context, *core.Gate, *core.Policy, core.Key) error)
	forgive = hub.Forgive.(func(context.Context, *core.Gate, *core.Policy, core.Key) error)
)

// refused begins the cooldown of a refusal, and returns how long it lasts. A refusal that says
// nothing of other requests begins none, and lasts for the wait that it tells, or core.Never.
func (x *exchange) refused(status int, s signal.Signal) time.Duration {
	if s.Apart {
		return cmp.Or(s.Wait, core.Never)
	}
	ctx, c := context.WithoutCancel(x.req.Context()), x.t.cool
	if s.Doubtful && !c.doubts.within(x.account(), mostSpent) {
		c.doubts.add(x.account(), time.Now())
		return core.Never
	}
	e := CooldownEvent{
		Request: x.given, Key: x.scope(s), Status: status, Spent: s.Spent, Guessed: guessed(s),
	}
	c.cooled.add(e.Key, time.Now())
	c.strains.add(e.Key, time.Now())
	e.For, e.Err = x.cool(s)
	if x.t.cfg.Observe != nil {
		x.t.observe(ctx, &e)
	}
	return e.For
}

// guessed reports whether a refusal tells no wait. One whose wait is over tells none.
func guessed(s signal.Signal) bool { return !s.HasWait || s.Wait <= 0 }

// scope returns the key that a refusal concerns.
func (x *exchange) scope(s signal.Signal) core.Key {
	if s.Model || guessed(s) && !s.Spent {
		return x.narrowest()
	}
	return x.account()
}

// cool lets the key of a refusal cool, and returns for how long it does.
func (x *exchange) cool(s signal.Signal) (rest time.Duration, err error) {
	ctx, c, key := context.WithoutCancel(x.req.Context()), x.t.cool, x.scope(s)
	wait := min(max(s.Wait, shortestCooldown), longestCooldown)
	switch {
	case guessed(s) && s.Spent:
		wait, err = c.guess(ctx, &c.spent, key)
	case guessed(s):
		wait, err = c.guess(ctx, &c.backoff, key)
	case s.Spent:
		err = c.spent.list.Block(ctx, key, wait)
	}
	rest, failed := c.cool(ctx, key, wait, s.Spent)
	return rest, cmp.Or(failed, err)
}

// guess returns how long a key cools that has been refused without a wait.
func (c *cooldowns) guess(ctx context.Context, b *blocked, key core.Key) (time.Duration, error) {
	failed := mark(ctx, c.gate, b.policy, key)
	d, err := c.gate.Decide(ctx, core.Charge{Policy: b.policy, Key: key, Cost: core.NoCost})
	return d.RetryAfter(), cmp.Or(failed, err)
}

// cool lets a key cool for that long, or for longer if it does already, and returns how long that
// is. It spends what is left under a limit that is higher by the cooldown, in one step, so that of
// several cooldowns the one that ends last holds.
func (c *cooldowns) cool(
	ctx context.Context, key core.Key, wait time.Duration, spent bool,
) (time.Duration, error) {
	if wait <= 0 {
		return 0, nil
	}
	limit := cooling(wait)
	charge := core.Charge{Policy: c.policy, Key: key, Limit: limit}
	_, d, err := c.gate.SpendUpTo(ctx, limit.Burst, charge)
	if err != nil {
		return 0, err
	}
	rest := restOf(d.At(0))
	c.known.add(key, rest, spent, &d)
	return rest, nil
}

// spentOf reports which of the keys that cool for these times do so because they are spent. A rest
// of 0 is that of a key that does not cool.
func (c *cooldowns) spentOf(
	ctx context.Context, keys []core.Key, rests *[maxAsks]time.Duration, d *core.Decision,
) (spent [maxAsks]bool) {
	var charges [maxAsks]core.Charge
	var of [maxAsks]int
	n := 0
	for i, key := range keys {
		if rests[i] == 0 {
			continue
		}
		known := false
		if spent[i], known = c.known.spent(key, rests[i]); !known {
			charges[n] = core.Charge{Policy: c.spent.policy, Key: key, Cost: core.NoCost}
			of[n] = i
			n++
		}
	}
	if n > 0 {
		// If it fails, the keys cool without a reason.
		if why, err := c.gate.Decide(ctx, charges[:n]...); err == nil {
			for j := range n {
				spent[of[j]] = !why.At(j).Allowed
			}
		}
	}
	for i, key := range keys {
		if rests[i] > 0 {
			c.known.add(key, rests[i], spent[i], d)
		}
	}
	return spent
}

// served lets the next guessed cooldowns of a request be short again, because the upstream has
// taken it: its response is no refusal and no error of the server. It was sent at that time.
func (x *exchange) served(sent time.Time) {
	c := x.t.cool
	c.doubts.take(x.account(), sent)
	for _, key := range x.asks {
		if c.cooled.take(key, sent) {
			ctx := context.WithoutCancel(x.req.Context())
			x.t.tasks.Go(func() { _ = forgive(ctx, c.gate, c.backoff.policy, key) }) // they stay long
		}
	}
}
