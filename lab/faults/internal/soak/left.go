package soak

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/lab/faults/internal/lab"
)

// patience is how long what ends by itself may take: leases and holds of calls whose answers were
// lost, and the connections of the server.
const patience = 15 * time.Second

// left returns what Redis still has of programs that have ended: connections, subscriptions, leases,
// holds, and keys that never expire.
func left(l *lab.Lab) error {
	deadline := time.Now().Add(patience)
	for {
		err := remains(l)
		if err == nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func remains(l *lab.Lab) error {
	ctx := context.Background()
	admin := l.Primary.Admin()
	defer admin.Close()
	clients, err := admin.ClientList(ctx).Result()
	if err != nil {
		return err
	}
	var errs []error
	if n := strings.Count(clients, "\n") - 1; n > 0 {
		errs = append(errs, fmt.Errorf("%d connections are left", n))
	}
	keys := admin.Scan(ctx, 0, "*", 1000).Iterator()
	for keys.Next(ctx) {
		key := keys.Val()
		ttl, err := admin.PTTL(ctx, key).Result()
		if err == nil && ttl == -1 {
			err = fmt.Errorf("%s has no TTL", key)
		}
		errs = append(errs, err, alive(ctx, admin, key, ttl))
	}
	errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	if len(errs) > 5 {
		errs = append(errs[:5], fmt.Errorf("and %d more", len(errs)-5))
	}
	return errors.Join(append(errs, keys.Err())...)
}

// alive returns an error if a key has a lease, a place in a queue or a hold that has not ended. Most
// are members of a sorted set, by their end. One that is alone at its outermost key is a text, which
// Redis keeps for 301 s longer than the lease, and as long as that after its release.
func alive(ctx context.Context, admin *redis.Client, key string, ttl time.Duration) error {
	const alone = 301 * time.Second
	switch admin.Type(ctx, key).Val() {
	case "zset":
		now := admin.Time(ctx).Val().UnixMicro()
		if n := admin.ZCount(ctx, key, strconv.FormatInt(now, 10), "+inf").Val(); n > 0 {
			return fmt.Errorf("%s has %d members that have not ended", key, n)
		}
	case "string":
		if strings.HasSuffix(key, ":m") && ttl > alone {
			return fmt.Errorf("%s has a lease for %v", key, ttl-alone)
		}
	}
	return nil
}

// goroutines is how many ran before the soak.
type goroutines int

func countGoroutines() goroutines { return goroutines(runtime.NumGoroutine()) }

// err returns the goroutines that are left.
func (g goroutines) err() error {
	deadline := time.Now().Add(patience)
	// The one that waits for the server's process is not the program's.
	const server = 1
	for runtime.NumGoroutine() > int(g)+server {
		if time.Now().After(deadline) {
			var stacks strings.Builder
			_ = pprof.Lookup("goroutine").WriteTo(&stacks, 1)
			return fmt.Errorf("%d goroutines instead of %d:\n%s", runtime.NumGoroutine(), int(g)+server, &stacks)
		}
		time.Sleep(50 * time.Millisecond)
	}
	return nil
}

// heap is what the program has in use: at a fifth of its time, when every cache has seen its keys,
// and at the end.
type heap struct{ early, late uint64 }

func (h *heap) watch(ctx context.Context, lasts time.Duration) {
	sleep(ctx, lasts/5)
	h.early = inUse()
	<-ctx.Done()
	h.late = inUse()
}

func inUse() uint64 {
	runtime.GC()
	runtime.GC() // what a pool kept ends with the second
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// growth is how much more the heap may have at the end: what is on its way, and no leak of ten
// minutes.
const growth = 8 << 20

func (h *heap) err() error {
	if h.late > h.early+growth {
		return fmt.Errorf("the heap has grown from %d KiB to %d KiB", h.early>>10, h.late>>10)
	}
	return nil
}

func (h *heap) write(out io.Writer) {
	fmt.Fprintf(out, "heap: %d KiB at a fifth of the time, %d KiB at the end\n", h.early>>10, h.late>>10)
}
