package core

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headgate/headgate/internal/enum"
)

var topologies = [...]string{"auto", "one server", "cluster"}

// String returns the topology in lower-case words.
func (t Topology) String() string { return enum.Name(topologies[:], int(t)) }

// Topology says what a Redis client connects to.
type Topology uint8

const (
	// TopologyAuto takes a *redis.Client as one server, also behind Sentinel, and any other client as a
	// cluster.
	TopologyAuto Topology = iota
	// TopologyOneServer decides charges on any keys in one script.
	TopologyOneServer
	// TopologyCluster decides charges in one script only if their keys share the outermost part. A
	// *redis.Client needs it if a proxy hides a cluster behind one address.
	TopologyCluster
)

// Config configures a Gate. The zero value is right for one process.
type Config struct {
	// Prefix begins the name of every key in Redis. It has 1 to 32 of the characters A-Z a-z 0-9 _
	// . and -. Empty means "hg".
	Prefix string
	// Timeout bounds one decision, whatever the timeouts of the client are. Zero means 100 ms.
	// Decisions share timers, so a decision may time out early, by up to an eighth of Timeout. In a
	// process whose goroutines wait for the CPU it may take up to a second, or five times Timeout if
	// that is longer: the answer may be there and unread.
	Timeout time.Duration
	// Replicas is the number of processes that share the limits. While Redis fails, each admits
	// that part of a Local policy's limit. Zero means 1.
	Replicas int
	// Topology says what the client connects to, if its type does not. Zero means TopologyAuto.
	Topology Topology
	// MaxKeys bounds the keys that a Gate keeps in memory, and that a Gate on Redis keeps for Local
	// policies. It is rounded up to a multiple of 64. Zero means 100,000. Beyond it, the keys with
	// the least spent of their limits are evicted first. A key takes some 200 bytes, and one of a
	// SlidingLog 8 more for each charge that counts, so a log of 1,000 takes 8.3 KB.
	MaxKeys int
	// DisableDenialCache makes every Decide, Charge and Admit ask Redis. By default a process
	// remembers up to 4096 denials that only time can lift, and answers equal requests from memory:
	// until RetryAfter, for at most one second, and until a Reset, Cancel or Settle of its own.
	// Within that second it misses refunds and resets of other processes, and what a decision under
	// a limit of another width changed.
	DisableDenialCache bool
	// Clock returns the time of a Gate in memory, such as ManualClock.Now. It must not be before
	// 1970, and must be safe for concurrent use. If it goes back, no limit allows more than it would
	// have.
	// Nil means the monotonic clock of the system. A Gate on Redis goes by the server's clock.
	Clock func() time.Time
	// Observe is called after every operation, in the goroutine of the caller, and in goroutines of
	// the Gate for what happens there. It must be fast and safe for concurrent use. It costs
	// nothing if nil.
	Observe func(context.Context, Event)
}

const (
	defaultPrefix  = "hg"
	defaultTimeout = 100 * time.Millisecond
	defaultMaxKeys = 100_000
)

// complete returns the configuration with defaults, or every fault.
func (cfg Config) complete() (Config, error) {
	var errs []error
	if cfg.Prefix == "" {
		cfg.Prefix = defaultPrefix
	} else if err := checkName(cfg.Prefix, 32); err != nil {
		errs = append(errs, fmt.Errorf("core: Config.Prefix %w", err))
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = defaultTimeout
	} else if cfg.Timeout < time.Millisecond || cfg.Timeout > time.Minute {
		errs = append(errs,
			fmt.Errorf("core: Config.Timeout is %v: it must be between 1ms and 1m", cfg.Timeout))
	}
	if cfg.Topology > TopologyCluster {
		errs = append(errs, fmt.Errorf(
			"core: Config.Topology is %d: it must be one of the Topology constants", cfg.Topology))
	}
	number := func(field string, n *int, otherwise, most int) {
		if *n == 0 {
			*n = otherwise
		} else if *n < 0 || *n > most {
			errs = append(errs,
				fmt.Errorf("core: Config.%s is %d: it must be between 1 and %d", field, *n, most))
		}
	}
	if cfg.Clock != nil && cfg.Clock().Unix() < 0 {
		errs = append(errs,
			fmt.Errorf("core: Config.Clock is at %v: it must not be before 1970", cfg.Clock()))
	}
	number("Replicas", &cfg.Replicas, 1, 1_000_000)
	number("MaxKeys", &cfg.MaxKeys, defaultMaxKeys, 1_000_000_000)
	return cfg, errors.Join(errs...)
}

// clock returns the configured clock in microseconds, or the monotonic clock of the system.
func (cfg *Config) clock() func() int64 {
	if cfg.Clock != nil {
		return func() int64 { return cfg.Clock().UnixMicro() }
	}
	start := time.Now()
	base := start.UnixMicro()
	return func() int64 { return base + time.Since(start).Microseconds() }
}
