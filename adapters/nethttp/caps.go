package nethttp

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/keyfunc"
)

// Caps returns the caps that Admit would take a slot of for a request: outermost first,
// each with its key and limit. It takes no slot. Use the key of the first one with
// semaphore.Semaphore.Holders and semaphore.Semaphore.Evict. There are none if Config.Slot is nil or
// skips the request. Like Charges it ignores Config.Skip and Config.Deny.
func (g *Guard) Caps(r *http.Request) ([]semaphore.Cap, error) {
	if err := g.Check(); err != nil {
		return nil, err
	}
	c := g.cfg.Slot
	if c == nil || c.Skip != nil && c.Skip(r) {
		return nil, nil
	}
	x := open(g, r)
	if err := x.deriveCaps(r); err != nil {
		return nil, err
	}
	return x.caps, nil
}

// deriveCaps sets the caps of the request, or none if it returns an error.
func (x *Exchange) deriveCaps(r *http.Request) error {
	if err := x.deriveScope(r); err != nil {
		return err
	}
	if err := x.derivePlan(r); err != nil {
		return err
	}
	var parts []string
	if x.scope != "" {
		parts = append(parts, x.scope)
	}
	for i, level := range x.guard.cfg.Slot.Caps {
		part, err := derive(level.Key, r)
		if err != nil {
			return fmt.Errorf("nethttp: key of cap %d: %w", i, err)
		}
		parts = append(parts, part)
		key, err := core.NewKey(parts[0], parts[1:]...)
		if err != nil {
			return fmt.Errorf("nethttp: key of cap %d: %w", i, err)
		}
		limit, share, floor := x.numbersOf(&level)
		if i == 0 {
			share, floor = 0, 0 // no cap is before it
		}
		x.caps = append(x.caps, semaphore.Cap{
			Key: key, Limit: limit, Share: share, Floor: min(floor, limit),
		})
	}
	return nil
}

// deriveSlot derives what the request asks the semaphore for, if the slot applies to it.
func (x *Exchange) deriveSlot(
	r *http.Request, charges []core.Charge, slot *semaphore.Request,
) error {
	c := x.guard.cfg.Slot
	if c == nil || c.Skip != nil && c.Skip(r) {
		return nil
	}
	if err := x.deriveCaps(r); err != nil {
		return err
	}
	x.capped = true
	slot.MaxWait, slot.Caps = c.MaxWait, x.caps
	if c.Meta != nil {
		slot.Meta = c.Meta(r)
	} else {
		slot.Meta = x.describe(r, charges)
	}
	if c.OnQueue != nil {
		slot.OnQueue = func(position int) { c.OnQueue(r, position) }
	}
	return nil
}

var (
	methodOf = keyfunc.Method()
	routeOf  = keyfunc.Route()
)

// maxKeysText bounds the keys that a holder reports, in bytes. The first one is reported whole.
const maxKeysText = 128

// describe returns what a holder reports about a request unless Slot.Meta says it.
func (x *Exchange) describe(r *http.Request, charges []core.Charge) map[string]string {
	method, _ := methodOf(r) // neither fails
	route, _ := routeOf(r)
	meta := map[string]string{"method": method, "route": route}
	var keys []string
	for i, size := 0, 0; i < len(charges) && size < maxKeysText; i++ {
		key := charges[i].Key
		text := key.String()
		if parts := key.Parts(); parts != nil {
			text = strings.Join(parts, "/")
		}
		isCap := func(c semaphore.Cap) bool { return c.Key == key }
		if slices.ContainsFunc(x.caps, isCap) || slices.Contains(keys, text) {
			continue
		}
		keys, size = append(keys, text), size+len(text)
	}
	if len(keys) > 0 {
		meta["key"] = strings.Join(keys, ", ")
	}
	return meta
}
