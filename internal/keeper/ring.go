package keeper

import (
	"context"
	"sync"

	"github.com/redis/go-redis/v9"
)

// ring is the channel of a process on the shards of a redis.Ring. A script sends its message on the
// shard of its key, so the process listens to each shard.
type ring struct {
	silent
	keeper  *Keeper
	shards  *redis.Ring
	listens bool // the keeper's lock guards it

	mu    sync.Mutex
	heard map[*redis.Client]bool
}

func (c *ring) wait(*Waiter, string) { c.hold() }

// hold starts a goroutine that listens.
func (c *ring) hold() {
	if !c.listens {
		c.listens = true
		c.keeper.Tasks.Go(c.listen)
	}
}

// listen hears the channel on each shard that the Ring has at the time, and again after a failure.
func (c *ring) listen() {
	done := c.keeper.done
	for done.Err() == nil {
		_ = c.shards.ForEachShard(done, func(_ context.Context, shard *redis.Client) error {
			if c.begin(shard) {
				c.keeper.Tasks.Go(func() {
					defer c.end(shard)
					(&plain{silent: c.silent, keeper: c.keeper, client: shard}).hearOn()
				})
			}
			return nil
		})
		c.keeper.pause(grace / 10)
	}
}

// begin reports whether nobody listens to a shard yet. Then end must be called.
func (c *ring) begin(shard *redis.Client) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.heard[shard] {
		return false
	}
	c.heard[shard] = true
	return true
}

func (c *ring) end(shard *redis.Client) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.heard, shard)
}
