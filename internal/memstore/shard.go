package memstore

import (
	"math"
	"sync"

	"github.com/headgate/headgate/internal/algorithm"
	"github.com/headgate/headgate/internal/request"
)

// evictionSample is the number of keys among which a full shard looks for the one to evict.
const evictionSample = 16

// shard is a part of the keys. A full one evicts, of a sample, the keys that have expired, or else
// the key with the least part of its limit spent. So to evict an exhausted key, an attacker must
// exhaust many others.
type shard struct {
	sync.Mutex
	keys map[name]*record
	most int

	_ [104]byte // processors fetch cache lines in pairs
}

// name names a state: by the path of its key, and the suffix of its limit.
type name struct{ key, suffix string }

func nameOf(c *request.Charge) name { return name{c.Path, c.Suffix} }

// record is one state.
type record struct {
	state  algorithm.State // or nil, if there is only what is kept beside it
	kept   *algorithm.Kept // or nil
	answer *answer         // or nil
}

// answer is the answer of a request, and until when it is kept.
type answer struct {
	text  []byte
	until int64
}

// expires returns when nothing of the record counts any more.
func (e *record) expires() int64 {
	last := e.kept.Expires()
	if e.state == nil {
		return last
	}
	return max(e.state.Expires(), last)
}

// spent returns the used part of the limit. What a caller has adjusted is lost last.
func (e *record) spent(now int64) float64 {
	if e.kept.IsAdjusted() {
		return 1
	}
	if e.state == nil || e.state.Expires() <= now {
		return 0
	}
	return e.state.Spent(now)
}

// add keeps the record of a new state, and makes room for it.
func (s *shard) add(n name, e *record, now int64) {
	if len(s.keys) >= s.most {
		s.evict(now)
	}
	s.keys[n] = e
}

// evict removes the expired states of a sample, or the state of it with the least part of its limit
// spent.
func (s *shard) evict(now int64) {
	var (
		first   name
		least   = math.Inf(1)
		expired bool
		seen    int
	)
	for n, e := range s.keys { // a map is walked from a random place
		if e.expires() <= now {
			delete(s.keys, n)
			expired = true
		} else if spent := e.spent(now); spent <= least {
			first, least = n, spent
		}
		if seen++; seen == evictionSample {
			break
		}
	}
	if !expired {
		delete(s.keys, first)
	}
}
