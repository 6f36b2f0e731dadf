package stored

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Hold is units that a reservation holds.
type Hold struct {
	ID    string
	Units int64
	Left  time.Duration // until they go back unless the hold is renewed; 0 if it has ended
	// Receipt is the window that was charged, of a limit that counts in windows.
	Receipt int64
}

// settle moves the holds that have ended to where they no longer count: the next decision gives
// their units back.
func (e *Entry) settle(all []Hold) {
	for _, h := range all {
		if h.Left > 0 {
			e.Holds = append(e.Holds, h)
			continue
		}
		e.Ended = append(e.Ended, h)
		if len(e.Details) > 0 && e.Details[0].Name == "window" &&
			e.Details[0].Time.UnixMicro() != h.Receipt-1 { // it is of another window
			continue
		}
		e.Used = max(0, e.Used-h.Units)
		if e.Bucket != nil && e.Bucket.Frozen {
			e.Bucket.Used, e.Bucket.Level = e.Used, e.Used
		}
	}
}

// decodeHolds decodes the members of a sorted set: holds with their ends, and totals.
func decodeHolds(members []redis.Z, now int64) (all []Hold, err error) {
	for _, z := range members {
		words := strings.Fields(fmt.Sprint(z.Member))
		if len(words) > 0 && words[0] == "held" { // a total
			continue
		}
		if len(words) != 6 {
			return nil, fmt.Errorf("%w: hold %.80q", errLayout, z.Member)
		}
		units, err := strconv.ParseInt(words[1], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%w: hold %.80q", errLayout, z.Member)
		}
		receipt, _ := strconv.ParseInt(words[5], 10, 64)
		all = append(all, Hold{words[0], units, micros(max(0, int64(z.Score)-now)), receipt})
	}
	return all, nil
}

// Raise is units by which a limit is raised.
type Raise struct {
	Units int64
	Left  time.Duration
}

// Adjusted is what is kept beside a quota.
type Adjusted struct {
	Raises []Raise
	Seeded time.Duration // for how long the ledger is not asked again; 0 if it will be
	IDs    []string      // of adjustments that have been applied
}

// decodeAdjustments decodes the fields of a hash.
func decodeAdjustments(fields map[string]string, now int64) (a Adjusted, err error) {
	for field, value := range fields {
		n, err := numbers(value, 1, 1<<20)
		if err != nil {
			return a, fmt.Errorf("%w: adjustment %.80q", errLayout, field)
		}
		id, isID := strings.CutPrefix(field, "id:")
		switch {
		case isID && n[0] > now:
			a.IDs = append(a.IDs, id)
		case field == "seeded":
			a.Seeded = micros(max(0, n[0]-now))
		case field == "raised":
			for pairs := n[1:]; len(pairs) >= 2; pairs = pairs[2:] {
				if pairs[0] > now {
					a.Raises = append(a.Raises, Raise{pairs[1], micros(pairs[0] - now)})
				}
			}
		}
	}
	slices.Sort(a.IDs)
	return a, nil
}
