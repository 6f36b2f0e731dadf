package redistest

import (
	"slices"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"
)

// Each runs f once on miniredis and once on every real server found, each run
// in a subtest named after the server. Servers on PATH are started for this
// call, so f finds them empty and may stop or kill them.
func Each(t *testing.T, f func(t *testing.T, s *Server)) {
	t.Helper()
	found := look(t)

	mini := miniredis.RunT(t)
	servers := []*Server{{Name: "miniredis", Addr: mini.Addr(), Mini: mini}}
	for _, path := range found.programs {
		servers = append(servers, startProgram(t, path, false, nil))
	}
	if found.outside != nil {
		servers = append(servers, reach(t, found.outside))
	}

	var names []string
	for _, s := range servers {
		names = append(names, s.Name)
	}
	if len(servers) == 1 {
		t.Logf("runs on miniredis only: %s", missing)
	} else {
		t.Logf("runs on %s", strings.Join(names, ", "))
	}
	for _, s := range servers {
		t.Run(s.Name, func(t *testing.T) { f(t, s.forTest(t)) })
	}
}

// Real returns a real server: redis-server if it is on PATH, else
// valkey-server, else the one HEADGATE_TEST_REDIS names. Without any it skips
// the test, or fails it if HEADGATE_TEST_REDIS is require. The server may be
// somebody else's, so tests that hurt it use [Start].
func Real(t testing.TB) *Server {
	t.Helper()
	found := look(t)
	if len(found.programs) == 0 && found.outside != nil {
		s := reach(t, found.outside)
		t.Logf("runs on %s", s.Name)
		return s.forTest(t)
	}
	return Start(t)
}

// Start starts a server for this test alone, which the test may stop, kill and
// restart. It uses redis-server if that is on PATH, else valkey-server; without
// any it skips the test, or fails it if HEADGATE_TEST_REDIS is require.
//
// The server keeps nothing on disk and listens on a free loopback port;
// extraArgs follow the arguments that see to this. They must leave the port
// open to clients without TLS or a password, or Start cannot tell that the
// server is up.
func Start(t testing.TB, extraArgs ...string) *Server {
	t.Helper()
	path := firstProgram(t)
	s := startProgram(t, path, false, extraArgs)
	t.Logf("runs on %s", s.Name)
	return s.forTest(t)
}

func firstProgram(t testing.TB) string {
	t.Helper()
	found := look(t)
	if len(found.programs) == 0 {
		t.Skip(missing)
	}
	return found.programs[0]
}

func startProgram(t testing.TB, path string, cluster bool, extraArgs []string) *Server {
	t.Helper()
	p := &process{path: path, dir: t.TempDir(), cluster: cluster, extraArgs: slices.Clone(extraArgs)}
	t.Cleanup(p.kill)
	name, err := p.start()
	if err != nil {
		t.Fatalf("start %s: %v", path, err)
	}
	return &Server{Name: name, Addr: p.addr(), Real: true, process: p}
}
