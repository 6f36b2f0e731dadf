package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"
)

// config is the configuration from the environment.
type config struct {
	addr, redisURL string
	replicas       int           // number of replicas that share the Redis
	timeout        time.Duration // of one decision
	perMinute      int           // requests that a user may send
	lease          time.Duration // TTL of a stream's slot; a dead replica's slots are free after it
	wait           time.Duration // longest wait in the queue; 0 refuses immediately
	drain          time.Duration // longest wait for running streams at shutdown
	tokens         int           // length of an answer
	delay          time.Duration // before each token
}

func readConfig() (config, error) {
	cfg := config{addr: cmp.Or(os.Getenv("ADDR"), "127.0.0.1:8080"), redisURL: os.Getenv("REDIS_URL")}
	err := errors.Join(
		read("REPLICAS", &cfg.replicas, 2, strconv.Atoi),
		read("REDIS_TIMEOUT", &cfg.timeout, 100*time.Millisecond, time.ParseDuration),
		read("REQUESTS_PER_MINUTE", &cfg.perMinute, 30, strconv.Atoi),
		read("LEASE", &cfg.lease, 10*time.Second, time.ParseDuration),
		read("MAX_WAIT", &cfg.wait, time.Minute, time.ParseDuration),
		read("DRAIN", &cfg.drain, 30*time.Second, time.ParseDuration),
		read("TOKENS", &cfg.tokens, 80, strconv.Atoi),
		read("TOKEN_DELAY", &cfg.delay, 150*time.Millisecond, time.ParseDuration),
	)
	return cfg, err
}

// read parses an environment variable, or uses the default if it is not set.
func read[T any](name string, to *T, otherwise T, parse func(string) (T, error)) (err error) {
	*to = otherwise
	if text := os.Getenv(name); text != "" {
		if *to, err = parse(text); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}
