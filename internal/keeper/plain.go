package keeper

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
)

// Listener makes a Keeper listen.
type Listener func(*Keeper) channels

// Listen returns a Listener on the channels of a client's servers.
func Listen(client redis.UniversalClient) Listener {
	return func(k *Keeper) channels {
		one := k.channels.(silent)
		switch client := client.(type) {
		case *redis.ClusterClient:
			return newShards(k, client)
		case *redis.Ring:
			return &ring{silent: one, keeper: k, shards: client, heard: make(map[*redis.Client]bool)}
		case *redis.Client:
			return &plain{silent: one, keeper: k, client: client, server: client.Options().Addr}
		}
		return &plain{silent: one, keeper: k, client: client}
	}
}

// silence is how long a server may send nothing before the Keeper pings it. The answer may take as
// long.
const silence = 900 * time.Millisecond

// plain is the one channel of a process on one server.
type plain struct {
	silent
	keeper  *Keeper
	client  redis.UniversalClient
	server  string // as Config.Server names it
	listens bool   // the keeper's lock guards it
}

func (c *plain) wait(*Waiter, string) { c.hold() }

// hold starts a goroutine that listens.
func (c *plain) hold() {
	if !c.listens {
		c.listens = true
		c.keeper.Tasks.Go(c.listen)
	}
}

// listen hears the channel, on a new connection whenever one fails. After each failure all
// waiters ask once, because earlier messages are lost.
func (c *plain) listen() {
	done := c.keeper.done
	for done.Err() == nil {
		begun := time.Now()
		c.hearOn()
		if time.Since(begun) < grace/10 {
			c.keeper.pause(grace / 10)
		}
	}
}

// hearOn reads messages until the connection fails or is silent. It reads without the channels of
// go-redis, which pass each message through one more goroutine.
func (c *plain) hearOn() {
	done := c.keeper.done
	p := c.client.Subscribe(done, c.name)
	stop := context.AfterFunc(done, func() { _ = p.Close() }) // which ends a read
	defer func() {
		stop()
		_ = p.Close()
	}()
	for asked, heard := false, false; done.Err() == nil; {
		m, err := p.ReceiveTimeout(done, silence)
		var network net.Error
		switch {
		case err == nil:
			asked, heard = false, true
			c.hear(m)
		case !asked && errors.As(err, &network) && network.Timeout() && p.Ping(done) == nil:
			asked = true
		default:
			if heard {
				c.keeper.broken(c.server, settling)
			}
			return
		}
	}
}

func (c *plain) hear(m any) {
	switch m := m.(type) {
	case *redis.Message:
		c.keeper.Tell(m.Payload)
	case *redis.Subscription:
		c.keeper.back(c.server)
		c.keeper.Wake()
	}
}
