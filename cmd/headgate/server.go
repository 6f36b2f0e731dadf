package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/inspect"
)

// server is what ping learns about one server.
type server struct {
	Address string  `json:"address"`
	Product string  `json:"product"`
	Version string  `json:"version"`
	Role    string  `json:"role"`
	Mode    string  `json:"mode"`
	Memory  string  `json:"maxmemory_policy"`
	RTT     seconds `json:"round_trip_seconds"`

	findings []finding
}

// finding is something that is wrong, or that an operator should know.
type finding struct {
	Level   string `json:"level"` // error, warning or note
	Server  string `json:"server,omitempty"`
	Problem string `json:"problem"`
	Advice  string `json:"advice,omitempty"`
}

func (f finding) isError() bool { return f.Level == "error" }

// products are what INFO calls the servers that are not Redis.
var products = []struct{ field, name string }{
	{"valkey_version", "Valkey"}, {"dragonfly_version", "Dragonfly"}, {"garnet_version", "Garnet"},
	{"kvrocks_version", "Kvrocks"}, {"keydb_version", "KeyDB"},
}

// servers returns the servers that hold keys, by their addresses.
func servers(ctx context.Context, client redis.UniversalClient) (all []*server, err error) {
	if c, ok := client.(*redis.ClusterClient); ok {
		var mu sync.Mutex
		err = c.ForEachMaster(ctx, func(ctx context.Context, one *redis.Client) error {
			s := &server{Address: one.Options().Addr}
			err := s.look(ctx, one)
			mu.Lock()
			defer mu.Unlock()
			all = append(all, s)
			return err
		})
		slices.SortFunc(all, func(a, b *server) int { return strings.Compare(a.Address, b.Address) })
		return all, err
	}
	one, ok := client.(*redis.Client)
	if !ok {
		return nil, fmt.Errorf("no servers of a %T", client)
	}
	s := &server{Address: one.Options().Addr}
	if s.Address == "FailoverClient" { // go-redis does not tell which
		s.Address = "primary of the sentinels"
	}
	return []*server{s}, s.look(ctx, one)
}

// look fills in what a server is and what is wrong with it. Its error is that of a server that does
// not answer.
func (s *server) look(ctx context.Context, client *redis.Client) error {
	if err := client.Ping(ctx).Err(); err != nil && !strings.HasPrefix(err.Error(), "NOPERM") {
		return fmt.Errorf("%s: %w", s.Address, err)
	}
	start := time.Now()
	_ = client.Ping(ctx).Err() // a refusal takes as long
	s.RTT = seconds(time.Since(start))
	info, err := client.Info(ctx).Result()
	if err != nil {
		s.find("note", "INFO is forbidden, so the product, its version and its settings are not known",
			cmp.Or(inspect.Advice(err), "grant the user +info"))
		return nil
	}
	s.read(info)
	return nil
}

func (s *server) find(level, problem, advice string) {
	s.findings = append(s.findings, finding{level, s.Address, problem, advice})
}

// read reads INFO.
func (s *server) read(info string) {
	field := func(name string) string {
		for line := range strings.Lines(info) {
			if v, ok := strings.CutPrefix(line, name+":"); ok {
				return strings.TrimSpace(v)
			}
		}
		return ""
	}
	s.Product, s.Version = "Redis", field("redis_version")
	for _, p := range products {
		if v := field(p.field); v != "" {
			s.Product, s.Version = p.name, v
			break
		}
	}
	s.Mode, s.Memory = field("redis_mode"), field("maxmemory_policy")
	if mode := field("server_mode"); mode != "" { // Valkey 9
		s.Mode = mode
	}
	if s.Role = field("role"); s.Role == "master" {
		s.Role = "primary"
	}
	if s.Role == "slave" {
		s.Role = "replica"
		s.find("error", "it is a replica, which rejects writes",
			"connect to the primary, or to the sentinels with ?master_name=NAME")
	}
	if s.Memory != "" && s.Memory != "noeviction" && field("maxmemory") != "0" {
		s.find(
			"warning",
			"maxmemory-policy is "+s.Memory+": when memory runs out, Redis forgets limits and slots",
			"CONFIG SET maxmemory-policy noeviction",
		)
	}
	if field("aof_enabled") == "0" && field("connected_slaves") == "0" {
		s.find(
			"note", "it has no replica and no append-only file: a restart forgets what was spent lately",
			"see \"Server\" in docs/redis.md if limits must survive that",
		)
	}
}
