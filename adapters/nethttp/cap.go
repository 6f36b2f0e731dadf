package nethttp

import (
	"net/http"
	"strings"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfunc"
)

// Cap is one cap of a Slot.
type Cap struct {
	// Name is the name that clients see: 1 to 64 of the characters A-Z a-z 0-9 _ . and -. Headers
	// and refusals do not mention a cap without a name.
	Name string
	// Key derives whose cap it is. It is required. A request without a key or with an ambiguous one
	// is refused with 400.
	Key keyfunc.Func
	// Limit is the number of requests of one key that may run at a time, at least 1.
	Limit int64
	// LimitFor returns the limit of a request, such as that of its customer's plan. If LimitFor is
	// nil or returns 0, Limit applies. A lower limit ends no request that runs. The context is that
	// of Rule.Limit. An error, and a limit that is not valid, refuse the request with 500.
	LimitFor func(*http.Request) (int64, error)
	// Share and Floor divide the room of the cap before this one among the keys that wait there;
	// see core.Level. A Floor above the limit of a request counts as that limit. The first cap has
	// neither.
	Share, Floor int64
	// ShareFor returns the share and the floor of a request's key, such as those of its customer's
	// plan. If ShareFor is nil or returns 0, Share or Floor applies. The context is that of
	// Rule.Limit. An error, and numbers that are
	// not valid, refuse the request with 500.
	ShareFor func(*http.Request) (share, floor int64, err error)
	// Global makes the refusal 503 and not 429 when the cap is full: the excess is not the
	// client's own.
	Global bool
}

func (c *Cap) check(i int, names map[string]bool, fault faultFunc) {
	if c.Key == nil {
		fault("Slot.Caps[%d].Key is nil: say whose cap it is, such as keyfunc.RemoteIP()", i)
	}
	if c.Limit < 1 || c.Limit > core.MaxLimit {
		fault("Slot.Caps[%d].Limit is %d: it must be between 1 and %d",
			i, c.Limit, int64(core.MaxLimit))
	}
	c.checkShare(i, fault)
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

func (c *Cap) checkShare(i int, fault faultFunc) {
	if c.Share < 0 || c.Share > core.MaxShare {
		fault("Slot.Caps[%d].Share is %d: it must be between 0 and %d", i, c.Share, core.MaxShare)
	}
	if c.Floor < 0 || c.Floor > c.Limit && c.LimitFor == nil {
		fault("Slot.Caps[%d].Floor is %d: it must be between 0 and the limit", i, c.Floor)
	}
	if i == 0 && (c.Share != 0 || c.Floor != 0 || c.ShareFor != nil) {
		fault("Slot.Caps[0] has a Share, a Floor or a ShareFor, but no cap is before it")
	}
}
