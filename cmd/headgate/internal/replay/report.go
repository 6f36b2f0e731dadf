package replay

import (
	"cmp"
	"slices"
	"time"

	"github.com/headgate/headgate/core"
)

// Report is what became of the requests of a log.
type Report struct {
	First, Last time.Time // of the requests, in UTC
	Requests    int64
	Refused     int64
	// Late are the requests that were earlier than one before them, and Latest is by how much at
	// most.
	Late    int64
	Latest  time.Duration
	Limits  []Limit  // by the names of their policies
	Skipped []string // names of limits that are for one model alone
	// Keys are those that were refused, the most refused first. Of more than maxKeys, those that came
	// later are counted in OtherKeys alone.
	Keys      []*Key
	OtherKeys int64 // denials

	byKey map[keyOf]*Key
}

// Limit is what one limit did.
type Limit struct {
	Policy    string
	Algorithm core.Algorithm
	Denied    int64
	First     time.Time // denial, or zero
	Exempt    int64     // requests without a part of its key
}

// Key is one key that a limit denied.
type Key struct {
	Policy      string
	Key         core.Key
	Denied      int64
	First, Last time.Time
}

type keyOf struct {
	policy string
	key    core.Key
}

// maxKeys bounds the keys that a Report tells of.
const maxKeys = 50_000

func newReport(rules []*rule, skipped []string) Report {
	r := Report{Skipped: skipped, byKey: make(map[keyOf]*Key)}
	for _, rule := range rules {
		r.Limits = append(r.Limits, Limit{Policy: rule.policy.Name(), Algorithm: rule.policy.Algorithm()})
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

// refuse counts a refusal.
func (r *Report) refuse(one *Refusal) {
	r.Refused++
	for _, d := range one.By {
		l := &r.Limits[slices.IndexFunc(r.Limits, func(l Limit) bool { return l.Policy == d.Policy })]
		if l.Denied == 0 {
			l.First = one.Time
		}
		l.Denied++
		name := keyOf{d.Policy, d.Key}
		k := r.byKey[name]
		switch {
		case k != nil:
		case len(r.Keys) >= maxKeys:
			r.OtherKeys++
			continue
		default:
			k = &Key{Policy: d.Policy, Key: d.Key, First: one.Time}
			r.byKey[name] = k
			r.Keys = append(r.Keys, k)
		}
		k.Denied++
		k.Last = one.Time
	}
}

// sort puts the keys in order.
func (r *Report) sort() {
	slices.SortFunc(r.Keys, func(a, b *Key) int {
		return cmp.Or(cmp.Compare(b.Denied, a.Denied), a.First.Compare(b.First),
			cmp.Compare(a.Key.String(), b.Key.String()), cmp.Compare(a.Policy, b.Policy))
	})
}
