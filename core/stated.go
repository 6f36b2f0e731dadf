package core

import (
	"context"
	"encoding/json"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/algorithm"
	"github.com/headgate/headgate/internal/breaker"
	"github.com/headgate/headgate/internal/redisstore"
	"github.com/headgate/headgate/internal/request"
	"github.com/headgate/headgate/internal/stated"
)

const (
	statesSoon  = time.Second // after a policy is first used, with others that follow it
	statesAgain = time.Minute
)

// policyList is the policies that a Gate on Redis has used. It states them there, for tools: soon
// after each is first used, and again while the Gate is open. A nil list states nothing.
type policyList struct {
	tasks *breaker.Tasks
	write func([]*Policy) error

	mu  sync.Mutex
	all map[string][]*Policy // by name
	due bool                 // it states them soon
}

// mostOfOneName bounds the policies of one name that a list keeps.
const mostOfOneName = 8

func newPolicyList(tasks *breaker.Tasks, write func([]*Policy) error) *policyList {
	return &policyList{tasks: tasks, write: write, all: make(map[string][]*Policy)}
}

// add adds the policies of charges, which have been checked.
func (l *policyList) add(charges []Charge) {
	if l == nil {
		return
	}
	for i := range charges {
		if p := charges[i].Policy; p.stated.Load() != l {
			l.addOne(p)
		}
	}
}

func (l *policyList) addOne(p *Policy) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p.stated.Store(l)
	same := l.all[p.cfg.Name]
	if slices.Contains(same, p) || same == nil && len(l.all) == stated.Most {
		return
	}
	if len(l.all) == 0 {
		l.tasks.Go(l.stateAgain)
	}
	if len(same) == mostOfOneName { // a program makes new ones again and again
		same = slices.Delete(same, 0, 1)
	}
	l.all[p.cfg.Name] = append(same, p)
	if !l.due {
		l.due = true
		l.tasks.Go(l.stateSoon)
	}
}

// stateSoon tries again for a while if Redis does not answer.
func (l *policyList) stateSoon() {
	for pause := statesSoon; pause < statesAgain && l.tasks.Sleep(pause); pause *= 2 {
		if l.state() == nil {
			return
		}
	}
}

func (l *policyList) stateAgain() {
	for l.tasks.Sleep(statesAgain - rand.N(statesAgain/10)) {
		_ = l.state() // decisions do not need it
		l.forget()
	}
}

// forget keeps one policy of each name. The others come back when they are used again, so those that a
// program has replaced by new ones do not.
func (l *policyList) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for name, same := range l.all {
		last := len(same) - 1
		for _, p := range same[:last] {
			p.stated.CompareAndSwap(l, nil)
		}
		l.all[name] = same[last:]
	}
}

// state states the policies.
func (l *policyList) state() error {
	l.mu.Lock()
	l.due = false
	all := slices.Concat(slices.Collect(maps.Values(l.all))...)
	l.mu.Unlock()
	return breaker.Safely(func() error { return l.write(all) })
}

// statePolicies writes policies to Redis, or returns ErrCircuitOpen if the server is not asked at present.
func statePolicies(store *redisstore.Store, policies []*Policy) error {
	ctx := context.Background()
	if _, asked := store.Servers.Server(ctx, request.Outermost("", stated.Key)); !asked {
		return ErrCircuitOpen
	}
	lines := make([]string, 0, len(policies))
	for _, p := range policies {
		line, err := p.line()
		if err != nil {
			return err
		}
		lines = append(lines, line)
	}
	slices.Sort(lines)
	return store.StatePolicies(ctx, slices.Compact(lines))
}

// line returns what the list in Redis has of the policy.
func (p *Policy) line() (string, error) {
	limit, err := json.Marshal(p.cfg.Algorithm)
	if err != nil {
		return "", err
	}
	s := stated.Policy{
		Name: p.cfg.Name, Kind: typeOf(p.cfg.Algorithm), Limit: limit,
		Unit: uint8(p.cfg.Unit), Hold: p.cfg.Hold, Raisable: p.cfg.Raisable, Ledger: p.cfg.Ledger != nil,
		Shadow: p.cfg.Shadow, Varies: p.varies(),
	}
	if c, ok := p.cfg.Algorithm.(Calendar); ok && isNamed(c.In) {
		s.Zone = c.In.String()
	}
	return s.Line()
}

// isNamed reports whether tools that load a time zone by its name count in the periods of it, under
// the same key: that of time.UTC is another than that of a time.FixedZone of its name and offset.
func isNamed(in *time.Location) bool {
	if in.String() == time.UTC.String() {
		return in == time.UTC
	}
	return in != time.Local && algorithm.IsNamed(in)
}

// varies reports whether charges have limits of their own.
func (p *Policy) varies() bool { return p.planned.Load() || p.remembered.Load() > 0 }
