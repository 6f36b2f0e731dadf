package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// server is what ping learns about one server.
type server struct {
	Address string   `json:"address"`
	Product string   `json:"product"`
	Version string   `json:"version"`
	Role    string   `json:"role"`
	Mode    string   `json:"mode"`
	Memory  string   `json:"maxmemory_policy"`
	RTT     seconds  `json:"round_trip_seconds"`
	User    string   `json:"user"`
	Missing []string `json:"missing_rights"`

	client   *redis.Client
	key      string // one that the server has
	rights   rights
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

// servers returns the servers that hold keys, each with the name of a key that it has.
func servers(ctx context.Context, c *connection) (all []*server, err error) {
	switch client := c.client.(type) {
	case *redis.ClusterClient:
		return masters(ctx, client, c.names())
	case *redis.Client:
		address := client.Options().Addr
		if address == "FailoverClient" { // go-redis does not tell which
			address = "primary of the sentinels"
		}
		return []*server{{Address: address, client: client, key: c.names() + "{ping}:rights"}}, nil
	}
	return nil, fmt.Errorf("no servers of a %T", c.client)
}

// masters returns the servers of a cluster that have slots.
func masters(
	ctx context.Context, c *redis.ClusterClient, prefix string,
) (all []*server, err error) {
	known := make(map[string]bool)
	const enough = 10_000 // hash slots are 16,384, and a server has many
	for i := range enough {
		key := fmt.Sprintf("%s{ping-%d}:rights", prefix, i)
		one, err := c.MasterForKey(ctx, key)
		if err != nil {
			return nil, err
		}
		if address := one.Options().Addr; !known[address] {
			known[address] = true
			all = append(all, &server{Address: address, client: one, key: key})
		}
	}
	slices.SortFunc(all, func(a, b *server) int { return strings.Compare(a.Address, b.Address) })
	return all, nil
}

// look fills in what a server is and what is wrong with it. Its error is that of a server that does
// not answer.
func (s *server) look(ctx context.Context) error {
	s.rights = rights{client: s.client, key: s.key}
	if err := s.rights.find(ctx); err != nil {
		return err
	}
	s.Missing = append([]string{}, slices.Sorted(maps.Keys(s.rights.wrong))...)
	start := time.Now()
	_ = s.client.Ping(ctx).Err() // a refusal takes as long
	s.RTT = seconds(time.Since(start))
	if s.User, _ = s.client.Do(ctx, "ACL", "WHOAMI").Text(); s.User == "" {
		s.User = s.client.Options().Username
	}
	info, err := s.client.Info(ctx).Result()
	if err != nil {
		s.find("note", "INFO is forbidden, so the product, its version and its settings are not known",
			"ACL SETUSER "+s.user()+" +info")
		return nil
	}
	s.read(info)
	return nil
}

func (s *server) user() string { return cmp.Or(s.User, "app") }

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

// refusals are findings about the rights of the user.
func (s *server) refusals(prefix string) (all []finding) {
	for _, f := range features {
		missing := s.rights.missing(f)
		if len(missing) == 0 {
			continue
		}
		level := "warning"
		if f.name == features[0].name {
			level = "error"
		}
		all = append(all, finding{
			level, s.Address,
			fmt.Sprintf("user %s lacks rights for %s: %s", s.user(), f.name, strings.Join(missing, ", ")),
			fmt.Sprintf(
				"ACL SETUSER %s %s", s.user(), s.rights.grant(missing, prefix),
			),
		})
	}
	return all
}
