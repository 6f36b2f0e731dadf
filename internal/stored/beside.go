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
	Left  time.Duration // until they go back unless the hold is renewed
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
		if left := int64(z.Score) - now; left > 0 {
			all = append(all, Hold{words[0], units, micros(left)})
		}
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
