package replay

import (
	"cmp"
	"slices"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/inspect"
)

// Report is what became of the requests of a log.
type Report struct {
	First    time.Time `json:"first"` // of the requests, in UTC
	Last     time.Time `json:"last"`
	Requests int64     `json:"requests"`
	Refused  int64     `json:"refused"`
	// Late are the requests that were earlier than one before them, and Latest is by how much at
	// most.
	Late    int64         `json:"out_of_order"`
	Latest  time.Duration `json:"-"`
	Limits  []Limit       `json:"limits"`         // by the names of their policies
	Skipped []string      `json:"skipped_limits"` // that are for one model alone
	// Keys are those that were refused, the most refused first. Of more than maxKeys, those that came
	// later are counted in OtherKeys alone.
	Keys      []*Key `json:"keys"`
	OtherKeys int64  `json:"denials_of_other_keys"`

	byKey map[keyOf]*Key
}

// Limit is what one limit did.
type Limit struct {
	Policy string    `json:"policy"`
	Admits string    `json:"limit"` // in words
	Denied int64     `json:"denied"`
	First  time.Time `json:"first_denial,omitzero"`
	Exempt int64     `json:"requests_without_key"` // that lack a part of it
}

// Key is one key that a limit denied.
type Key struct {
	Policy string    `json:"policy"`
	Key    string    `json:"key"` // as inspect.FormatKey writes it
	Denied int64     `json:"denied"`
	First  time.Time `json:"first_denial"`
	Last   time.Time `json:"last_denial"`
}

type keyOf struct{ policy, key string }

// maxKeys bounds the keys that a Report tells of.
const maxKeys = 50_000

func newReport(rules []*rule, skipped []string) Report {
	r := Report{Skipped: append([]string{}, skipped...), Keys: []*Key{}, byKey: make(map[keyOf]*Key)}
	for _, rule := range rules {
		r.Limits = append(r.Limits, Limit{
			Policy: rule.policy.Name(), Admits: inspect.Describe(rule.policy.Algorithm()),
		})
	}
	return r
}

// request counts a request at a time in microseconds.
func (r *Report) request(now int64) {
	if r.Requests == 0 {
		r.First = time.UnixMicro(now).UTC()
	}
	r.Last = time.UnixMicro(now).UTC()
	r.Requests++
}

func (r *Report) late(by time.Duration) {
	r.Late++
	r.Latest = max(r.Latest, by)
}

// refuse counts a request that some of its charges deny.
func (r *Report) refuse(d *core.Decision, charges []core.Charge) {
	r.Refused++
	for i, result := range d.Results() {
		if !result.Allowed {
			r.deny(result.Policy.Name(), inspect.FormatKey(charges[i].Key))
		}
	}
}

// deny counts the denial of a key at the time of the last request.
func (r *Report) deny(policy, key string) {
	l := &r.Limits[slices.IndexFunc(r.Limits, func(l Limit) bool { return l.Policy == policy })]
	if l.Denied == 0 {
		l.First = r.Last
	}
	l.Denied++
	name := keyOf{policy, key}
	k := r.byKey[name]
	if k == nil {
		if len(r.Keys) >= maxKeys {
			r.OtherKeys++
			return
		}
		k = &Key{Policy: policy, Key: key, First: r.Last}
		r.byKey[name] = k
		r.Keys = append(r.Keys, k)
	}
	k.Denied++
	k.Last = r.Last
}

// sort puts the keys in order.
func (r *Report) sort() {
	slices.SortFunc(r.Keys, func(a, b *Key) int {
		return cmp.Or(cmp.Compare(b.Denied, a.Denied), a.First.Compare(b.First),
			cmp.Compare(a.Key, b.Key), cmp.Compare(a.Policy, b.Policy))
	})
}
