// Package lab starts servers of Redis on loopback, to be broken. It needs redis-server on PATH, Redis 7
// or later.
package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/headgate/headgate/lab/faults/faultproxy"
)

// Topology is how the servers of a Lab work together.
type Topology uint8

const (
	OneServer Topology = iota
	Cluster            // three masters, the first with a replica
	Sentinel           // a primary, a replica and three sentinels
)

// String returns the topology in words.
func (t Topology) String() string { return [...]string{"one server", "cluster", "Sentinel"}[t] }

// PeersNotice is how long a server of a cluster or below a sentinel must be silent until its peers
// take it as dead.
const PeersNotice = 2 * time.Second

// PoolSize is how many connections a client has to a server at most.
const PoolSize = 20

// Config says what servers to start.
type Config struct {
	Topology Topology
	TLS      bool     // the server speaks TLS; one server only
	Clock    bool     // SetClock works; one server only
	Args     []string // of every server that holds data
}

// Lab is a Redis that may be broken.
type Lab struct {
	Config
	Primary *Server // holds the keys below Outermost
	Replica *Server // of Primary, except with OneServer
	Other   *Server // another master of a Cluster
	// Outermost is the outermost part of keys that Primary holds.
	Outermost string

	dir       string
	servers   []*Server
	sentinels []*Server
	peers     *faultproxy.Proxy // what the others reach a Primary below Sentinel by
	trust     *authority
	skew      string // file with the step of the clock in microseconds
}

// Start starts the servers and waits until they serve.
func Start(cfg Config) (l *Lab, err error) {
	dir, err := os.MkdirTemp("", "headgate-faults-")
	if err != nil {
		return nil, err
	}
	l = &Lab{Config: cfg, dir: dir, Outermost: "acme"}
	defer func() {
		if err != nil {
			l.Close()
			l, err = nil, fmt.Errorf("start %v: %w", cfg.Topology, err)
		}
	}()
	switch cfg.Topology {
	case Cluster:
		return l, l.startCluster()
	case Sentinel:
		return l, l.startSentinel()
	}
	var env []string
	args := cfg.Args
	if cfg.TLS {
		if l.trust, err = newAuthority(dir); err != nil {
			return l, err
		}
		args = append(args, l.trust.args()...)
	}
	if cfg.Clock {
		if env, err = l.preload(); err != nil {
			return l, err
		}
	}
	l.Primary, err = l.start(args, env)
	return l, err
}

// start starts a server that holds data.
func (l *Lab) start(args, env []string) (*Server, error) {
	s, err := newServer(filepath.Join(l.dir, strconv.Itoa(len(l.servers))))
	if err != nil {
		return nil, err
	}
	s.args = append([]string{
		"--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--enable-debug-command", "local",
		"--repl-diskless-sync-delay", "0",
	}, args...)
	if l.trust == nil {
		s.args = append(s.args, "--port", strconv.Itoa(s.port))
	} else {
		s.args = append(s.args, "--port", "0", "--tls-port", strconv.Itoa(s.port))
		s.trust = l.trust
	}
	s.env = env
	l.servers = append(l.servers, s)
	return s, s.Launch()
}

// Addrs returns the addresses of the servers that hold data.
func (l *Lab) Addrs() (addrs []string) {
	for _, s := range l.servers {
		addrs = append(addrs, s.Addr)
	}
	return addrs
}

// SentinelAddrs returns the addresses of the sentinels.
func (l *Lab) SentinelAddrs() (addrs []string) {
	for _, s := range l.sentinels {
		addrs = append(addrs, s.Addr)
	}
	return addrs
}

// Client returns a client as docs/redis.md advises, which dials through the links of a process.
func (l *Lab) Client(n *faultproxy.Network) redis.UniversalClient {
	quiet := &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
		if l.peers != nil && addr == l.peers.Addr {
			addr = l.Primary.Addr
		}
		conn, err := n.Dial(ctx, network, addr)
		if err != nil || l.trust == nil {
			return conn, err
		}
		return l.trust.client(ctx, conn)
	}
	switch l.Topology {
	case Cluster:
		return redis.NewClusterClient(&redis.ClusterOptions{
			Addrs: l.Addrs(), Dialer: dial, ContextTimeoutEnabled: true, DialerRetries: 1, PoolSize: PoolSize,
			ClusterStateReloadInterval: 250 * time.Millisecond, MaintNotificationsConfig: quiet,
		})
	case Sentinel:
		return redis.NewFailoverClient(&redis.FailoverOptions{
			MasterName: primaryName, SentinelAddrs: l.SentinelAddrs(), Dialer: dial,
			ContextTimeoutEnabled: true, DialerRetries: 1, PoolSize: PoolSize,
		})
	}
	return redis.NewClient(&redis.Options{
		Addr: l.Primary.Addr, Dialer: dial, ContextTimeoutEnabled: true, DialerRetries: 1, PoolSize: PoolSize,
		MaintNotificationsConfig: quiet,
	})
}

// Close ends all servers.
func (l *Lab) Close() {
	for _, s := range append(l.sentinels, l.servers...) {
		s.Kill()
	}
	if l.peers != nil {
		l.peers.Close()
	}
	_ = os.RemoveAll(l.dir)
}

// await polls until check returns nil.
func await(check func() error) error {
	deadline := time.Now().Add(20 * time.Second)
	for {
		err := check()
		if err == nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
}

var errAnswer = errors.New("an answer of another kind")
