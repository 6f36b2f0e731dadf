package core

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/lease"
)

// Holder is a holder of a Semaphore.
type Holder struct {
	ID     string
	Key    string // the innermost one, as Key.String
	Token  int64
	Age    time.Duration
	Left   time.Duration // until the lease ends unless it is renewed; 0 if it is overdue
	Weight int64
	Meta   map[string]string
}

// Holders returns the holders of slots below the outermost part of a key, in the order in which
// their leases end, and the number of waiters. While Redis fails it returns the error of Redis. It
// does not list slots that a process granted alone meanwhile.
func (s *Semaphore) Holders(
	ctx context.Context,
	key Key,
) (holders []Holder, waiting int, err error) {
	if key.outer == 0 {
		return nil, 0, fmt.Errorf("%w: there is none", ErrKey)
	}
	now, entries, err := s.gate.leases.List(ctx, s.scope(key))
	if err != nil {
		return nil, 0, err
	}
	for _, e := range entries {
		if e.Left < 0 {
			waiting++
			continue
		}
		r, err := lease.Parse(e.Record)
		if err != nil {
			return nil, 0, fmt.Errorf("core: holders: %w", err)
		}
		h := Holder{
			ID:    e.ID,
			Token: r.Token,
			Age:   time.Duration(now-r.Granted) * time.Microsecond,
			Left:  time.Duration(e.Left) * time.Microsecond,
		}
		last := r.Levels[len(r.Levels)-1]
		h.Key, h.Weight = last.Node, last.Weight
		meta := r.Metadata
		if meta == "-" {
			meta = ""
		}
		if values, err := url.ParseQuery(meta); err == nil {
			h.Meta = make(map[string]string)
			for k := range values {
				h.Meta[k] = values.Get(k)
			}
		}
		holders = append(holders, h)
	}
	return holders, waiting, nil
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

// maxEvicted bounds the ids of one script, which writes them all at once.
const maxEvicted = 256

// Evict takes the slots of holders away, and returns how many of them it found. Their leases are
// lost, even with AdoptOnLoss. A holder's process learns of it at once while it is subscribed, and
// otherwise when it renews the lease. On one server it is subscribed from its first slot on. On a
// cluster it is subscribed while it has waiters at the same outermost key. While Redis fails, Evict
// returns the error of Redis, and how many slots it had taken away before.
func (s *Semaphore) Evict(ctx context.Context, key Key, ids ...string) (int, error) {
	if key.outer == 0 {
		return 0, fmt.Errorf("%w: there is none", ErrKey)
	}
	n := 0
	for some := range slices.Chunk(ids, maxEvicted) {
		found, err := s.gate.leases.Evict(ctx, s.scope(key), some)
		for _, was := range found {
			if was > 0 {
				n++
			}
		}
		if err != nil {
			return n, err
		}
	}
	return n, nil
}
