package keeper

// Count is what a process has at the semaphore of one name.
type Count struct {
	Held   int // leases
	Queued int // callers that a store has queued
}

// maxNames bounds the names of semaphores that Count knows although nobody holds or waits there.
const maxNames = 1000

// Name tells the Keeper the name of a semaphore.
func (k *Keeper) Name(name string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.names == nil {
		k.names = make(map[string]struct{})
	}
	if len(k.names) < maxNames {
		k.names[name] = struct{}{}
	}
}

// Count returns what this process has, by the names of semaphores. It takes time in proportion to
// the leases and waiters.
func (k *Keeper) Count() map[string]Count {
	k.mu.Lock()
	defer k.mu.Unlock()
	counts := make(map[string]Count)
	for name := range k.names {
		counts[name] = Count{}
	}
	for _, h := range k.held {
		c := counts[h.Name]
		c.Held++
		counts[h.Name] = c
	}
	for _, w := range k.waiting {
		if c := counts[w.name]; w.queues.Load() {
			c.Queued++
			counts[w.name] = c
		}
	}
	return counts
}
