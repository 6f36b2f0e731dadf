// Package tenants keeps what a process has learned about tenants: for a while, in bounded memory,
// and learned once for all callers that ask at the same time.
package tenants

import (
	"context"
	"errors"
	"hash/maphash"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// ErrClosed is the error of a tenant that nothing is known about after Table.Close.
var ErrClosed = errors.New("tenants: closed")

// ErrLate is the error of a tenant that nothing is known about after Config.Patience.
var ErrLate = errors.New("tenants: not learned in time")

// Config configures a Table. All fields are required.
type Config[V any] struct {
	// Max bounds the tenants that are kept. From 64 on it is rounded up to a multiple of 64. Beyond
	// it, a tenant evicts one that nobody has asked for lately.
	Max int
	// Retry is how long a failure counts: callers do not wait for an attempt that repeats a failure
	// younger than that.
	Retry time.Duration
	// Patience bounds the wait of a caller.
	Patience time.Duration
	// Learn learns about a tenant, of which last is the Value that was learned last, or zero. If
	// unchanged, nobody has said since that something may have changed. The context has the values
	// of the first caller's. It ends with Table.Close.
	Learn func(ctx context.Context, tenant string, last V, unchanged bool) Answer[V]
}

// Answer is what Config.Learn has learned.
type Answer[V any] struct {
	Value V
	For   time.Duration // how long Value is fresh
	// Failed says that something could not be learned. The next attempt runs while callers go on
	// with Value.
	Failed bool
}

const (
	shards     = 64
	maxRetries = 64 // at a time, that nobody waits for
)

// Table keeps tenants. New makes it.
type Table[V any] struct {
	cfg    Config[V]
	start  time.Time
	epoch  atomic.Uint64 // of all tenants: what is known of an earlier one is not fresh
	seeds  [2]maphash.Seed
	shards []shard[V]

	ctx     context.Context // ends with Close
	cancel  context.CancelFunc
	mu      sync.Mutex // guards closed
	closed  bool
	running sync.WaitGroup
	retries chan struct{}
}

// New returns a Table. Close ends its goroutines.
func New[V any](cfg Config[V]) *Table[V] {
	n := shards
	if cfg.Max < shards {
		n = 1
	}
	t := &Table[V]{
		cfg: cfg, start: time.Now(), shards: make([]shard[V], n),
		seeds:   [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()},
		retries: make(chan struct{}, maxRetries),
	}
	for i := range t.shards {
		t.shards[i].most = (cfg.Max + n - 1) / n
		t.shards[i].tenants = make(map[digest]*tenant[V])
	}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	return t
}

// Changed says that what is known of a tenant may have changed. A Get that begins afterwards learns
// it anew.
func (t *Table[V]) Changed(name string) {
	d := t.digest(name)
	s := t.shard(d)
	s.mu.Lock()
	defer s.mu.Unlock()
	if x := s.tenants[d]; x != nil {
		x.changes++
	}
}

// AllChanged is Changed for all tenants.
func (t *Table[V]) AllChanged() { t.epoch.Add(1) }

// Close ends every Learn and waits for it. What is known stays known. Later calls do nothing.
func (t *Table[V]) Close() {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	t.cancel()
	t.running.Wait()
}

// digest is a hash of 128 bits by which a tenant is kept, under seeds that nobody knows. The name
// itself has no bound.
type digest struct{ a, b uint64 }

func (t *Table[V]) digest(name string) digest {
	return digest{maphash.String(t.seeds[0], name), maphash.String(t.seeds[1], name)}
}

// shard keeps a bounded number of tenants.
type shard[V any] struct {
	mu      sync.Mutex
	tenants map[digest]*tenant[V]
	most    int
	uses    uint64   // counts the calls of Get
	_       [64]byte // so that two shards share no cache line
}

// tenant is one that is kept. The lock of its shard guards it.
type tenant[V any] struct {
	known   known[V]
	changes uint64
	used    uint64     // shard.uses at its last Get
	flight  *flight[V] // under way, or nil
}

// flight is one attempt to learn about a tenant. Callers that need it share it.
type flight[V any] struct {
	done    chan struct{}
	result  known[V] // with the epoch and the change as it began; the rest once done is closed
	learned bool     // Learn has returned
}

// known is what is known of a tenant.
type known[V any] struct {
	value  V
	until  time.Duration // it is fresh, by Table.now; 0 if nothing is known
	epoch  uint64        // Table.epoch and tenant.changes when the attempt began
	change uint64
	failed bool
}

// orElse returns an error unless something is known.
func (k *known[V]) orElse(err error) error {
	if k.until == 0 {
		return err
	}
	return nil
}

func (t *Table[V]) shard(d digest) *shard[V] { return &t.shards[d.a%uint64(len(t.shards))] }

// now is a time that never goes back.
func (t *Table[V]) now() time.Duration { return time.Since(t.start) }

// use returns a tenant, or nil if it is not kept. The caller holds mu.
func (s *shard[V]) use(d digest) *tenant[V] {
	x := s.tenants[d]
	if x != nil {
		s.uses++
		x.used = s.uses
	}
	return x
}

// unchanged reports whether something is known, and nothing is said to have changed since.
func (x *tenant[V]) unchanged(epoch uint64) bool {
	return x.known.until > 0 && x.known.epoch == epoch && x.known.change == x.changes
}

// add returns a tenant that is kept from now on. The caller holds mu.
func (s *shard[V]) add(d digest) *tenant[V] {
	if len(s.tenants) >= s.most {
		s.evict()
	}
	s.tenants[d] = new(tenant[V])
	return s.use(d)
}

// evict evicts one of a few tenants: the one that nobody has asked for longest.
func (s *shard[V]) evict() {
	const few = 8
	var idle digest
	seen, used := 0, uint64(math.MaxUint64)
	for d, x := range s.tenants { // in random order
		if x.used < used {
			idle, used = d, x.used
		}
		if seen++; seen == few {
			break
		}
	}
	delete(s.tenants, idle)
}
