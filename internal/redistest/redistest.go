package redistest

import (
	"flag"
	"slices"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"
)

// Main is the TestMain of packages whose tests mostly wait for a server or a time.
func Main(m *testing.M) {
	Parallel()
	m.Run()
}

// Parallel lets eight parallel tests run at a time, on however few processors, unless the flag
// -parallel says otherwise. A TestMain calls it.
func Parallel() {
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
}

// Each runs f once on miniredis and once on every real server it finds, each
// time in a subtest named after the server. It starts the servers on PATH for
// this call, so they are empty and f may stop or kill them.
func Each(t *testing.T, f func(t *testing.T, s *Server)) {
	t.Helper()
	found := findServers(t)

	mini := miniredis.RunT(t)
	all := []*Server{{Name: "miniredis", Addr: mini.Addr(), Mini: mini}}
	for _, path := range found.programs {
		all = append(all, startProgram(t, path, false, nil))
	}
	if found.outside != nil {
		all = append(all, connectOutside(t, found.outside))
	}

	var names []string
	for _, s := range all {
		names = append(names, s.Name)
	}
	if len(all) == 1 {
		t.Logf("runs on miniredis only: %s", missing)
	} else {
		t.Logf("runs on %s", strings.Join(names, ", "))
	}
	for _, s := range all {
		t.Run(s.Name, func(t *testing.T) { f(t, s.forTest(t)) })
	}
}

// Real returns a real server: redis-server if it is on PATH, otherwise
// valkey-server, otherwise the server that HEADGATE_TEST_REDIS names. The
// program that HEADGATE_TEST_SERVER names comes before all of these. Without
// one it skips the test, or fails it if HEADGATE_TEST_REDIS is require. Tests
// that stop or kill the server use [Start], because Real may return a server
// that this package did not start.
func Real(t testing.TB) *Server {
	t.Helper()
	found := findServers(t)
	if len(found.programs) == 0 && found.outside != nil {
		s := connectOutside(t, found.outside)
		t.Logf("runs on %s", s.Name)
		return s.forTest(t)
	}
	return Start(t)
}

// Start starts a server for this test alone, which the test may stop, kill and
// restart. It uses the program that HEADGATE_TEST_SERVER names, otherwise
// redis-server if that is on PATH, otherwise valkey-server. Without one it
// skips the test, or fails it if HEADGATE_TEST_REDIS is require.
//
// The server keeps nothing on disk and listens on a free loopback port.
// extraArgs follow the package's own arguments. They must leave the port open
// to clients without TLS and without a password; otherwise Start cannot tell
// that the server is up.
func Start(t testing.TB, extraArgs ...string) *Server {
	t.Helper()
	path := firstProgram(t)
	s := startProgram(t, path, false, extraArgs)
	t.Logf("runs on %s", s.Name)
	return s.forTest(t)
}

func firstProgram(t testing.TB) string {
	t.Helper()
	found := findServers(t)
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
