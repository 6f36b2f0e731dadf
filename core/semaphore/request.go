package semaphore

import (
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/lease"
)

// ErrRequest is wrapped by the errors of a Request that cannot be granted: no caps or too many, a
// weight or a floor above its limit, an unknown share, a negative MaxWait.
var ErrRequest = errors.New("semaphore: unusable request")

const (
	// Forever is a MaxWait that waits as long as the context.
	Forever time.Duration = math.MaxInt64
	// MaxLimit is the largest Limit of a Cap.
	MaxLimit = lease.MaxLimit
	// MaxShare is the largest Share of a Cap.
	MaxShare = lease.MaxShare
)

const (
	maxCaps     = 8
	maxName     = 128
	maxMetadata = 1024 // bytes, encoded
)

// Request says what a holder wants.
type Request struct {
	// Caps are the caps, outermost first, such as tenant and user. A slot takes room at all of them
	// or at none. Their keys share the outermost part. Use the same parents for a key in every
	// request. Otherwise a waiter may block others; caps still hold.
	Caps []Cap
	// ID, if not empty, names the holder, such as a worker whose name outlives its process. It has at
	// most 128 bytes. One lease at a time has an ID at an innermost key: a newer one takes the slot
	// over at once, before all that wait, if the keys and the weights are the same, and otherwise like
	// any caller. The lease before is lost, also with LossAdopt, and the token rises. So a worker that
	// was killed need not wait for its own slot. A lease with an ID is never adopted.
	ID string
	// MaxWait bounds the wait for a slot. Zero does not wait, and Forever waits as long as the
	// context.
	MaxWait time.Duration
	// Meta is what Holders reports about this holder. If it takes more than 1 KiB, encoded as a
	// URL's query, values are cut, and keys without room are dropped.
	Meta map[string]string
	// OnQueue is called with the caller's place in the queue of the innermost key, from 0, when the
	// caller is queued, and again when it has asked Redis after some seconds and the place has
	// changed. Acquire calls it on its caller's goroutine before it returns, and does not notice a
	// granted slot while OnQueue runs. It may be nil.
	OnQueue func(position int)
}

// Cap is one limit of several that a slot takes together.
type Cap struct {
	Key core.Key
	// Limit is the most weight that all holders take. A lowered limit ends no lease. The limit of
	// the newest Request that names the key holds for all that wait there.
	Limit int64
	// Weight is how much of the limit the holder takes. Zero means 1.
	Weight int64
	// Share is the key's share of the room at the cap before this one, relative to the other keys
	// that wait there: a key with a share of 3 gets three times the slot-seconds of a key with 1.
	// It is between 1 and MaxShare. Zero means 1. The outermost cap has none.
	Share int64
	// Floor comes before every share: while the holders of the key take less weight than Floor, its
	// waiters come before those of keys that hold their floors. So the next release at the cap
	// before goes to them. It is at most Limit. The outermost cap has none.
	Floor int64
}

// lease returns the request to a lease store.
func (r *Request) lease(s *Semaphore) (lease.Request, error) {
	q := lease.Request{
		ID: newID(url.QueryEscape(r.ID)), Lease: s.cfg.TTL.Microseconds(), Patience: s.cfg.TTL.Microseconds(),
		Longest: s.cfg.MaxHold.Microseconds(), Metadata: "-",
	}
	if len(r.ID) > maxName {
		return q, fmt.Errorf("%w: the ID has %d bytes, %d are possible", ErrRequest, len(r.ID), maxName)
	}
	if r.MaxWait < 0 {
		return q, fmt.Errorf("%w: MaxWait is %v: it must not be negative", ErrRequest, r.MaxWait)
	}
	if r.MaxWait > 0 {
		q.Waiters = int64(s.cfg.MaxWaiters)
	}
	if len(r.Caps) == 0 || len(r.Caps) > maxCaps {
		return q, fmt.Errorf("%w: %d caps, 1 to %d are possible", ErrRequest, len(r.Caps), maxCaps)
	}
	q.Levels = make([]lease.Level, 0, len(r.Caps))
	for i, c := range r.Caps {
		if c.Weight == 0 {
			c.Weight = 1
		}
		if err := r.check(i, &c); err != nil {
			return q, err
		}
		q.Levels = append(q.Levels, lease.Level{
			Node: c.Key.String(), Limit: c.Limit, Weight: c.Weight, Share: c.Share, Floor: c.Floor,
		})
	}
	q.Channel, _ = s.hub.Keeper.Channel(outermost(r.Caps[0].Key), nil)
	if len(r.Meta) > 0 {
		q.Metadata = metadata(r.Meta)
	}
	return q, nil
}

func (r *Request) innermost() core.Key { return r.Caps[len(r.Caps)-1].Key }

// check returns what is wrong with cap i.
func (r *Request) check(i int, c *Cap) error {
	switch {
	case c.Key == core.Key{}:
		return fmt.Errorf("%w: cap %d has none", core.ErrKey, i)
	case outermost(c.Key) != outermost(r.Caps[0].Key):
		return fmt.Errorf("%w: the key of cap %d has another outermost part", core.ErrKey, i)
	case slices.ContainsFunc(r.Caps[:i], func(o Cap) bool { return o.Key == c.Key }):
		return fmt.Errorf("%w: cap %d has the key of another", core.ErrKey, i)
	}
	l := lease.Level{Limit: c.Limit, Weight: c.Weight, Share: c.Share, Floor: c.Floor}
	if faults := l.Faults(i == 0); faults != nil {
		return fmt.Errorf("%w: cap %d: %s", ErrRequest, i, strings.Join(faults, ", "))
	}
	return nil
}

// scope returns where the slots below the outermost part of a key are.
func (s *Semaphore) scope(key core.Key) string {
	return s.hub.Prefix + outermost(key) + ":" + s.cfg.Name + ":se7"
}

// outermost returns the outermost part of a key with its braces. It is empty for the zero Key.
func outermost(key core.Key) string {
	path := key.String()
	return path[:strings.IndexByte(path, '}')+1]
}

// newID returns an id that no lease has had, of that name if there is one.
func newID(name string) string {
	if name == "" {
		return rand.Text()
	}
	return name + "/" + rand.Text()
}

// ownID returns the Request.ID of an id, or an empty text.
func ownID(id string) string {
	name, _ := url.QueryUnescape(lease.Name(id)) // newID has been given an escaped one
	return name
}

// metadata returns a holder's Meta as Redis keeps it. Values may come from clients: if they are too
// long, each gets an equal share of the room, and leaves what it does not need to the next.
func metadata(meta map[string]string) string {
	values := make(url.Values)
	for k, v := range meta {
		values.Set(k, v)
	}
	if whole := values.Encode(); len(whole) <= maxMetadata {
		return whole
	}
	var b strings.Builder
	keys := slices.Sorted(maps.Keys(meta))
	for i, k := range keys {
		room := b.Len() + (maxMetadata-b.Len())/(len(keys)-i)
		name := url.QueryEscape(k) + "="
		if b.Len() > 0 {
			name = "&" + name
		}
		if b.Len()+len(name) > room {
			continue
		}
		b.WriteString(name)
		for _, c := range meta[k] {
			text := url.QueryEscape(string(c))
			if b.Len()+len(text) > room {
				break
			}
			b.WriteString(text)
		}
	}
	if b.Len() == 0 {
		return "-"
	}
	return b.String()
}
