package stored

import (
	"encoding/hex"
	"fmt"

	"github.com/headgate/headgate/internal/request"
)

// Sizes of an entry of lua/bundle/bundle.lua, in bytes.
const (
	shortEntry = 14
	longEntry  = 35
)

// Bucket is what is spent of one token or leaky bucket.
type Bucket struct {
	Usage
	// Level is the time until a bucket that refills is full, in microseconds and a fraction of them.
	// It is the units that are used of one that never refills.
	Level, Part, Denominator int64
	Frozen                   bool // nothing refills
}

// decodeBundle decodes the buckets of a key at a time in microseconds.
func decodeBundle(value string, now int64) (all []Bucket, err error) {
	for rest := value; rest != ""; {
		size := shortEntry
		if len(rest) > 6 && rest[6] > 127 {
			size = longEntry
		}
		if len(rest) < size {
			return nil, fmt.Errorf("%w: a bundle of %d bytes", errLayout, len(value))
		}
		all = append(all, decodeBucket(rest[:size], now))
		rest = rest[size:]
	}
	return all, nil
}

func decodeBucket(entry string, now int64) (b Bucket) {
	number := func(at int) (n int64) { // 7 bytes, the lowest first
		for i := at + 6; i >= at; i-- {
			n = n<<8 | int64(entry[i])
		}
		return n
	}
	head := entry[6]
	b.Label, b.Value = hex.EncodeToString([]byte(entry[:6])), hex.EncodeToString([]byte(entry))
	b.Algorithm, b.Denominator, b.Frozen = "bucket", 1, head%128 > 63
	arrival, since := number(7), int64(0)
	if len(entry) == longEntry {
		b.Part, b.Denominator, since = number(14), max(1, number(21)), number(28)
	}
	if b.Frozen {
		b.frozen(arrival, now)
	} else {
		b.Level = max(0, arrival-now)
		if arrival < now {
			b.Part = 0
		}
		b.Rest = micros(b.Level)
		if b.Part > 0 {
			b.Rest = micros(b.Level + 1)
		}
		b.at("full", arrival)
	}
	if since > 0 && !b.Frozen {
		b.at("refunds since", since-1)
	}
	return b
}

// frozen fills in a bucket that never refills. A denominator above 1 is when it is full again.
func (b *Bucket) frozen(arrival, now int64) {
	b.Algorithm, b.Known, b.Rest = Algorithm("tf2"), true, Never
	ends := b.Denominator
	b.Denominator = 1
	b.Level = arrival
	if ends > 1 {
		b.at("full", ends)
		if b.Rest = micros(max(0, ends-now)); b.Rest == 0 {
			b.Level = 0
		}
	}
	if b.Level == 0 {
		b.Rest = 0
	}
	b.Used = b.Level
}

// LabelOf returns the Label of the bucket of a policy under a tag.
func LabelOf(policy, tag string) string {
	return hex.EncodeToString([]byte(request.LabelOf(":" + policy + ":" + tag)))
}
