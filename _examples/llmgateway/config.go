package main

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"
)

// config is the configuration from the environment.
type config struct {
	addr         string        // of the API
	operatorAddr string        // of the operator's page, which may act as any user
	redisURL     string        // empty keeps the limits in memory
	replicas     int           // number of replicas that share the Redis
	plans        string        // path of the plans file
	upstream     *url.URL      // without /v1; nil is the built-in test upstream
	upstreamKey  string        // API key of the upstream
	delay        time.Duration // of the test upstream before each event
	timeout      time.Duration // of one decision
	lease        time.Duration // TTL of a stream's slot; a dead replica's slots are free after it
	drain        time.Duration // longest wait for running streams at shutdown
}

// readConfig returns the configuration, or every fault at once.
func readConfig() (config, error) {
	cfg := config{
		addr:         cmp.Or(os.Getenv("ADDR"), "127.0.0.1:8080"),
		operatorAddr: cmp.Or(os.Getenv("OPERATOR_ADDR"), "127.0.0.1:8081"),
		redisURL:     os.Getenv("REDIS_URL"),
		plans:        cmp.Or(os.Getenv("PLANS"), "plans.json"),
		upstreamKey:  os.Getenv("UPSTREAM_KEY"),
	}
	err := errors.Join(
		read("UPSTREAM", &cfg.upstream, nil, parseUpstream),
		read("REPLICAS", &cfg.replicas, 1, strconv.Atoi),
		read("EVENT_DELAY", &cfg.delay, 60*time.Millisecond, time.ParseDuration),
		read("REDIS_TIMEOUT", &cfg.timeout, 100*time.Millisecond, time.ParseDuration),
		read("LEASE", &cfg.lease, 10*time.Second, time.ParseDuration),
		read("DRAIN", &cfg.drain, 30*time.Second, time.ParseDuration),
	)
	if cfg.upstream != nil && cfg.upstreamKey == "" {
		err = errors.Join(err, errors.New("UPSTREAM_KEY: it is required with UPSTREAM"))
	}
	return cfg, err
}

// parseUpstream parses a base URL, with or without /v1, which the paths of requests have too.
func parseUpstream(text string) (*url.URL, error) {
	if text == "fake" {
		return nil, nil
	}
	u, err := url.Parse(strings.TrimSuffix(strings.TrimSuffix(text, "/"), "/v1"))
	if err == nil && (u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "") {
		err = fmt.Errorf("%q is no URL such as https://api.example.com", text)
	}
	return u, err
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
