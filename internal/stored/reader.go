package stored

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
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
	Redis string // its name in Redis
}

// Scan calls f with the keys of each step of a SCAN that have a name of Headgate's below a path, or
// of the whole prefix if path is empty, until f returns false. It looks at every key of each server
// that may have some, and a key may come twice.
func (r *Reader) Scan(
	ctx context.Context, path string, f func(server redis.Cmdable, found []Found) (bool, error),
) error {
	servers, err := r.servers(ctx, path)
	if err != nil {
		return err
	}
	pattern := r.Prefix + "{*"
	if path != "" {
		pattern = r.Prefix + Outermost(path) + ":*"
	}
	for _, server := range servers {
		for cursor := uint64(0); ; {
			var names []string
			err := r.step(ctx, func(ctx context.Context) (err error) {
				names, cursor, err = server.Scan(ctx, cursor, pattern, scanned).Result()
				return err
			})
			if err != nil {
				return err
			}
			if more, err := f(server, r.parse(names)); err != nil || !more {
				return err
			}
			if cursor == 0 {
				break
			}
		}
	}
	return nil
}

func (r *Reader) parse(names []string) (found []Found) {
	for _, name := range names {
		if n, ok := Parse(strings.TrimPrefix(name, r.Prefix)); ok {
			found = append(found, Found{n, name})
		}
	}
	return found
}

// servers returns the servers that may have keys below a path.
func (r *Reader) servers(ctx context.Context, path string) (all []redis.Cmdable, err error) {
	c, isCluster := r.Client.(*redis.ClusterClient)
	switch {
	case !isCluster:
		return []redis.Cmdable{r.Client}, nil
	case path != "":
		one, err := c.MasterForKey(ctx, r.Prefix+Outermost(path))
		if err != nil {
			return nil, err
		}
		return []redis.Cmdable{one}, nil
	}
	var mu sync.Mutex // ForEachMaster calls side by side
	err = c.ForEachMaster(ctx, func(_ context.Context, one *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		all = append(all, one)
		return nil
	})
	return all, err
}

// step calls f with a context that ends within the Timeout.
func (r *Reader) step(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, r.Timeout)
	defer cancel()
	return f(ctx)
}

// exec runs the commands of a pipeline. A key that has expired meanwhile is no error.
func (r *Reader) exec(ctx context.Context, pipe redis.Pipeliner) error {
	if pipe.Len() == 0 {
		return nil
	}
	return r.step(ctx, func(ctx context.Context) error {
		commands, err := pipe.Exec(ctx)
		for _, c := range commands {
			if e := c.Err(); e != nil && !errors.Is(e, redis.Nil) && !isOfOtherType(e) {
				return e
			}
		}
		if errors.Is(err, redis.Nil) || isOfOtherType(err) {
			return nil
		}
		return err
	})
}

func isOfOtherType(err error) bool {
	return err != nil && strings.HasPrefix(err.Error(), "WRONGTYPE")
}

// Entry is what stands in Redis of one limit of a key.
type Entry struct {
	Path  string
	Redis string        // name of the key of Redis
	TTL   time.Duration // of that; -1 if it has none
	Usage
	Bucket   *Bucket // of a bucket alone
	Holds    []Hold
	Ended    []Hold // whose units the next decision gives back; Used does not count them
	Adjusted Adjusted
}

// Subject is all that stands in Redis of a key.
type Subject struct {
	At      time.Time // by the clock of Redis
	Entries []Entry
	Slots   []Slots // of the semaphores at its outermost part
	Others  []Found // keys of other kinds: overrides, filters, thresholds that were told
	Below   int     // keys of Redis that are about keys below it, which are left out
}

// Subject reads all that stands in Redis of the key of a path, and of the keys below it if that is
// asked for. It takes several round trips, so a key that changes meanwhile may be missing.
func (r *Reader) Subject(ctx context.Context, path string, below bool) (*Subject, error) {
	s := &Subject{}
	var server redis.Cmdable
	names := make(map[string]Found)
	err := r.Scan(ctx, path, func(at redis.Cmdable, found []Found) (bool, error) {
		server = at
		for _, f := range found {
			switch {
			case f.Kind == Scope, f.Path == path, below && Within(f.Path, path):
				names[f.Redis] = f
			case Within(f.Path, path):
				s.Below++
			}
		}
		return true, nil
	})
	if err != nil || server == nil {
		return s, err
	}
	if s.At, err = r.now(ctx, server); err != nil {
		return s, err
	}
	found := make([]Found, 0, len(names))
	for _, f := range names {
		found = append(found, f)
	}
	slices.SortFunc(found, func(a, b Found) int { return strings.Compare(a.Redis, b.Redis) })
	return s, errors.Join(r.limits(ctx, server, s, found), r.slots(ctx, server, s, found))
}

