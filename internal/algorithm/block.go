package algorithm

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// BlockTag is the Tag of every Block.
const BlockTag = "bl1"

// MaxStrikes is the largest number of strikes of a Block.
const MaxStrikes = 100

// Block admits everything until a key has had a number of strikes within a time, and then nothing
// for a while. Its units are strikes. A cost of 0 asks whether the key is blocked. The fraction of
// a cost is no fraction: see ByHand and Since. A block has a reason, a number from 0 to 9, which
// the block that ends last has stated.
type Block struct {
	traits
	strikes int64
	within  int64 // microseconds, as all below
	first   int64
	most    int64
	forgive int64

	untouched []int64 // see Untouched
}

// NewBlock validates a block: after that many strikes within a time a key is blocked for the length
// first, and for twice the last one if it was blocked before, up to most. A key whose last block
// has ended for as long as forgive starts again with first. NewBlock returns every fault at once.
func NewBlock(strikes int64, within, first, most, forgive time.Duration) (*Block, error) {
	err := errors.Join(
		faultIf(strikes < 1 || strikes > MaxStrikes, "Strikes",
			"is %d: it must be between 1 and %d", strikes, MaxStrikes),
		checkWindow("Within", within), checkWindow("For", first), checkWindow("Most", most),
		faultIf(most < first, "Most", "is %v: it must be at least For, which is %v", most, first),
		checkWindow("Forgive", forgive),
	)
	if err != nil {
		return nil, err
	}
	b := &Block{
		traits:  traits{tag: BlockTag, script: "block", fields: 7, denominator: MaxUnits},
		strikes: strikes, within: within.Microseconds(),
		first: first.Microseconds(), most: most.Microseconds(), forgive: forgive.Microseconds(),
	}
	b.untouched = b.NewState().Reply(Cost{}, nil)
	return b, nil
}

// Untouched returns the reply to a charge without a cost on a key that has no state. It is not to be
// changed.
func (b *Block) Untouched() []int64 { return b.untouched }

func (b *Block) Cost(n int64) Cost     { return Cost{min(n, b.strikes), 0} }
func (b *Block) Capacity() int64       { return b.strikes }
func (b *Block) Window() time.Duration { return micros(b.first) }

func (b *Block) Parameters(args []int64) []int64 {
	return append(args, 0, b.strikes, b.within, b.first, b.most, b.forgive)
}

// Share returns the block itself: a process that decides alone sees only its own strikes.
func (b *Block) Share(int64) Limit { return b }

// Most returns how long a block lasts at most, unless it is one by hand.
func (b *Block) Most() time.Duration { return micros(b.most) }

const (
	reasons = 1000 // a cost has its reason in thousands of its whole number
	levels  = 100  // a state has its reason in hundreds of its level
)

// ByHand is the cost that blocks a key for a time, whatever its strikes are.
func (b *Block) ByHand(d time.Duration, reason int64) Cost {
	return Cost{reason * reasons, d.Microseconds()}
}

// Since is the cost of a strike that counts unless a block has begun in the time before it, which is
// above 0.
func (b *Block) Since(d time.Duration, reason int64) Cost {
	return Cost{1 + reason*reasons, max(1, d.Microseconds())}
}

const (
	// AllStrikes is the receipt by which Give forgets every strike. It lifts no block.
	AllStrikes = 1
	// LastBlock is the receipt by which Give forgives the last block if it has ended. It forgets no
	// strike.
	LastBlock = 2
)

// block is the state of one key.
type block struct {
	kept, found blocked

	of           *Block
	now, expires int64
}

// blocked is a block, over or not, and the strikes after it.
type blocked struct {
	until   int64 // when the last block ends; 0 if there was none, or it is forgiven
	length  int64 // of that block
	level   int64 // how often the length has doubled for the next one, and its reason
	strikes []int64
}

func (b *Block) NewState() State { return &block{of: b} }

func (s *block) Expires() int64 { return s.expires }
func (s *block) Empty() bool    { return s.kept.until == 0 && len(s.kept.strikes) == 0 }

func (s *block) Value() string {
	var text strings.Builder
	fmt.Fprint(&text, s.kept.until, s.kept.length, s.kept.level)
	for _, at := range s.kept.strikes {
		fmt.Fprint(&text, " ", at)
	}
	return text.String()
}

// BlockedUntil returns when the block of a stored value ends, in microseconds.
func BlockedUntil(value string) (until int64, ok bool) {
	first, _, _ := strings.Cut(value, " ")
	until, err := strconv.ParseInt(first, 10, 64)
	return until, err == nil
}

func (s *block) Spent(now int64) float64 {
	if s.kept.until > now {
		return 1
	}
	return float64(len(s.kept.strikes)) / float64(s.of.strikes)
}

// Find implements Limit. What lies in the future, because the clock stepped back, is moved to now:
// strikes, and the beginning of a block.
func (b *Block) Find(st State, now int64) (changed bool) {
	s := st.(*block)
	f := &s.found
	*f = blocked{s.kept.until, s.kept.length, s.kept.level, f.strikes[:0]}
	s.of, s.now = b, now
	if f.until > now+f.length {
		f.until, changed = now+f.length, true
	}
	if f.until > 0 && now-f.until >= b.forgive {
		f.until, f.length, f.level = 0, 0, 0
	}
	for _, at := range s.kept.strikes {
		if at > now {
			at, changed = now, true
		}
		if at > now-b.within {
			f.strikes = append(f.strikes, at)
		}
	}
	if changed {
		s.keep()
	}
	return changed
}

