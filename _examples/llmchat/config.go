package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"
)

// config is what the environment says.
type config struct {
	addr, redisURL string
	replicas       int           // that share the Redis
	timeout        time.Duration // of the Redis
	perMinute      int           // requests of a user
	lease          time.Duration // after which the streams of a replica that died are free
	wait           time.Duration // in the queue, at most; 0 refuses at once
	drain          time.Duration // that streams have to end when the replica is to stop
	tokens         int           // of an answer
	delay          time.Duration // of each token
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

func read[T any](name string, to *T, otherwise T, parse func(string) (T, error)) (err error) {
	*to = otherwise
	if text := os.Getenv(name); text != "" {
		if *to, err = parse(text); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}
