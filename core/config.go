package core

import (
	"context"
	"errors"
	"fmt"
	"time"
)

var topologies = [...]string{"auto", "one server", "cluster"}

// String returns the topology in lower-case words.
func (t Topology) String() string { return nameOf(topologies[:], int(t)) }

// Topology says what a Redis client leads to.
type Topology uint8

const (
	// Auto takes a *redis.Client for one server, Sentinel's included, and every other client for a cluster.
	Auto Topology = iota
	// OneServer decides charges on any keys in one script.
	OneServer
	// Cluster decides charges in one script only where their keys share the outermost part.
	Cluster
)

// Config configures a Gate. The zero value is a good configuration for one process.
type Config struct {
	// Prefix begins the name of every key in Redis: 1 to 32 of the characters A-Z a-z 0-9 _ . and -. It is "hg" if
	// empty.
	Prefix string
	// Timeout bounds a decision, whatever the client's own time-outs are. It is 100 ms if zero. Decisions that begin
	// within an eighth of it share a deadline, so that some end by as much earlier.
	Timeout time.Duration
	// Replicas is the number of processes that share the limits. A policy that is Local in a failure gets this part
	// of its limit in each. It is 1 if zero.
	Replicas int
	// Topology says what the client leads to, where its type does not.
	Topology Topology
	// MaxInFlight bounds the decisions that wait for Redis at one time. More are decided by their failure modes. It is
	// 1024 if zero.
	MaxInFlight int
	// MaxKeys bounds the keys kept in memory: by a Gate in memory, and by any Gate for policies that are Local. It is
	// 100,000 if zero, and is rounded up to a multiple of 64. Where more are in use, those nearest to untouched are
	// forgotten first.
	MaxKeys int
	// DisableDenialCache makes Decide, Charge and Admit ask Redis each time. If false, what Redis has denied is denied by this
	// process while nothing but time lifts it: it asks again after the wait, after a second at most, after a Reset, Cancel or
	// Settle of its own, and for other costs or limits. What other processes give back or reset, it so sees within a second.
	// The last 4096 denials are known.
	DisableDenialCache bool
	// Clock is the time of a Gate in memory, such as a ManualClock; from 1970 on. It is the system's monotonic clock if
	// nil. Redis has its own.
	Clock Clock
	// Observe is called after every operation, in the goroutine of the caller, and in goroutines of the Gate for what happens
	// there. It must be fast and safe for concurrent use. It costs nothing if nil.
	Observe func(context.Context, Event)
}

const (
	defaultPrefix      = "hg"
	defaultTimeout     = 100 * time.Millisecond
	defaultMaxInFlight = 1024
	defaultMaxKeys     = 100_000
)

// complete fills in the defaults, or returns every fault.
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
		errs = append(errs, fmt.Errorf("core: Config.Timeout is %v: it must be between 1ms and 1m", cfg.Timeout))
	}
	if cfg.Topology > Cluster {
		errs = append(errs, fmt.Errorf("core: Config.Topology is %d: it must be Auto, OneServer or Cluster", cfg.Topology))
	}
	number := func(field string, n *int, otherwise, most int) {
		if *n == 0 {
			*n = otherwise
		} else if *n < 0 || *n > most {
			errs = append(errs, fmt.Errorf("core: Config.%s is %d: it must be between 1 and %d", field, *n, most))
		}
	}
	if cfg.Clock != nil && cfg.Clock.Now().Unix() < 0 {
		errs = append(errs, fmt.Errorf("core: Config.Clock is at %v: it must not be before 1970", cfg.Clock.Now()))
	}
	number("Replicas", &cfg.Replicas, 1, 1_000_000)
	number("MaxInFlight", &cfg.MaxInFlight, defaultMaxInFlight, 1_000_000)
	number("MaxKeys", &cfg.MaxKeys, defaultMaxKeys, 1_000_000_000)
	return cfg, errors.Join(errs...)
}

// clock returns the configured clock in microseconds, or the monotonic clock of the system.
func (cfg *Config) clock() func() int64 {
	if cfg.Clock != nil {
		return func() int64 { return cfg.Clock.Now().UnixMicro() }
	}
	start := time.Now()
	base := start.UnixMicro()
	return func() int64 { return base + time.Since(start).Microseconds() }
}
