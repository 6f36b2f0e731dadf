// Package stated is the form in which Gates state their policies in Redis, so that tools ask which
// policies there are and do not guess.
package stated

import (
	"encoding/json"
	"errors"
	"fmt"
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
	Zone  string          `json:"zone,omitempty"` // of a Calendar
	Unit  uint8           `json:"unit,omitempty"`
	// Hold is in nanoseconds.
	Hold     time.Duration `json:"hold,omitempty"`
	Raisable bool          `json:"raisable,omitempty"`
	Shadow   bool          `json:"shadow,omitempty"`
	// Varies says that charges under the policy have had limits of their own.
	Varies bool `json:"varies,omitempty"`

	At time.Time `json:"-"` // when it was last stated, by the clock of Redis
}

// Line returns the line of lua/policies/policies.lua.
func (p *Policy) Line() (string, error) {
	text, err := json.Marshal(p)
	return p.Name + " " + string(text), err
}

// Parse parses what Redis keeps.
func Parse(text string) (all []Policy, err error) {
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