// keep stores what was found.
func (s *block) keep() {
	s.kept = s.found
	s.kept.strikes = slices.Clone(s.found.strikes)
	s.expires = 0
	if s.kept.until > 0 {
		s.expires = s.kept.until + s.of.forgive
	}
	if n := len(s.kept.strikes); n > 0 {
		s.expires = max(s.expires, s.kept.strikes[n-1]+s.of.within)
	}
}

// next returns how long the next block lasts.
func (s *block) next() int64 {
	length := s.of.first
	for range s.found.level % levels {
		length = min(2*length, s.of.most)
	}
	return length
}

// Reply implements State: strikes, time until the block ends, time until the oldest strike is too
// old, time until the youngest is, length of the next block, reason, receipt.
func (s *block) Reply(_ Cost, reply []int64) []int64 {
	oldest, youngest := int64(0), int64(0)
	if n := len(s.found.strikes); n > 0 {
		fresh := s.of.within - s.now
		oldest, youngest = s.found.strikes[0]+fresh, s.found.strikes[n-1]+fresh
	}
	return append(reply, int64(len(s.found.strikes)), max(0, s.found.until-s.now), oldest, youngest,
		s.next(), s.found.level/levels, 0)
}

// Fits implements State. A strike fits unless the key is blocked: it is the one after it that does
// not.
func (s *block) Fits(Cost, Terms) bool { return s.found.until <= s.now }

// Commit implements State. Strikes of a blocked key do not count: its requests under way would make
// the next block longer.
func (s *block) Commit(c Cost, t Terms) (receipt int64) {
	b, f := s.of, &s.found
	reason, strikes := c.Whole/reasons, c.Whole%reasons
	if t.Op == AtMost { // a multiple of a shadow's strikes may be large, and has no reason
		reason, strikes = 0, c.Whole
	}
	switch {
	case c.Fraction > 0 && strikes == 0:
		if s.now+c.Fraction > f.until {
			f.until, f.level = s.now+c.Fraction, f.level%levels+reason*levels
		}
		f.length, f.strikes = f.until-s.now, f.strikes[:0]
		receipt = s.now + 1
	case f.until <= s.now && (c.Fraction == 0 || f.until-f.length <= s.now-c.Fraction):
		for range min(strikes, b.strikes) {
			f.strikes = append(f.strikes, s.now)
		}
		if int64(len(f.strikes)) >= b.strikes {
			length := s.next()
			f.until, f.length, f.strikes = s.now+length, length, f.strikes[:0]
			f.level = f.level%levels + reason*levels
			if length < b.most {
				f.level++
			}
		}
		receipt = s.now + 1
	}
	s.keep()
	return receipt
}

// Give implements State. It forgets strikes, or forgives the last block, and lifts none.
func (s *block) Give(c Cost, receipt int64) bool {
	f := &s.found
	if receipt == LastBlock {
		if f.until == 0 || f.until > s.now {
			return false
		}
		f.until, f.length, f.level = 0, 0, 0
		s.keep()
		return true
	}
	before, left := len(f.strikes), c.Whole
	f.strikes = slices.DeleteFunc(f.strikes, func(at int64) bool {
		if left == 0 || receipt != AllStrikes && at != receipt-1 {
			return false
		}
		left--
		return true
	})
	if len(f.strikes) == before {
		return false
	}
	s.keep()
	return true
}

// Read implements Limit.
func (b *Block) Read(reply []int64, charged Cost, _ int64) Reading {
	count, rest, next, last := reply[0], reply[1], reply[2], reply[3]
	if charged.Whole > 0 && rest == 0 {
		if count == 0 {
			next = b.within
		}
		last, count = b.within, count+min(charged.Whole, b.strikes)
		if count >= b.strikes {
			rest = reply[4]
		}
	}
	r := Reading{
		Limit: b.strikes, Used: count, Remaining: max(0, b.strikes-count), Window: micros(b.first),
		NextAfter: micros(next), ResetAfter: micros(last),
	}
	if rest > 0 {
		r.Used, r.Remaining, r.Reason = b.strikes, 0, uint8(reply[5])
		r.RetryAfter, r.NextAfter, r.ResetAfter = micros(rest), micros(rest), micros(rest)
	}
	return r
}

// Rest returns for how long a key is blocked after a Force of a cost of ByHand or Since with that reply,
// and why.
func (b *Block) Rest(reply []int64, charged Cost) (rest time.Duration, reason int64) {
	lasts := reply[1]
	if reason = reply[5]; charged.Whole%reasons == 0 {
		if charged.Fraction > lasts {
			lasts, reason = charged.Fraction, charged.Whole/reasons
		}
	} else if lasts == 0 && reply[6] > 0 {
		lasts, reason = reply[4], charged.Whole/reasons
	}
	return micros(lasts), reason
}
