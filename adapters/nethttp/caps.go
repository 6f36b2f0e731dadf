package nethttp

import (
	"cmp"
	"fmt"
	"net/http"

	"github.com/headgate/headgate/core"
)

// Caps returns the caps that Admit would take a slot of for a request: outermost first,
// each with its key and limit. It takes no slot. Use the key of the first one with
// core.Semaphore.Holders and core.Semaphore.Evict. There are none if Config.Slot is nil or
// skips the request. Like Charges it ignores Config.Skip and Config.Deny.
func (g *Guard) Caps(r *http.Request) ([]core.Level, error) {
	if err := g.Check(); err != nil {
		return nil, err
	}
	c := g.cfg.Slot
	if c == nil || c.Skip != nil && c.Skip(r) {
		return nil, nil
	}
	x := &Exchange{guard: g}
	defer x.snapshot(r)()
	err := x.deriveCaps(r)
	return x.levels, err
}

// deriveCaps sets the levels of the request, or none if it returns an error.
func (x *Exchange) deriveCaps(r *http.Request) error {
	if err := x.deriveScope(r); err != nil {
		return err
	}
	var parts []string
	if x.scope != "" {
		parts = append(parts, x.scope)
	}
	var levels []core.Level
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
		n, err := level.limit(x, r)
		if err != nil {
			return fmt.Errorf("%w of cap %d: %w", errLimit, i, err)
		}
		own, err := level.share(x, r)
		if err != nil {
			return fmt.Errorf("%w of cap %d: %w", errLimit, i, err)
		}
		levels = append(levels, core.Level{
			Key: key, Limit: n, Share: own.share, Floor: min(own.floor, n),
		})
	}
	x.levels = levels
	return nil
}

// limit returns the limit of a request.
func (c *Cap) limit(x *Exchange, r *http.Request) (int64, error) {
	if c.LimitFor == nil {
		return c.Limit, nil
	}
	n, err := inSnapshot(x, r, c.LimitFor)
	switch {
	case err != nil:
		return 0, err
	case n == 0:
		return c.Limit, nil
	case n < 0 || n > core.MaxLimit:
		return 0, fmt.Errorf("it is %d: it must be between 1 and %d", n, int64(core.MaxLimit))
	}
	return n, nil
}

// portion is what a key gets of the room of the cap before its own.
type portion struct{ share, floor int64 }

// share returns the portion of a request's key.
func (c *Cap) share(x *Exchange, r *http.Request) (own portion, err error) {
	if c.ShareFor != nil {
		own, err = inSnapshot(x, r, func(r *http.Request) (p portion, err error) {
			p.share, p.floor, err = c.ShareFor(r)
			return p, err
		})
	}
	if err == nil && (own.share < 0 || own.share > core.MaxShare || own.floor < 0) {
		err = fmt.Errorf("its share is %d and its floor is %d: "+
			"they must be between 0 and %d, and the limit", own.share, own.floor, core.MaxShare)
	}
	return portion{cmp.Or(own.share, c.Share), cmp.Or(own.floor, c.Floor)}, err
}

// deriveSlot derives what the request asks the semaphore for, if the slot applies to it.
func (x *Exchange) deriveSlot(r *http.Request) (core.SlotRequest, error) {
	c := x.guard.cfg.Slot
	if c == nil || c.Skip != nil && c.Skip(r) {
		return core.SlotRequest{}, nil
	}
	if err := x.deriveCaps(r); err != nil {
		return core.SlotRequest{}, err
	}
	x.capped = true
	slot := core.SlotRequest{MaxWait: c.MaxWait, Levels: x.levels}
	if c.Meta != nil {
		slot.Meta = c.Meta(r)
	}
	if c.OnQueue != nil {
		slot.OnQueue = func(position int) { c.OnQueue(r, position) }
	}
	return slot, nil
}
