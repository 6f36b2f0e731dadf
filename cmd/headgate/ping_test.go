package main

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/redistest"
)

// pingJSON is the answer of ping, as a script reads it.
type pingJSON struct {
	OK       bool
	Servers  []serverJSON
	Findings []finding
}

type serverJSON struct {
	Address, Product, Version, Role, Mode string

	Memory string  `json:"maxmemory_policy"`
	RTT    float64 `json:"round_trip_seconds"`
}

func (p *pingJSON) has(level, problem, advice string) bool {
	return slices.ContainsFunc(p.Findings, func(f finding) bool {
		return f.Level == level && strings.Contains(f.Problem, problem) && strings.Contains(f.Advice, advice)
	})
}

func urlOf(s *redistest.Server) string { return "redis://" + s.Addr }

// acl changes a user of Redis.
func acl(t *testing.T, client *redis.Client, user, words string) {
	t.Helper()
	args := []any{"ACL", "SETUSER", user}
	for word := range strings.FieldsSeq(words) {
		args = append(args, word)
	}
	gatetest.NoError(t, client.Do(t.Context(), args...).Err())
}

// rights returns a line of rights of docs/redis.md, from 1.
func rights(t *testing.T, line int) string {
	t.Helper()
	text := gatetest.Must(os.ReadFile("../../docs/redis.md"))(t)
	return regexp.MustCompile(`(?m)^ACL SETUSER app (.*)$`).FindAllStringSubmatch(string(text), -1)[line-1][1]
}

func TestPing(t *testing.T) {
	t.Parallel()
	srv := redistest.Real(t)
	p, r := headgateJSON[pingJSON](t, "ping", "--redis", urlOf(srv))
	if r.code != exitOK || !p.OK || len(p.Servers) != 1 {
		t.Fatalf("exit code %d, %+v, %s", r.code, p, r.err)
	}
	s := p.Servers[0]
	if name := strings.ToLower(s.Product) + "-server-" + s.Version; !strings.HasPrefix(srv.Name, name) {
		t.Errorf("%s is %s", srv.Name, name)
	}
	if s.Address != srv.Addr || s.Role != "primary" || s.Mode != "standalone" ||
		s.Memory != "noeviction" || s.RTT <= 0 {
		t.Errorf("%+v", s)
	}
	text := headgate(t, "ping", "--redis", urlOf(srv))
	if text.code != exitOK || !strings.Contains(text.out, s.Version) {
		t.Errorf("exit code %d: %s%s", text.code, text.out, text.err)
	}
}

// Ping says which right a decision lacks, and what to grant, or where the server says it.
func TestPingNamesMissingRights(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	app := "redis://app:secret@" + srv.Addr
	for _, c := range []struct {
		words, level, problem, advice string
		code                          int
	}{
		{"+info", "note", "it has no replica", "", exitOK},
		{"", "note", "INFO is forbidden", " +info", exitOK},
		{"+info -evalsha", "error", "+evalsha", " +evalsha", exitNo},
		{"+info -set", "error", "", "", exitNo}, // only Redis 7.2 tells which right a script lacks
		{"+info resetkeys", "error", "", "ACL LOG", exitNo},
	} {
		acl(t, srv.Client(t), "app", "reset "+rights(t, 1)+" "+c.words)
		p, r := headgateJSON[pingJSON](t, "ping", "--redis", app)
		if r.code != c.code || !p.has(c.level, c.problem, c.advice) {
			t.Errorf("%s: exit code %d: %+v %s", c.words, r.code, p, r.err)
		}
	}
}

func TestPingOfBadServers(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	admin := srv.Client(t)
	gatetest.NoError(t, admin.ConfigSet(t.Context(), "maxmemory", "100mb").Err())
	gatetest.NoError(t, admin.ConfigSet(t.Context(), "maxmemory-policy", "allkeys-lru").Err())
	p, r := headgateJSON[pingJSON](t, "ping", "--redis", urlOf(srv))
	if r.code != exitOK || !p.has("warning", "maxmemory-policy is allkeys-lru", "noeviction") {
		t.Errorf("eviction: exit code %d, %+v", r.code, p)
	}
	gatetest.NoError(t, admin.Do(t.Context(), "REPLICAOF", "127.0.0.1", "1").Err())
	p, r = headgateJSON[pingJSON](t, "ping", "--redis", urlOf(srv))
	if r.code != exitNo || !p.has("error", "it is a replica", "connect to the primary") {
		t.Errorf("replica: exit code %d, %+v", r.code, p)
	}
	headgate(t, "ping", "--redis", "redis://app:wrong@"+srv.Addr).want(t, exitMisconfigured, "check the user and the password")
	headgate(t, "ping", "--redis", "redis://127.0.0.1:1").want(t, exitOutage, "nothing listens")
	headgate(t, "ping", "--redis", "rediss://"+srv.Addr, "--timeout", "200ms").want(t, exitOutage, "a server without TLS does not answer rediss://")
}

func TestPingOfCluster(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3)
	p, r := headgateJSON[pingJSON](t, "ping", "--redis", "redis://"+c.Addrs[0])
	if r.code != exitOK || !p.OK || len(p.Servers) != 3 {
		t.Fatalf("exit code %d: %+v", r.code, p)
	}
	for i, n := range c.Nodes {
		if !slices.ContainsFunc(p.Servers, func(s serverJSON) bool {
			return s.Address == n.Addr && s.Mode == "cluster"
		}) {
			t.Errorf("node %d, %s, is missing in %+v", i, n.Addr, p.Servers)
		}
	}
	p, r = headgateJSON[pingJSON](t, "ping", "--redis", "redis://"+c.Addrs[0], "--topology", "server")
	if r.code != exitNo || !p.has("error", "part of a cluster", "") {
		t.Errorf("as one server: exit code %d: %+v", r.code, p)
	}
}

func TestPingOfSentinels(t *testing.T) {
	t.Parallel()
	f := redistest.StartFailover(t, 1)
	p, r := headgateJSON[pingJSON](t, "ping", "--redis", "redis://"+f.Sentinels[0]+"?master_name=primary")
	if r.code != exitOK || !p.OK || p.Servers[0].Role != "primary" {
		t.Errorf("exit code %d: %+v %s", r.code, p, r.err)
	}
}
