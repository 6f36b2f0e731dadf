package stored

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// errLayout is the error of a value that is not laid out as its name says.
var errLayout = errors.New("stored: the value has another layout")

// Never is a wait that does not end.
const Never = time.Duration(1<<63 - 1)

// Usage is what is spent of one limit.
type Usage struct {
	Policy    string // empty for a bucket, whose key has its Label alone
	Label     string // 12 hexadecimal digits; empty for what is no bucket
	Algorithm string // in words
	// Used is the units that count. For a bucket that refills they depend on its rate: Known is false,
	// and so it is for a sliding log or a block, whose windows are in the policy alone. Their Used is
	// what counted when the value was stored. A window that owes more than the next one pays is not known
	// either after that one.
	Used  int64
	Known bool
	// Rest is when the key is as if untouched. For a bucket that never refills it is Never, and for a
	// sliding log 0, because the policy has its window.
	Rest time.Duration
	// Blocked is how long the key is blocked, of a block alone.
	Blocked time.Duration
	// Details are the numbers of the value by name.
	Details []Detail
	// Value is what the key of Redis holds, or the entry of a bundle in hexadecimal digits.
	Value string
}

// Detail is one number of a value. A time is in UTC.
type Detail struct {
	Name   string
	Number int64
	Time   time.Time // zero if it is a number
}

// at adds a time in microseconds.
func (u *Usage) at(name string, micros int64) {
	u.Details = append(u.Details, Detail{Name: name, Time: time.UnixMicro(micros).UTC()})
}

func (u *Usage) number(name string, n int64) {
	u.Details = append(u.Details, Detail{Name: name, Number: n})
}

// decodeState decodes the value of a State at a time in microseconds.
func decodeState(n Name, value string, now int64) (u Usage, err error) {
	u = Usage{Policy: n.Of, Algorithm: Algorithm(n.Tag), Value: value}
	switch n.Tag[:3] {
	case "fw2", "ca2":
		err = u.window(value, now)
	case "sw2":
		err = u.counters(value, n.Tag[3:], now)
	case "sl1", "sb1":
		err = u.log(value)
	case "bl1":
		err = u.block(value, now)
	default:
		err = errLayout
	}
	if err != nil {
		err = fmt.Errorf("%w: %s of %s is %.80q", err, n.Tag, n.Of, value)
	}
	return u, err
}

// numbers parses the numbers of a value with blanks between them, or fails if there are not that
// many.
func numbers(value string, least, most int) (all []int64, err error) {
	words := strings.Fields(value)
	if len(words) < least || len(words) > most {
		return nil, errLayout
	}
	for _, w := range words {
		n, err := strconv.ParseInt(w, 10, 64)
		if err != nil {
			return nil, errLayout
		}
		all = append(all, n)
	}
	return all, nil
}

// window decodes "start count width" or "start count width debt". The next windows of the same width
// pay the debt, each as much as the limit: what was charged without owing it, unless the limit has
// changed. So Used is known in the first of them.
func (u *Usage) window(value string, now int64) error {
	n, err := numbers(value, 3, 4)
	if err != nil {
		return err
	}
	n = append(n, 0)
	start, count, width, debt := n[0], n[1], n[2], n[3]
	ends := start + width
	u.Known = debt == 0 || now < ends+width
	rest := ends
	if debt > 0 {
		limit := max(1, count-debt)
		windows := (debt + limit - 1) / limit
		if rest += width * min(windows, longest/max(1, width)); now < rest {
			u.Used = debt - (now-ends)/max(1, width)*limit
		}
	}
	if now < ends {
		u.Used = count
	}
	u.Rest = micros(max(0, rest-now))
	u.at("window", start)
	u.at("until", start+width)
	u.number("count", count)
	if debt > 0 {
		u.number("debt", debt)
	}
	return nil
}

// counters decodes "start count before". The window before counts by the part that is covered.
func (u *Usage) counters(value, digits string, now int64) error {
	n, err := numbers(value, 3, 3)
	if err != nil {
		return err
	}
	width, err := strconv.ParseInt(digits, 36, 64)
	if err != nil || width <= 0 {
		return errLayout
	}
	start, count, before := n[0], n[1], n[2]
	u.at("window", start)
	u.number("count", count)
	u.number("before", before)
	u.Known = true
	switch since := max(0, now-start); {
	case since < width:
		u.Used = count + covered(before, since, width)
	case since < 2*width:
		u.Used = covered(count, since-width, width)
	}
	last := start + 2*width
	if count == 0 {
		last = start + width
	}
	u.Rest = micros(max(0, last-now))
	return nil
}

// covered returns the units of the window before that still count, rounded up.
func covered(before, since, width int64) int64 {
	if before == 0 {
		return 0
	}
	left := width - since
	whole := before / width * left // before·left may exceed an int64
	return whole + (before%width*left+width-1)/width
}

const (
	digitsOfLog = 16
	longest     = 36525 * 24 * 3600 * 1_000_000 // for which Redis keeps a debt, in microseconds
)

// log decodes numbers of 16 digits: the first entry that counts, the number of entries, the total
// of units, time and total before the last entry, how far its clock is ahead; then time and total
// before each other entry.
func (u *Usage) log(value string) error {
	const modulus = int64(1) << 52
	var all []int64
	for ; len(value) >= digitsOfLog; value = value[digitsOfLog:] {
		n, err := strconv.ParseInt(value[:digitsOfLog], 10, 64)
		if err != nil {
			return errLayout
		}
		all = append(all, n)
	}
	if len(value) > 0 || len(all) < 6 || all[1] < 1 || int64(len(all)) != 6+2*(all[1]-1) {
		return errLayout
	}
	first, size, total := all[0], all[1], all[2]
	entry := func(i int64) (time, before int64) {
		if i == size-1 {
			return all[3], all[4]
		}
		return all[6+2*i], all[7+2*i]
	}
	if first < 0 || first >= size {
		return errLayout
	}
	oldest, before := entry(first)
	u.Used = (total - before + modulus) % modulus
	u.number("entries", size-first)
	u.at("oldest", oldest)
	u.at("newest", all[3])
	return nil
}

// block decodes "until length level" and the times of strikes.
func (u *Usage) block(value string, now int64) error {
	n, err := numbers(value, 3, 103)
	if err != nil {
		return err
	}
	until, length, level, strikes := n[0], n[1], n[2], n[3:]
	u.Used = int64(len(strikes))
	if until > now {
		u.Blocked, u.Rest = micros(until-now), micros(until-now)
	}
	if until > 0 {
		u.at("block ends", until)
		u.number("seconds", length/1e6)
		u.number("doubled", level)
	}
	if len(strikes) > 0 {
		u.at("oldest strike", strikes[0])
		u.at("newest strike", strikes[len(strikes)-1])
	}
	return nil
}

func micros(us int64) time.Duration { return time.Duration(us) * time.Microsecond }
