package request

import (
	"crypto/sha256"
	"hash/maphash"
	"math"
	"strings"

	"github.com/headgate/headgate/internal/algorithm"
)

// What follows the name of a state in the names of its holds, its adjustments and its answer, and what
// follows a key in the name of its bundle.
const (
	HoldsSuffix       = ":h2"
	AdjustmentsSuffix = ":a2"
	AnswerSuffix      = ":an1"
	BundleSuffix      = ":tb3"
)

// Kind is what the charges under one limit of a policy have in common.
type Kind struct {
	Suffix string // of the state's name, after the key: policy, algorithm and version
	Hash   uint64 // of Suffix
	// Stored follows the key in the name under which Redis has the state. Token buckets lie in the
	// bundle of the key; others have a name of their own, which ends in Suffix.
	Stored string
	// Label tells the state from the others in the bundle. It has 6 bytes; see LabelOf. It is empty
	// outside.
	Label string
	// Bucket is the label and the limit as lua/decide/buckets.lua reads them. It is empty if that
	// script cannot decide on the state.
	Bucket string
	// Fields is the number of integers in the limit's part of a reply. Merges says that the limit is
	// algorithm.Mergeable.
	Fields int
	Merges bool

	algorithm.Rules
}

var hashes = maphash.MakeSeed()

// KindOf returns the kind of the charges under a limit whose states have names that end in suffix.
func KindOf(suffix string, l algorithm.Limit) *Kind {
	k := &Kind{Suffix: suffix, Hash: maphash.String(hashes, suffix), Stored: suffix, Fields: l.Fields()}
	_, k.Merges = l.(algorithm.Mergeable)
	if bucket, ok := l.(*algorithm.TokenBucket); ok {
		k.Stored, k.Label = BundleSuffix, LabelOf(suffix)
		if packed := bucket.Packed(); packed != "" {
			k.Bucket = k.Label + packed
		}
	}
	return k
}

// Bare returns the kind without holds and adjustments.
func (k *Kind) Bare() *Kind {
	if !k.Beside() {
		return k
	}
	bare := *k
	bare.Rules = algorithm.Rules{Shadow: k.Shadow}
	return &bare
}

// Key is whose limit a charge counts against.
type Key struct {
	Path    string // its outermost part first
	Outer   int    // length of the outermost part, its braces included
	KeyHash uint64 // of Path
}

// Charge is a cost on one state, and what a store made of it.
type Charge struct {
	*Kind
	Key
	Limit algorithm.Limit
	Units int64
	Cost  algorithm.Cost // of the units, under the limit

	Correction *algorithm.Correction // of Settle and Renew
	Adjustment *algorithm.Adjustment // of Adjust and AtLeast; empty for Ask

	// The store fills in these. The last integer of the reply is the receipt.
	Reply  []int64
	Raises algorithm.Raises // of the limit, by its adjustments
	Fits   bool
	Spent  int64 // units
	Held   int64 // units of the state that are held, those of the charge included
}

// StateHash is a hash of Path and Suffix.
func (c *Charge) StateHash() uint64 { return c.KeyHash ^ c.Hash }

// Outermost is the part of the key that picks a hash slot.
func (k *Key) Outermost() string { return k.Path[:k.Outer] }

// Outermost returns the outermost part, its braces included, of the key in a name in Redis, which stands
// behind the prefix.
func Outermost(prefix, name string) string {
	return name[len(prefix) : strings.IndexByte(name, '}')+1]
}

// LabelOf returns the label of the states whose names end in suffix.
func LabelOf(suffix string) string {
	sum := sha256.Sum256([]byte(suffix))
	return string(sum[:6])
}

// SameState reports whether two charges are on one state.
func (c *Charge) SameState(o *Charge) bool { return c.Key == o.Key && c.Suffix == o.Suffix }

// Receipt is what gives the charge back. It is 0 if nothing was charged.
func (c *Charge) Receipt() int64 { return c.Reply[len(c.Reply)-1] }

// RaisedLimit returns the limit as the adjustments of the state have raised it.
func (c *Charge) RaisedLimit() algorithm.Limit {
	if len(c.Raises) == 0 {
		return c.Limit
	}
	return algorithm.QuotaOf(c.Limit).Raised(c.Raised(), c.Raises)
}

// Raised returns by how many units the adjustments raise the limit now.
func (c *Charge) Raised() int64 { return c.Raises.After(0) }

// Add raises the units of the charge, and stops at the largest number.
func (c *Charge) Add(units int64) { c.Units = min(c.Units, math.MaxInt64-units) + units }

// raise reads the raises of the charge's limit from a reply and returns what follows them. It
// reports false if the reply is too short.
func (c *Charge) raise(reply []int64) (rest []int64, ok bool) {
	c.Raises = nil
	if !c.Adjusts {
		return reply, true
	}
	if len(reply) == 0 || reply[0] < 0 || int64(len(reply)-1)/2 < reply[0] {
		return nil, false
	}
	n, rest := reply[0], reply[1:]
	for range n {
		c.Raises = append(c.Raises, algorithm.Raise{Left: rest[0], Units: rest[1]})
		rest = rest[2:]
	}
	return rest, true
}
