package stored

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Reader reads what stands in Redis below a prefix. It is safe for concurrent use.
type Reader struct {
	Client redis.UniversalClient
	Prefix string // with its colon
	// Timeout bounds each step: a SCAN of some 1,000 keys, or a read of what it found.
	Timeout time.Duration
}

// scanned is how many keys a SCAN looks at.
const scanned = 1000

// Found is a key of Redis.
type Found struct {
	Name
	Redis string        // its name in Redis
	TTL   time.Duration // -1 if it has none
	Value string        // of a State or a Bundle
}

// Count is what Redis counts of one limit of a key.
type Count struct {
	Name         // of a State, or of a Bundle
	Label string // of a bucket, whose policy and algorithm are not known
	Value string // as Redis has it; of a bucket in hexadecimal digits
	TTL   time.Duration
}

// Subject is all that stands in Redis of a key.
type Subject struct {
	Keys       []Found // by their names, without those of semaphores
	Counts     []Count
	Semaphores []string // at its outermost part
	Below      int      // keys of Redis that are about keys below it, which are left out
}

// Subject reads all that stands in Redis of the key of a path, and of the keys below it if that is
// asked for. It takes several round trips, so a key that changes meanwhile may be missing.
func (r *Reader) Subject(ctx context.Context, path string, below bool) (*Subject, error) {
	var server redis.Cmdable = r.Client
	if c, ok := r.Client.(*redis.ClusterClient); ok {
		one, err := c.MasterForKey(ctx, r.Prefix+Outermost(path))
		if err != nil {
			return nil, err
		}
		server = one
	}
	s := new(Subject)
	seen := make(map[string]bool) // a SCAN may tell a key twice
	for cursor := uint64(0); ; {
		var names []string
		err := r.step(ctx, func(ctx context.Context) (err error) {
			names, cursor, err = server.Scan(ctx, cursor, r.Prefix+Outermost(path)+":*", scanned).Result()
			return err
		})
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			if n, ok := Parse(strings.TrimPrefix(name, r.Prefix)); ok && !seen[name] {
				seen[name] = true
				s.add(Found{Name: n, Redis: name}, path, below)
			}
		}
		if cursor == 0 {
			break
		}
	}
	slices.Sort(s.Semaphores)
	slices.SortFunc(s.Keys, func(a, b Found) int { return cmp.Compare(a.Redis, b.Redis) })
	return s, r.read(ctx, server, s)
}

// add adds a key of Redis if it is about the key of a path.
func (s *Subject) add(f Found, path string, below bool) {
	switch {
	case f.Kind == Scope:
		if !slices.Contains(s.Semaphores, f.Of) {
			s.Semaphores = append(s.Semaphores, f.Of)
		}
	case f.Path == path, below && Within(f.Path, path):
		s.Keys = append(s.Keys, f)
	case Within(f.Path, path):
		s.Below++
	}
}

// step calls f with a context that ends within the Timeout.
func (r *Reader) step(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, r.Timeout)
	defer cancel()
	return f(ctx)
}

// read reads the values and TTLs of keys, and drops those that have expired meanwhile.
func (r *Reader) read(ctx context.Context, server redis.Cmdable, s *Subject) error {
	if len(s.Keys) == 0 {
		return nil
	}
	pipe := server.Pipeline()
	values, ttls := make([]*redis.StringCmd, len(s.Keys)), make([]*redis.DurationCmd, len(s.Keys))
	for i, k := range s.Keys {
		if ttls[i] = pipe.PTTL(ctx, k.Redis); k.Kind == State || k.Kind == Bundle {
			values[i] = pipe.Get(ctx, k.Redis)
		}
	}
	err := r.step(ctx, func(ctx context.Context) error {
		_, err := pipe.Exec(ctx)
		return err
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		return err
	}
	var left []Found
	for i, k := range s.Keys {
		if k.TTL = ttls[i].Val(); k.TTL == gone {
			continue
		}
		if values[i] != nil {
			var err error
			if k.Value, err = values[i].Result(); errors.Is(err, redis.Nil) {
				continue
			} else if err != nil {
				return fmt.Errorf("stored: %s: %w", k.Redis, err)
			}
		}
		left = append(left, k)
		counts, err := k.counts()
		if err != nil {
			return err
		}
		s.Counts = append(s.Counts, counts...)
	}
	s.Keys = left
	return nil
}

// gone is the TTL of a key that is not there.
const gone = -2

// Sizes of an entry of lua/bundle/bundle.lua, in bytes. Its first six bytes are its label.
const (
	shortEntry = 14
	longEntry  = 35
)

// counts returns what a key of Redis counts.
func (f *Found) counts() (all []Count, err error) {
	switch f.Kind {
	case State:
		return []Count{{f.Name, "", f.Value, f.TTL}}, nil
	case Bundle:
		for rest := f.Value; rest != ""; {
			size := shortEntry
			if len(rest) > 6 && rest[6] > 127 {
				size = longEntry
			}
			if len(rest) < size {
				return nil, fmt.Errorf("stored: %s is no bundle of buckets", f.Redis)
			}
			entry := fmt.Sprintf("%x", rest[:size])
			all = append(all, Count{f.Name, entry[:12], entry, f.TTL})
			rest = rest[size:]
		}
	}
	return all, nil
}
