package inspect

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/hub"
	"github.com/headgate/headgate/internal/stated"
)

// Stated is a policy as programs state it in Redis: each Gate does so soon after it has first used
// the policy, and then every minute.
type Stated struct {
	Name string
	// Policy has a Ledger that fails where that of a program has one. Where this version cannot read
	// the limit, Err says why, and Policy is for limits of a plan alone, or nil.
	Policy   *core.Policy
	Raisable bool // in every program
	// Varies says that charges under the policy may have limits of their own, such as those of a
	// core.Plan, or that programs state different limits. What holds for a key is then not known from here.
	Varies bool
	Err    error
}

// Stated returns the policies that programs state below the prefix of the Gate, by their names. A
// policy that no program has stated for an hour is missing. In memory the list is nil: programs have
// no other way to know it.
func (i *Inspector) Stated(ctx context.Context) ([]Stated, error) {
	client, ok := i.hub.Client.(redis.UniversalClient)
	if !ok {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, statedWithin)
	defer cancel()
	return ReadStated(ctx, client, i.hub.Prefix)
}

// ReadStated returns the policies that programs state below a prefix, which ends in a colon.
func ReadStated(ctx context.Context, client redis.Cmdable, prefix string) ([]Stated, error) {
	text, err := client.Get(ctx, prefix+stated.Key).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, Explain(fmt.Errorf("inspect: the policies that programs state: %w", err))
	}
	list, err := stated.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("inspect: %w", err)
	}
	all := []Stated{}
	for _, p := range list {
		if strings.HasSuffix(p.Name, ".once") { // of a once.Once, which is no limit
			continue
		}
		s := Stated{Name: p.Name, Raisable: p.Raisable, Varies: p.Varies}
		s.Policy, s.Err = policyOf(&p)
		all = append(all, s)
	}
	return all, nil
}

// Find returns the policy of a name that programs state. The error says that none of them does.
func Find(all []Stated, name string) (*Stated, error) {
	for i := range all {
		if all[i].Name == name {
			return &all[i], nil
		}
	}
	return nil, fmt.Errorf("no program states a policy %q: %s", name, StatedNames(all))
}

// StatedNames says which policies programs state.
func StatedNames(all []Stated) string {
	if len(all) == 0 {
		return "no program has stated its policies within the last hour"
	}
	var names []string
	for _, s := range all {
		names = append(names, s.Name)
	}
	return "programs state " + strings.Join(names, ", ")
}

// HeedBlocks returns why programs that state these policies would not heed a block under one of
// them, or nil.
func HeedBlocks(all []Stated, name string) error {
	s, err := Find(all, name)
	if err != nil {
		return err
	}
	if s.Err != nil {
		return &UnknownLimit{Policy: name, Err: s.Err}
	}
	if _, blocks := s.Policy.Algorithm().(core.Block); !blocks {
		return fmt.Errorf("%s is no Block (%s), so no program heeds the block",
			name, Describe(s.Policy.Algorithm()))
	}
	if s.Policy.Shadow() {
		return fmt.Errorf("%s is Shadow in the program, so it blocks nobody", name)
	}
	return nil
}

// HeedRaises returns why programs that state these policies would not heed a raise under one of
// them, or nil.
func HeedRaises(all []Stated, name string) error {
	s, err := Find(all, name)
	if err == nil && !s.Raisable {
		err = fmt.Errorf("%s is not Raisable in the program, so no raise counts", name)
	}
	return err
}

// policyOf returns the policy that is stated, with another limit if that cannot be read.
func policyOf(s *stated.Policy) (*core.Policy, error) {
	cfg := core.PolicyConfig{
		Name: s.Name, Unit: core.Unit(s.Unit), Hold: s.Hold, Raisable: s.Raisable, Shadow: s.Shadow,
	}
	if s.Ledger {
		cfg.Ledger = func(context.Context, core.Key, core.Span) (int64, error) { return 0, errForeignLedger }
	}
	unread := fmt.Errorf("inspect: %s is a limit that this version does not know", s.Kind)
	if read := kinds[s.Kind]; read != nil {
		cfg.Algorithm, unread = read(s)
	}
	if unread != nil {
		cfg.Algorithm = core.DenyAll{}
	}
	p, err := core.NewPolicy(cfg)
	return p, cmp.Or(unread, err)
}

var errForeignLedger = errors.New("only the program can ask its ledger")

// kinds read the limits that programs state, by the names of their types.
var kinds = map[string]func(*stated.Policy) (core.Algorithm, error){
	"TokenBucket": figures[core.TokenBucket], "LeakyBucket": figures[core.LeakyBucket],
	"FixedWindow": figures[core.FixedWindow], "SlidingWindow": figures[core.SlidingWindow],
	"SlidingLog": figures[core.SlidingLog], "Block": figures[core.Block],
	"Unlimited": figures[core.Unlimited], "DenyAll": figures[core.DenyAll], "Calendar": calendarOf,
}

func figures[A core.Algorithm](s *stated.Policy) (core.Algorithm, error) {
	var a A
	err := json.Unmarshal(s.Limit, &a)
	return a, err
}

func calendarOf(s *stated.Policy) (core.Algorithm, error) {
	var c core.Calendar
	err := json.Unmarshal(s.Limit, &c)
	if err == nil && s.Zone == "" {
		err = errors.New("inspect: its periods are in a time zone of the program's own")
	}
	if err == nil {
		c.In, err = time.LoadLocation(s.Zone)
	}
	if err == nil && !c.Anchor.IsZero() {
		c.Anchor = c.Anchor.In(c.In)
	}
	return c, err
}

// UnknownLimit is why a limit of a subject is not known: its program gives keys limits of their own
// under the policy, states a limit that this version cannot read, or has yet to ask its ledger.
type UnknownLimit struct {
	Policy string
	Err    error // why what is stated cannot be read, one that wraps core.ErrLedger, or nil
}

func (e *UnknownLimit) Error() string {
	return fmt.Sprintf("the limit of this key under %s is not known: %s", e.Policy, e.why())
}

func (e *UnknownLimit) why() string {
	switch {
	case errors.Is(e.Err, core.ErrLedger):
		return "the next request asks the ledger of the program"
	case e.Err != nil:
		return e.Err.Error()
	}
	return "programs give keys limits of their own"
}

func (e *UnknownLimit) Unwrap() error { return e.Err }

// statedWithin bounds the question which policies are stated.
const statedWithin = 2 * time.Second

// varying asks which policies programs state, and returns those under which the limit of a subject is
// not known, unless the plan names it. If Redis has not answered before, it is not asked again.
func (i *Inspector) varying(ctx context.Context, s *Subject, plan core.Plan) map[string]bool {
	if s.Outage != nil || len(s.Faults) > 0 {
		return nil
	}
	var err error
	s.Stated, err = i.Stated(ctx)
	s.fault("which policies programs state", err)
	if plan != nil && !i.cfg.Partial {
		return nil
	}
	names := make(map[string]bool)
	for _, one := range s.Stated {
		names[one.Name] = one.Varies
	}
	for _, p := range i.cfg.Policies {
		if core.Inside(hub.Pass{}).Varies(p) {
			names[p.Name()] = true
		}
	}
	return names
}
