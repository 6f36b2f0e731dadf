package keeper

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/breaker"
)

const (
	// silence is how long a server may send nothing before the Keeper pings it. The answer may take as
	// long.
	silence = 900 * time.Millisecond
	// retry is how long nothing subscribes after a connection that lasted for less than that.
	retry = 100 * time.Millisecond
	// denied is how long nothing subscribes after the user was not allowed to.
	denied = 10 * time.Second
)

// Listen returns a Config.Listen on the servers of a client. A script publishes its messages on the server
// of its key. A cluster passes each on to all of its nodes, so a process listens to any one of them. The
// shards of a redis.Ring pass nothing on, so a process listens to each.
func Listen(client redis.UniversalClient) func(*Keeper) {
	return func(k *Keeper) {
		switch client := client.(type) {
		case *redis.ClusterClient:
			k.repeat(func() error { return k.hearNode(client) })
		case *redis.Ring:
			k.hearShards(client)
		case *redis.Client:
			k.repeat(func() error { return k.hear(client, client.Options().Addr, true) })
		default:
			k.repeat(func() error { return k.hear(client, "", true) })
		}
	}
}

// listen begins to hear what Redis tells, unless the Keeper does. The lock is held.
func (k *Keeper) listen() {
	if k.Listen != nil && !k.listens {
		k.listens = true
		k.Tasks.Go(func() { k.Listen(k) })
	}
}

// repeat hears again whenever a connection fails, until the Keeper is closed.
func (k *Keeper) repeat(hear func() error) {
	for k.done.Err() == nil {
		begun := time.Now()
		err := breaker.Safely(hear)
		switch {
		case redis.HasErrorPrefix(err, "NOPERM"):
			k.pause(denied)
		case time.Since(begun) < retry:
			k.pause(retry)
		}
	}
}

// hearNode hears a node of a cluster until that fails. It is the master of a random slot, another one each
// time, so that a dead node does not keep the process deaf.
func (k *Keeper) hearNode(cluster *redis.ClusterClient) error {
	node, err := cluster.MasterForKey(k.done, rand.Text())
	if err != nil {
		return err
	}
	return k.hear(node, "", false)
}

// hearShards hears each shard that a Ring has at the time, and again after a failure.
func (k *Keeper) hearShards(ring *redis.Ring) {
	var heard sync.Map
	for k.done.Err() == nil {
		for _, shard := range ring.GetShardClients() {
			if _, already := heard.LoadOrStore(shard, true); already {
				continue
			}
			k.Tasks.Go(func() {
				defer heard.Delete(shard)
				_ = k.hear(shard, "", true)
			})
		}
		k.pause(retry)
	}
}

// hear hears the channel at one server, named as Config.Server does, until the connection fails or is
// silent, and returns why. After that all waiters ask once, because earlier messages are lost. It reads
// without the channels of go-redis, which pass each message through one more goroutine. tells is false for
// a node of a cluster: that its connection broke tells nothing of the others.
func (k *Keeper) hear(client subscriber, server string, tells bool) (err error) {
	p := client.Subscribe(k.done)
	stop := context.AfterFunc(k.done, func() { _ = p.Close() }) // which ends a read
	heard := false
	defer func() {
		stop()
		if panicked := recover(); panicked == nil {
			_ = p.Close()
		} else { // a hook of the client: go-redis may hold the lock that Close waits for
			err = fmt.Errorf("headgate: panic: %v", panicked)
		}
		if heard && tells {
			k.broken(server, settling)
		}
	}()
	if err := p.Subscribe(k.done, k.Channel); err != nil {
		return err
	}
	for asked := false; ; {
		m, err := p.ReceiveTimeout(k.done, silence)
		var network net.Error
		switch {
		case err == nil:
			asked, heard = false, true
		case !asked && errors.As(err, &network) && network.Timeout() && p.Ping(k.done) == nil:
			asked = true
		default:
			return err
		}
		switch m := m.(type) {
		case *redis.Message:
			k.Tell(m.Payload)
		case *redis.Subscription:
			if tells {
				k.back(server)
			}
			k.Wake()
		}
	}
}

// subscriber is a client of one server.
type subscriber interface {
	Subscribe(ctx context.Context, channels ...string) *redis.PubSub
}
