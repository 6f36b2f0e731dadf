package semaphore

import (
	"cmp"
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

// order is what one call asks of a semaphore.
type order struct {
	made
	request   *Request
	outermost string        // part of the keys, with its braces
	scope     string        // where the slots are
	wanted    lease.Request // the request to a store
	start     time.Time
	waited    bool // a store has queued the caller, or holders came first
}

// order checks a request.
func (s made) order(r *Request) (o order, err error) {
	if len(r.ID) > maxName {
		return o, fmt.Errorf("%w: the ID has %d bytes, %d are possible", ErrRequest, len(r.ID), maxName)
	}
	if r.MaxWait < 0 {
		return o, fmt.Errorf("%w: MaxWait is %v: it must not be negative", ErrRequest, r.MaxWait)
	}
	if len(r.Caps) == 0 || len(r.Caps) > maxCaps {
		return o, fmt.Errorf("%w: %d caps, 1 to %d are possible", ErrRequest, len(r.Caps), maxCaps)
	}
	part := inCore.Outermost(r.Caps[0].Key)
	o = order{made: s, request: r, outermost: part, scope: s.scope(part), start: time.Now()}
	o.wanted = lease.Request{
		ID: newID(url.QueryEscape(r.ID)), Lease: s.cfg.TTL.Microseconds(), Patience: s.cfg.TTL.Microseconds(),
		Longest: s.cfg.MaxHold.Microseconds(), Metadata: metadata(r.Meta), Channel: s.hub.Keeper.Channel,
		Levels: make([]lease.Level, 0, len(r.Caps)),
	}
	if r.MaxWait > 0 {
		o.wanted.Waiters = int64(s.cfg.MaxWaiters)
	}
	for _, c := range r.Caps {
		if err := o.add(c); err != nil {
			return o, err
		}
	}
	return o, nil
}

// add adds the level of a cap.
func (o *order) add(c Cap) error {
	i := len(o.wanted.Levels)
	l := lease.Level{
		Node: c.Key.String(), Limit: c.Limit, Weight: cmp.Or(c.Weight, 1), Share: c.Share, Floor: c.Floor,
	}
	switch {
	case l.Node == "":
		return fmt.Errorf("%w: cap %d has none", core.ErrKey, i)
	case !strings.HasPrefix(l.Node, o.outermost):
		return fmt.Errorf("%w: the key of cap %d has another outermost part", core.ErrKey, i)
	case slices.ContainsFunc(o.wanted.Levels, func(other lease.Level) bool { return other.Node == l.Node }):
		return fmt.Errorf("%w: cap %d has the key of another", core.ErrKey, i)
	}
	if faults := l.Faults(i == 0); faults != nil {
		return fmt.Errorf("%w: cap %d: %s", ErrRequest, i, strings.Join(faults, ", "))
	}
	o.wanted.Levels = append(o.wanted.Levels, l)
	return nil
}

func (r *Request) innermost() core.Key { return r.Caps[len(r.Caps)-1].Key }

// scope returns where the slots below an outermost part are.
func (s *Semaphore) scope(outermost string) string {
	return s.hub.Prefix + outermost + ":" + s.cfg.Name + ":se7"
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
	if len(meta) == 0 {
		return "-"
	}
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
