package core

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/breaker"
	"github.com/headgate/headgate/internal/redisstore"
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
	all map[string]*Policy
	due bool // it states them soon
}

func newPolicyList(tasks *breaker.Tasks, write func([]*Policy) error) *policyList {
	return &policyList{tasks: tasks, write: write, all: make(map[string]*Policy)}
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
	if l.all[p.name] == p || l.all[p.name] == nil && len(l.all) == stated.Most {
		return
	}
	if len(l.all) == 0 {
		l.tasks.Go(l.stateAgain)
	}
	l.all[p.name] = p
	if !l.due {
		l.due = true
		l.tasks.Go(l.stateSoon)
	}
}

func (l *policyList) stateSoon() {
	if l.tasks.Sleep(statesSoon) {
		l.state()
	}
}

func (l *policyList) stateAgain() {
	for l.tasks.Sleep(statesAgain - rand.N(statesAgain/10)) {
		l.state()
	}
}

// state states the policies. A failure is made up for a minute later: decisions do not need it.
func (l *policyList) state() {
	l.mu.Lock()
	l.due = false
	all := slices.Collect(maps.Values(l.all))
	l.mu.Unlock()
	_ = safely(func() error { return l.write(all) })
}

// statePolicies writes policies to Redis if the server is asked at present.
func statePolicies(
	store *redisstore.Store, answers func(ctx context.Context, outermost string) bool,
	policies []*Policy,
) error {
	outermost, _, _ := strings.Cut(stated.Key, ":")
	ctx := context.Background()
	if !answers(ctx, outermost) {
		return nil
	}
	lines := make([]string, 0, len(policies))
	for _, p := range policies {
		line, err := p.line()
		if err != nil {
			return err
		}
		lines = append(lines, line)
	}
	return store.StatePolicies(ctx, lines)
}

// line returns what the list in Redis has of the policy.
func (p *Policy) line() (string, error) {
	limit, err := json.Marshal(p.algorithm)
	if err != nil {
		return "", err
	}
	s := stated.Policy{
		Name: p.name, Kind: strings.TrimPrefix(fmt.Sprintf("%T", p.algorithm), "core."), Limit: limit,
		Unit: uint8(p.unit), Hold: p.hold, Raisable: p.raisable, Shadow: p.shadow, Varies: p.varies(),
	}
	if c, ok := p.algorithm.(Calendar); ok {
		s.Zone = c.In.String()
	}
	return s.Line()
}

// varies reports whether charges have had limits of their own.
func (p *Policy) varies() bool { return p.remembered.Load() > 0 }
