// Package stated is the form in which Gates state their policies in Redis, so that tools ask which
// policies there are and do not guess.
package stated

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// Key is the name of the key of Redis, behind the prefix.
	Key = "{policies}:po1"
	// Kept is how long a statement is kept after it was last made.
	Kept = time.Hour
	// Most bounds the policies in one list.
	Most = 1000
)

// Policy is one policy as a Gate states it.
type Policy struct {
	Name string `json:"-"`
	// Kind is the type of the algorithm in package core, and Limit the figures of it.
	Kind  string          `json:"kind"`
	Limit json.RawMessage `json:"limit"`
	Zone  string          `json:"zone,omitempty"` // of a Calendar; absent if it is known by no name
	Unit  uint8           `json:"unit,omitempty"`
	// Hold is in nanoseconds.
	Hold     time.Duration `json:"hold,omitempty"`
	Raisable bool          `json:"raisable,omitempty"`
	Ledger   bool          `json:"ledger,omitempty"` // it has one, which only its program can ask
	Shadow   bool          `json:"shadow,omitempty"`
	// Varies says that charges under the policy may have limits of their own.
	Varies bool `json:"varies,omitempty"`

	At time.Time `json:"-"` // when it was last stated, by the clock of Redis
}

// Line returns the line of lua/policies/policies.lua.
func (p *Policy) Line() (string, error) {
	text, err := json.Marshal(p)
	return p.Name + " " + string(text), err
}

// together is how long after another statement of the same name the program of the older one may still
// run: Gates state their policies every minute.
const together = 2 * time.Minute

// Parse parses what Redis keeps, and returns the newest statement of each name. Where programs that run
// together state a name differently, Varies says so, Raisable is what all of them say, and Ledger
// what one says.
func Parse(text string) ([]Policy, error) {
	lines, err := parse(text)
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(lines, func(a, b Policy) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), b.At.Compare(a.At))
	})
	var all []Policy
	for _, p := range lines {
		if len(all) == 0 || all[len(all)-1].Name != p.Name {
			all = append(all, p)
			continue
		}
		newest := &all[len(all)-1]
		if newest.At.Sub(p.At) > together {
			continue
		}
		newest.Varies = newest.Varies || p.Varies || p.Kind != newest.Kind || p.Zone != newest.Zone ||
			!bytes.Equal(p.Limit, newest.Limit)
		newest.Raisable = newest.Raisable && p.Raisable
		newest.Ledger = newest.Ledger || p.Ledger
	}
	return all, nil
}

// parse returns each statement.
func parse(text string) (all []Policy, err error) {
	for line := range strings.Lines(text) {
		words := strings.SplitN(line, " ", 3)
		if len(words) != 3 {
			return nil, errors.New("stated: the list of policies has another layout")
		}
		at, err := strconv.ParseInt(words[0], 10, 64)
		p := Policy{Name: words[1], At: time.UnixMicro(at).UTC()}
		if err = errors.Join(err, json.Unmarshal([]byte(words[2]), &p)); err != nil {
			return nil, fmt.Errorf("stated: the policy %.80q: %w", p.Name, err)
		}
		all = append(all, p)
	}
	return all, nil
}
