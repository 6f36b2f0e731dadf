package nethttp

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfunc"
)

// Concurrency caps how many requests run at a time, beside the rules of a Guard. A request that finds no room spends
// nothing of the rules, and one that a rule denies holds no slot; see core.Semaphore.Admit. While a request waits, what the
// rules cost it counts as spent.
//
// The context of an admitted request is that of its lease, which is cancelled with cause core.ErrLeaseLost when that is
// lost. The slot is free when the handler has returned or panicked, also after a hijack, unless it was detached; see
// LeaseFromContext. To shut down, close the Gate first, which refuses new requests and those that wait with 503 and
// renews leases until the handlers have ended, and then the server.
type Concurrency struct {
	// Semaphore keeps the slots. It is required, and of the same Gate as the Config.
	Semaphore *core.Semaphore
	// Caps are the caps, outermost first, 1 to 7, such as tenant and user: all of them have room, or the request holds
	// none. They stand below Config.Scope, and each below those before it.
	Caps []Cap
	// MaxWait is how long a request waits in the queue at most. Zero refuses at once what finds no room. See
	// Config.BufferBody for clients that leave meanwhile.
	MaxWait time.Duration
	// Priority is from 0, served first, to 9. It is 0 if nil.
	Priority func(*http.Request) int
	// Meta is what Semaphore.Holders tells of a request, if not nil. It may be what the client says: see core.SlotRequest for what is too
	// long.
	Meta func(*http.Request) map[string]string
	// OnQueue is called with a waiting request's place in the queue of its innermost level, from 0, whenever it is
	// known, if not nil.
	OnQueue func(r *http.Request, position int)
	// Skip exempts a request, if not nil.
	Skip func(*http.Request) bool
}

// Cap is one cap of a Concurrency.
type Cap struct {
	// Name is what clients are told of it as, unless it is empty: 1 to 64 of the characters A-Z a-z 0-9 _ . and -.
	Name string
	// Key says whose cap it is. It is required. A request without a key, or with an ambiguous
	// one, is refused with 400.
	Key keyfunc.Func
	// Limit is how many requests of one key run at a time. It is at least 1.
	Limit int64
	// Global makes the answer 503 where this level has no room, and not 429: the excess is not the caller's own.
	Global bool
}

// maxLevels and the scope are what a core.Key has room for.
const maxLevels = 7

func (c *Concurrency) check(gate *core.Gate, names map[string]int, fault func(format string, args ...any)) {
	if c.Semaphore == nil {
		fault("Concurrency.Semaphore is nil")
	} else if gate != nil && c.Semaphore.Gate() != gate {
		fault("Concurrency.Semaphore is of another Gate")
	}
	if n := len(c.Caps); n == 0 || n > maxLevels {
		fault("Concurrency.Caps has %d entries: it must have between 1 and %d", n, maxLevels)
	}
	if c.MaxWait < 0 {
		fault("Concurrency.MaxWait is %v: it must not be negative", c.MaxWait)
	}
	for i, l := range c.Caps {
		if l.Key == nil {
			fault("Concurrency.Caps[%d].Key is nil: say whose cap it is, such as keyfunc.RemoteIP()", i)
		}
		if l.Limit < 1 || l.Limit > core.MaxLimit {
			fault("Concurrency.Caps[%d].Limit is %d: it must be between 1 and %d", i, l.Limit, int64(core.MaxLimit))
		}
		if l.Name == "" {
			continue
		}
		if len(l.Name) > 64 || strings.ContainsFunc(l.Name, unnameable) {
			fault("Concurrency.Caps[%d].Name is %q: it must be of 1 to 64 of the characters A-Z a-z 0-9 _ . and -", i, l.Name)
		}
		if _, ok := names[l.Name]; ok {
			fault("Concurrency.Caps[%d].Name is %q like that of a rule or a level before", i, l.Name)
		}
		names[l.Name] = i
	}
}

func unnameable(r rune) bool {
	return !(r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || strings.ContainsRune("_.-", r))
}

// advertise is the list of RateLimit-Policy for the levels that have names, empty if none has.
func (c *Concurrency) advertise() string {
	var list []string
	for _, l := range c.Caps {
		if l.Name != "" {
			list = append(list, `"`+l.Name+`";q=`+integer(l.Limit)+`;qu="concurrent-requests"`)
		}
	}
	return strings.Join(list, ", ")
}

// ask derives what the request asks the semaphore for.
func (a *Admission) ask(r *http.Request) (core.SlotRequest, error) {
	c := a.guard.cfg.Concurrency
	ask := core.SlotRequest{MaxWait: c.MaxWait}
	if err := a.deriveScope(r); err != nil {
		return ask, err
	}
	var parts []string
	if a.scope != "" {
		parts = append(parts, a.scope)
	}
	for i, l := range c.Caps {
		part, err := derive(l.Key, r)
		if err == nil {
			parts = append(parts, part)
			var key core.Key
			key, err = core.NewKey(parts[0], parts[1:]...)
			ask.Levels = append(ask.Levels, core.Level{Key: key, Limit: l.Limit})
		}
		if err != nil {
			return ask, fmt.Errorf("nethttp: key of level %d: %w", i, err)
		}
	}
	if c.Priority != nil {
		ask.Priority = c.Priority(r)
	}
	if c.Meta != nil {
		ask.Meta = c.Meta(r)
	}
	if c.OnQueue != nil {
		ask.OnQueue = func(position int) { c.OnQueue(r, position) }
	}
	return ask, nil
}

// acquire takes a slot for what has paid already.
func (c *Concurrency) acquire(ctx context.Context, ask core.SlotRequest) (*core.Lease, error) {
	if c.MaxWait > 0 {
		return c.Semaphore.Acquire(ctx, ask)
	}
	return c.Semaphore.TryAcquire(ctx, ask)
}

// admit decides charges and takes a slot.
func (c *Concurrency) admit(ctx context.Context, ask core.SlotRequest, charges []core.Charge) (*core.Lease, core.Decision, error) {
	if c.MaxWait > 0 {
		return c.Semaphore.Admit(ctx, ask, charges...)
	}
	return c.Semaphore.TryAdmit(ctx, ask, charges...)
}

// Full says what stands in the way of a request that found no room, nil of others.
func (a *Admission) Full() *core.FullError { return a.full }

// Lease is the slot of an admitted request, nil where none is needed.
func (a *Admission) Lease() *core.Lease { return a.lease }

// LeaseFromContext returns the slot of the request of this context, at the innermost Guard with a Concurrency, or nil. A
// handler whose work goes on after it returns takes the slot with it by Lease.Detach, and releases that when it is done.
func LeaseFromContext(ctx context.Context) *core.Lease {
	for a := admissionOf(ctx); a != nil; a = a.outer {
		if a.lease != nil {
			return a.lease
		}
	}
	return nil
}

// noRoom is the level without room.
func (a *Admission) noRoom() *Cap { return &a.guard.cfg.Concurrency.Caps[a.full.Level] }

func (a *Admission) fullDetail() string {
	l := a.noRoom()
	detail := "All " + strconv.FormatInt(l.Limit, 10) + " concurrent requests"
	if l.Name != "" {
		detail += ` of policy "` + l.Name + `"`
	}
	if a.full.Queue {
		return detail + " are in use, and the queue is full or the wait too long."
	}
	return detail + " are in use."
}
