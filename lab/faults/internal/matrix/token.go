package matrix

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/headgate/headgate/lab/faults/internal/lab"
)

// fence is what a store knows that a lock protects: the highest token of it.
type fence struct {
	mu      sync.Mutex
	highest int64
	granted time.Time // when a token was last granted
	fell    error     // the first token that did not rise
}

func (f *fence) known() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.highest
}

func (f *fence) grantedAfter(t time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.granted.After(t)
}

func (f *fence) err() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.fell
}

// check takes the token of a lock that was asked for when another was the highest.
func (f *fence) check(before, token int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if token <= before && f.fell == nil {
		f.fell = fmt.Errorf("token %d after %d", token, before)
	}
	f.highest, f.granted = max(f.highest, token), time.Now()
}

// lock locks and unlocks until the context ends: a lock that all processes want, and one of its own,
// whose state is idle after each release.
func (p *process) lock(ctx context.Context, l *lab.Lab, shared *fence, wg *sync.WaitGroup) {
	for name, f := range map[string]*fence{"shared": shared, fmt.Sprint("own-", p.id): &p.own} {
		k := key(l, local, name)
		wg.Go(func() {
			for ; ctx.Err() == nil; time.Sleep(pace) {
				before := f.known()
				lease, err := p.mutex.TryLock(context.Background(), k)
				if err != nil { // others hold it, or Redis fails
					continue
				}
				f.check(before, lease.Token())
				_ = lease.Release(context.Background()) // is sent again
			}
		})
	}
}
