package server

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

const slots = 16384

// Cluster is a Redis Cluster of masters on the loopback.
type Cluster struct {
	// Nodes are the masters, in the order of the slots they own.
	Nodes []*Server
}

// StartCluster starts masters, joins them and waits until each of them serves the cluster. That takes two seconds, for
// which a master refuses to serve after its start.
func StartCluster(ctx context.Context, masters int) (*Cluster, error) {
	c := &Cluster{}
	for range masters {
		bus, err := freePort()
		if err == nil {
			var s *Server
			s, err = Start(ctx, "--cluster-enabled", "yes", "--cluster-port", strconv.Itoa(bus),
				"--cluster-announce-ip", "127.0.0.1")
			if err == nil {
				s.bus = bus
				c.Nodes = append(c.Nodes, s)
			}
		}
		if err != nil {
			c.Stop()
			return nil, err
		}
	}
	err := c.join(ctx)
	if err == nil {
		err = c.await(ctx)
	}
	if err != nil {
		c.Stop()
		return nil, fmt.Errorf("join %d masters to a cluster: %w", masters, err)
	}
	return c, nil
}

func (c *Cluster) join(ctx context.Context) error {
	// Nodes with equal epochs would first have to agree on new ones, and a node takes an epoch only before it has met
	// another.
	for i, s := range c.Nodes {
		first, end := i*slots/len(c.Nodes), (i+1)*slots/len(c.Nodes)
		if err := s.admin.ClusterAddSlotsRange(ctx, first, end-1).Err(); err != nil {
			return fmt.Errorf("CLUSTER ADDSLOTSRANGE: %w", err)
		}
		if err := s.admin.Do(ctx, "CLUSTER", "SET-CONFIG-EPOCH", i+1).Err(); err != nil {
			return fmt.Errorf("CLUSTER SET-CONFIG-EPOCH: %w", err)
		}
	}
	// Every pair meets, as waiting for gossip to spread takes longer.
	for i, s := range c.Nodes {
		for j, other := range c.Nodes {
			if i == j {
				continue
			}
			if err := s.admin.Do(ctx, "CLUSTER", "MEET", "127.0.0.1", other.port, other.bus).Err(); err != nil {
				return fmt.Errorf("CLUSTER MEET: %w", err)
			}
		}
	}
	return nil
}

func (c *Cluster) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*patience)
	defer cancel()
	nodes := strconv.Itoa(len(c.Nodes))
	for _, s := range c.Nodes {
		for {
			text, err := s.admin.ClusterInfo(ctx).Result()
			if err != nil {
				return fmt.Errorf("CLUSTER INFO: %w", err)
			}
			info := parse(text)
			if info["cluster_state"] == "ok" && info["cluster_known_nodes"] == nodes && info["cluster_size"] == nodes {
				break
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("cluster_state is %q: %w", info["cluster_state"], ctx.Err())
			case <-time.After(20 * time.Millisecond):
			}
		}
	}
	return nil
}

// Stop ends all nodes. It may be called on nil.
func (c *Cluster) Stop() {
	if c == nil {
		return
	}
	for _, s := range c.Nodes {
		s.Stop()
	}
}

// Client returns a new client of the cluster with the options that docs/redis.md advises.
func (c *Cluster) Client() *redis.ClusterClient {
	o := &redis.ClusterOptions{
		ContextTimeoutEnabled: true, DialerRetries: 1, ClusterStateReloadInterval: 250 * time.Millisecond,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	for _, s := range c.Nodes {
		o.Addrs = append(o.Addrs, s.Addr)
	}
	return redis.NewClusterClient(o)
}

// Usage is the sum over all nodes.
func (c *Cluster) Usage(ctx context.Context) (Usage, error) {
	var sum Usage
	for _, s := range c.Nodes {
		u, err := s.Usage(ctx)
		if err != nil {
			return Usage{}, err
		}
		sum.CPU += u.CPU
		sum.Reads += u.Reads
	}
	return sum, nil
}
