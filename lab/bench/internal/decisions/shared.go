package decisions

import (
	"context"
	"fmt"
	"sync"

	"github.com/redis/go-redis/v9"
)

// shared is the least that callers who share round trips can do: two scripts in flight, each for
// all who wait, and equal keys are one. It counts, and knows neither limits nor deadlines nor
// errors of others.
type shared struct {
	client redis.UniversalClient
	script *redis.Script
	names  []string

	mu      sync.Mutex
	flying  int
	waiting []*sharer
}

type sharer struct {
	key  int
	turn chan bool // true if he leads, false if he is answered
	err  error
}

var sharers = sync.Pool{New: func() any { return &sharer{turn: make(chan bool, 1)} }}

func sharing(b *bed, _ quota) (decide, error) {
	s := &shared{client: b.client, names: prefixed(b.names, "shared"+b.prefix), script: redis.NewScript(`
local now = redis.call('TIME')
local values, reply = redis.call('MGET', unpack(KEYS)), {}
for i = 1, #KEYS do
  local at = (values[i] or now[1]) + ARGV[i]
  redis.call('SET', KEYS[i], string.format('%d', at), 'PX', '3600000')
  reply[i] = at
end
return reply`)}
	// All that follows relies on the script being known.
	if err := s.script.Load(context.Background(), b.client).Err(); err != nil {
		return nil, fmt.Errorf("load a script: %w", err)
	}
	return s.decide, nil
}

func (s *shared) decide(ctx context.Context, key int) (bool, error) {
	w := sharers.Get().(*sharer)
	w.key, w.err = key, nil
	s.mu.Lock()
	leads := s.flying < 2
	if leads {
		s.flying++
	} else {
		s.waiting = append(s.waiting, w)
	}
	s.mu.Unlock()
	if leads || <-w.turn {
		s.lead(ctx, w)
	}
	err := w.err
	sharers.Put(w)
	return err == nil, err
}

func (s *shared) lead(ctx context.Context, w *sharer) {
	s.mu.Lock()
	others := s.waiting
	s.waiting = nil
	s.mu.Unlock()
	var names []string
	var calls []any
	places := make(map[int]int)
	count := func(key int) {
		if i, ok := places[key]; ok {
			*calls[i].(*int64)++
			return
		}
		places[key] = len(names)
		names, calls = append(names, s.names[key]), append(calls, new(int64(1)))
	}
	count(w.key)
	for _, o := range others {
		count(o.key)
	}
	w.err = s.script.EvalSha(ctx, s.client, names, calls...).Err()
	s.mu.Lock()
	if len(s.waiting) > 0 {
		next := s.waiting[0]
		s.waiting = s.waiting[1:]
		next.turn <- true
	} else {
		s.flying--
	}
	s.mu.Unlock()
	for _, o := range others {
		o.err = w.err
		o.turn <- false
	}
}