func (r *Reader) now(ctx context.Context, server redis.Cmdable) (at time.Time, err error) {
	err = r.step(ctx, func(ctx context.Context) (err error) {
		at, err = server.Time(ctx).Result()
		return err
	})
	return at.UTC(), err
}

// limits reads what is spent.
func (r *Reader) limits(
	ctx context.Context, server redis.Cmdable, s *Subject, found []Found,
) error {
	pipe := server.Pipeline()
	texts, ttls := make([]*redis.StringCmd, len(found)), make([]*redis.DurationCmd, len(found))
	holds := make(map[string]*redis.ZSliceCmd)
	adjusted := make(map[string]*redis.MapStringStringCmd)
	for i, f := range found {
		switch f.Kind {
		case State, Bundle:
			texts[i], ttls[i] = pipe.Get(ctx, f.Redis), pipe.PTTL(ctx, f.Redis)
		case Holds:
			holds[f.state()] = pipe.ZRangeWithScores(ctx, f.Redis, 0, -1)
		case Adjustments:
			adjusted[f.state()] = pipe.HGetAll(ctx, f.Redis)
		case Override, Filter, Threshold, Answer:
			s.Others = append(s.Others, f)
		}
	}
	if err := r.exec(ctx, pipe); err != nil {
		return err
	}
	now := s.At.UnixMicro()
	var errs []error
	for i, f := range found {
		if texts[i] == nil || texts[i].Err() != nil {
			continue
		}
		entries, err := entriesOf(f, texts[i].Val(), now)
		errs = append(errs, err)
		for _, e := range entries {
			e.Redis, e.TTL = f.Redis, ttls[i].Val()
			s.Entries = append(s.Entries, e)
		}
	}
	s.beside(holds, adjusted, &errs, now)
	return errors.Join(errs...)
}

// state returns the path and what is behind it in the name of the state.
func (n *Name) state() string { return n.Path + ":" + n.Of + ":" + n.Tag }

// entriesOf decodes the value of a key of Redis.
func entriesOf(f Found, value string, now int64) (all []Entry, err error) {
	if f.Kind == State {
		u, err := decodeState(f.Name, value, now)
		return []Entry{{Path: f.Path, Usage: u}}, err
	}
	buckets, err := decodeBundle(value, now)
	if err != nil {
		err = fmt.Errorf("%w at %s", err, f.Redis)
	}
	for i := range buckets {
		all = append(all, Entry{Path: f.Path, Usage: buckets[i].Usage, Bucket: &buckets[i]})
	}
	return all, err
}

// beside adds holds and adjustments to the entries that they are about, or as entries without units
// if nothing is spent there.
func (s *Subject) beside(
	holds map[string]*redis.ZSliceCmd, adjusted map[string]*redis.MapStringStringCmd,
	errs *[]error, now int64,
) {
	note := func(err error) { *errs = append(*errs, err) }
	for state, cmd := range holds {
		e := s.entry(state)
		all, err := decodeHolds(cmd.Val(), now)
		e.settle(all)
		note(err)
	}
	for state, cmd := range adjusted {
		e := s.entry(state)
		all, err := decodeAdjustments(cmd.Val(), now)
		e.Adjusted = all
		note(err)
	}
	slices.SortStableFunc(s.Entries, func(a, b Entry) int {
		return strings.Compare(a.Path+" "+a.Policy+a.Label, b.Path+" "+b.Policy+b.Label)
	})
}

// entry returns the entry of a state, and adds one if there is none.
func (s *Subject) entry(state string) *Entry {
	n, _ := ofState(State, strings.Split(state, ":"), "")
	label := ""
	if n.Tag == "tb2" || n.Tag == "tf2" || n.Tag == "lb2" {
		label = LabelOf(n.Of, n.Tag)
	}
	for i := range s.Entries {
		e := &s.Entries[i]
		if e.Path == n.Path && (label != "" && e.Label == label ||
			label == "" && e.Policy == n.Of && e.Algorithm == Algorithm(n.Tag)) {
			e.Policy = n.Of // the name of the holds tells that of a bucket
			return e
		}
	}
	s.Entries = append(s.Entries, Entry{
		Path:  n.Path,
		Usage: Usage{Policy: n.Of, Label: label, Algorithm: Algorithm(n.Tag), Known: true},
	})
	return &s.Entries[len(s.Entries)-1]
}
