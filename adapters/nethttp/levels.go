package nethttp

import (
	"cmp"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/headgate/headgate/core"
)

// Levels returns the levels that Admit would take a slot of for a request: one for each cap,
// outermost first, with its key and limit. It takes no slot. Use the key of the first level with
// core.Semaphore.Holders and core.Semaphore.Evict. There are no levels if Config.Concurrency is nil
// or skips the request. Like Charges it ignores Config.Disabled and preflights.
func (g *Guard) Levels(r *http.Request) ([]core.Level, error) {
	if !g.valid() {
		return nil, errInvalidGuard
	}
	c := g.cfg.Concurrency
	if c == nil || c.Skip != nil && c.Skip(r) {
		return nil, nil
	}
	a := &Admission{guard: g}
	defer a.snapshot(r)()
	err := a.deriveLevels(r)
	return a.levels, err
}

// deriveLevels sets the levels of the request, or none if it returns an error.
func (a *Admission) deriveLevels(r *http.Request) error {
	if err := a.deriveScope(r); err != nil {
		return err
	}
	var parts []string
	if a.scope != "" {
		parts = append(parts, a.scope)
	}
	var levels []core.Level
	for i, level := range a.guard.cfg.Concurrency.Caps {
		part, err := derive(level.Key, r)
		if err != nil {
			return fmt.Errorf("nethttp: key of cap %d: %w", i, err)
		}
		parts = append(parts, part)
		key, err := core.NewKey(parts[0], parts[1:]...)
		if err != nil {
			return fmt.Errorf("nethttp: key of cap %d: %w", i, err)
		}
		n, err := level.limit(a, r)
		if err != nil {
			return fmt.Errorf("%w of cap %d: %w", errLimit, i, err)
		}
		own, err := level.share(a, r)
		if err != nil {
			return fmt.Errorf("%w of cap %d: %w", errLimit, i, err)
		}
		levels = append(levels, core.Level{Key: key, Limit: n, Share: own.share, Floor: min(own.floor, n)})
	}
	a.levels = levels
	return nil
}

// limit returns the limit of a request.
func (c *Cap) limit(a *Admission, r *http.Request) (int64, error) {
	if c.LimitFor == nil {
		return c.Limit, nil
	}
	n, err := inSnapshot(a, r, c.LimitFor)
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
func (c *Cap) share(a *Admission, r *http.Request) (own portion, err error) {
	if c.ShareFor != nil {
		own, err = inSnapshot(a, r, func(r *http.Request) (p portion, err error) {
			p.share, p.floor, err = c.ShareFor(r)
			return p, err
		})
	}
	if err == nil && (own.share < 0 || own.share > core.MaxShare || own.floor < 0) {
		err = fmt.Errorf("its share is %d and its floor is %d: they must be between 0 and %d, and the limit",
			own.share, own.floor, core.MaxShare)
	}
	return portion{cmp.Or(own.share, c.Share), cmp.Or(own.floor, c.Floor)}, err
}

// slotRequest derives what the request asks the semaphore for.
func (a *Admission) slotRequest(r *http.Request) (core.SlotRequest, error) {
	c := a.guard.cfg.Concurrency
	if err := a.deriveLevels(r); err != nil {
		return core.SlotRequest{}, err
	}
	slot := core.SlotRequest{MaxWait: c.MaxWait, Levels: a.levels}
	if c.Priority != nil {
		slot.Priority = c.Priority(r)
	}
	if c.Meta != nil {
		slot.Meta = c.Meta(r)
	}
	if c.OnQueue != nil {
		slot.OnQueue = func(position int) { c.OnQueue(r, position) }
	}
	return slot, nil
}

// advertise returns the members of RateLimit-Policy for the caps that have names. The limits are
// those of levels, or the caps' own if that is nil.
func (c *Concurrency) advertise(levels []core.Level) string {
	var list []string
	for i, level := range c.Caps {
		if level.Name == "" {
			continue
		}
		n := level.Limit
		if levels != nil {
			n = levels[i].Limit
		}
		list = append(list, `"`+level.Name+`";q=`+integer(n)+`;qu="concurrent-requests"`)
	}
	return strings.Join(list, ", ")
}

// fullCap returns the cap that is full.
func (a *Admission) fullCap() *Cap { return &a.guard.cfg.Concurrency.Caps[a.full.Level] }

// fullDetail tells the client which cap is full.
func (a *Admission) fullDetail() string {
	detail := "All " + strconv.FormatInt(a.levels[a.full.Level].Limit, 10) + " concurrent requests"
	if name := a.fullCap().Name; name != "" {
		detail += ` of policy "` + name + `"`
	}
	if a.full.Queue {
		return detail + " are in use, and the queue is full or the wait too long."
	}
	return detail + " are in use."
}
