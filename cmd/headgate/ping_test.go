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
	Address, Product, Version, Role, Mode, User string

	Memory  string   `json:"maxmemory_policy"`
	RTT     float64  `json:"round_trip_seconds"`
	Missing []string `json:"missing_rights"`
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

// allow returns the rights to run commands.
func allow(commands string) string { return "+" + strings.Join(strings.Fields(commands), " +") }

// The lines of rights in docs/redis.md are those that ping checks.
func TestRightsAreThoseOfDocumentation(t *testing.T) {
	t.Parallel()
	text := gatetest.Must(os.ReadFile("../../docs/redis.md"))(t)
	var lines []string
	for _, line := range strings.Split(string(text), "\n") {
		if !strings.HasPrefix(line, "ACL SETUSER app ") {
			continue
		}
		var commands []string
		for _, word := range regexp.MustCompile(`\+[a-z]+`).FindAllString(line, -1) {
			commands = append(commands, word[1:])
		}
		lines = append(lines, strings.Join(commands, " "))
	}
	var want []string
	for _, f := range features {
		want = append(want, f.commands)
	}
	if !slices.Equal(lines, want) {
		t.Errorf("docs/redis.md has\n%s\nping checks\n%s", strings.Join(lines, "\n"), strings.Join(want, "\n"))
	}
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
	if s.Address != srv.Addr || s.Role != "primary" || s.Mode != "standalone" || s.User != "default" ||
		s.Memory != "noeviction" || s.RTT <= 0 || len(s.Missing) != 0 {
		t.Errorf("%+v", s)
	}
	text := headgate(t, "ping", "--redis", urlOf(srv))
	if text.code != exitOK || !strings.Contains(text.out, s.Version) || strings.Contains(text.out, "missing") {
		t.Errorf("exit code %d: %s%s", text.code, text.out, text.err)
	}
	if left := srv.Client(t).Keys(t.Context(), "*rights*").Val(); len(left) > 0 {
		t.Errorf("ping leaves %v", left)
	}
}

// Whatever right is taken away, ping names it and what to grant, and the grant mends it.
func TestPingNamesMissingRights(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	admin := srv.Client(t)
	user := func(words string) { t.Helper(); acl(t, admin, "app", words) }
	all := "reset on >secret ~hg:* &hg:* +info +acl|whoami"
	for _, f := range features {
		all += " " + allow(f.commands)
	}
	app := "redis://app:secret@" + srv.Addr
	ping := func() (pingJSON, result) {
		t.Helper()
		return headgateJSON[pingJSON](t, "ping", "--redis", app)
	}
	user(all)
	if p, r := ping(); r.code != exitOK || len(p.Servers[0].Missing) > 0 || p.Servers[0].User != "app" {
		t.Fatalf("exit code %d: %+v", r.code, p)
	}
	for _, f := range features {
		for command := range strings.FieldsSeq(f.commands) {
			user("-" + command)
			p, r := ping()
			isLimits := strings.Contains(" "+features[0].commands+" ", " "+command+" ")
			level, code := "warning", exitOK
			if isLimits {
				level, code = "error", exitNo
			}
			if r.code != code || p.OK == isLimits || !p.has(level, command, "ACL SETUSER app +"+command) {
				t.Errorf("without %s: exit code %d, want %d: %+v", command, r.code, code, p.Findings)
			}
			if !slices.Equal(p.Servers[0].Missing, []string{command}) {
				t.Errorf("without %s: %v are missing", command, p.Servers[0].Missing)
			}
			user("+" + command)
		}
	}
	for word, grant := range map[string]string{"resetkeys": "~hg:*", "resetchannels": "&hg:*"} {
		user(word)
		if p, _ := ping(); !slices.ContainsFunc(p.Findings, func(f finding) bool { return strings.Contains(f.Advice, grant) }) {
			t.Errorf("%s: %+v", word, p.Findings)
		}
		user(grant)
	}
	user("-info")
	if p, r := ping(); r.code != exitOK || !p.has("note", "INFO is forbidden", "+info") {
		t.Errorf("without info: exit code %d: %+v", r.code, p)
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
	// One node may have rights of its own.
	acl(t, c.Nodes[1].Client(t), "default", "-publish")
	p, _ = headgateJSON[pingJSON](t, "ping", "--redis", "redis://"+c.Addrs[0])
	if len(p.Findings) == 0 || !p.has("warning", ": publish", "+publish") {
		t.Errorf("%+v", p.Findings)
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
