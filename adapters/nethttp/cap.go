package nethttp

import (
	"strings"

	"github.com/headgate/headgate/internal/lease"
	"github.com/headgate/headgate/keyfunc"
)

// Cap is one cap of a Slot.
type Cap struct {
	// Name is the name that clients and a Config.Plan see: 1 to 64 of the characters A-Z a-z 0-9 _ .
	// and -. Headers and refusals do not mention a cap without a name, and no plan has one.
	Name string
	// Key derives whose cap it is. It is required. A request without a key or with an ambiguous one
	// is refused with 400.
	Key keyfunc.Func
	// Limit is the number of requests of one key that may run at a time, at least 1. A plan may have
	// another one. A lower limit ends no request that runs.
	Limit int64
	// Share and Floor divide the room of the cap before this one among the keys that wait there;
	// see semaphore.Cap. A Floor above the limit of a request counts as that limit. The first cap has
	// neither.
	Share, Floor int64
	// Global makes the refusal 503 and not 429 when the cap is full: the excess is not the
	// client's own.
	Global bool
}

func (c *Cap) check(i int, names map[string]bool, fault faultFunc) {
	if c.Key == nil {
		fault("Slot.Caps[%d].Key is nil: say whose cap it is, such as keyfunc.RemoteIP()", i)
	}
	l := lease.Level{Limit: c.Limit, Share: c.Share, Floor: c.Floor}
	for _, text := range l.Faults(i == 0) {
		fault("Slot.Caps[%d].%s", i, text)
	}
	if c.Name == "" {
		return
	}
	if len(c.Name) > 64 || strings.ContainsFunc(c.Name, invalidInName) {
		fault("Slot.Caps[%d].Name is %q: it must be 1 to 64 of the characters A-Z a-z 0-9 _ . and -",
			i, c.Name)
	}
	if names[c.Name] {
		fault("Slot.Caps[%d].Name is %q, like that of a rule or another cap", i, c.Name)
	}
	names[c.Name] = true
}
