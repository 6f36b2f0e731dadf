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
	keys map[uint64]*record // by the hash of key and suffix
	most int

	_ [104]byte // processors fetch cache lines in pairs
}

// record is the state of one key and suffix. Records of equal hashes form a list.
type record struct {
	key, suffix string
	algorithm.Kept
	answer *answer // or nil
	next   *record
}

// answer is the answer of a request, and until when it is kept.
type answer struct {
	text  []byte
	until int64
}

// spent returns the used part of the limit. What a caller has adjusted is lost last.
func (e *record) spent(now int64) float64 {
	if !e.Adjustments.Empty() {
		return 1
	}
	if e.State == nil || e.State.Expires() <= now {
		return 0
	}
	return e.State.Spent(now)
}

// record returns the record of the state of a charge, or nil.
func (s *shard) record(c *request.Charge) *record {
	e := s.keys[c.StateHash()]
	for e != nil && (e.key != c.Path || e.suffix != c.Suffix) {
		e = e.next
	}
	return e
}

// add keeps the record of a new key, and makes room for it.
func (s *shard) add(hash uint64, e *record, now int64) {
	if len(s.keys) >= s.most {
		s.evict(now)
	}
	e.next = s.keys[hash]
	s.keys[hash] = e
}

// evict removes the expired keys of a sample, or the key of it with the least part of its limit
// spent.
func (s *shard) evict(now int64) {
	var (
		first   *record
		hashed  uint64 // of first
		least   = math.Inf(1)
		expired bool
		seen    int
	)
	for hash, e := range s.keys { // a map is walked from a random place
		if e.Expires() <= now {
			s.remove(hash, e)
			expired = true
		} else if spent := e.spent(now); spent <= least {
			first, hashed, least = e, hash, spent
		}
		if seen++; seen == evictionSample {
			break
		}
	}
	if !expired {
		s.remove(hashed, first)
	}
}

// remove removes a record. One that is not there is one that add has evicted.
func (s *shard) remove(hash uint64, gone *record) {
	before := s.keys[hash]
	switch {
	case before != gone:
		for ; before != nil; before = before.next {
			if before.next == gone {
				before.next = gone.next
				return
			}
		}
	case gone.next == nil:
		delete(s.keys, hash)
	default:
		s.keys[hash] = gone.next
	}
}
