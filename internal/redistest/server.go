package redistest

import (
	"context"
	"crypto/rand"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// answerTimeout bounds the package's own exchanges with a server. It is long, so
// that a loaded machine fails no test.
const answerTimeout = 15 * time.Second

// Server is a Redis or Valkey server, or a miniredis, that one test may use.
type Server struct {
	// Name is the program and its version, such as redis-server-7.0.15, or
	// miniredis.
	Name string
	// Addr is the host:port that the server listens on.
	Addr string
	// Real is false for miniredis only.
	Real bool
	// Mini is the miniredis behind the server, or nil if the server is real.
	Mini *miniredis.Miniredis
	// Prefix is random and different for every test. Every key that a test writes
	// must contain it, because the server may hold other data.
	Prefix string

	t       testing.TB
	outside *redis.Options
	process *process
}

// forTest returns a copy of the server that reports failures to t and has a
// prefix of its own.
func (s *Server) forTest(t testing.TB) *Server {
	bound := *s
	bound.t = t
	bound.Prefix = "headgate-test-" + strings.ToLower(rand.Text()[:16])
	if s.outside != nil {
		t.Cleanup(bound.sweep)
	}
	return &bound
}

// connectOutside returns the server that HEADGATE_TEST_REDIS names. If it does
// not answer, the test fails: a skip would hide that nothing ran there.
func connectOutside(t testing.TB, opt *redis.Options) *Server {
	t.Helper()
	s := &Server{Addr: opt.Addr, Real: true, outside: opt}
	info, err := s.info("server")
	if err != nil {
		t.Fatalf("%s names %s, which does not answer INFO: %v", variable, opt.Addr, err)
	}
	s.Name = programName(info) + "-at-" + opt.Addr
	return s
}

// Client returns a new client of the server, with its options changed by change,
// and closes it when the test ends. Maintenance notifications are off, because
// their handshake has a data race in go-redis 9.23.
func (s *Server) Client(t testing.TB, change ...func(*redis.Options)) *redis.Client {
	t.Helper()
	opt := s.options()
	for _, c := range change {
		c(opt)
	}
	client := redis.NewClient(opt)
	// The error says nothing: a test may have closed the client already.
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// Calls returns how often the server has executed the given commands since it
// started, from INFO commandstats; Calls(t, "evalsha", "eval") is an example. A
// subcommand is named like "script|load". Failed calls count, including an
// EVALSHA answered with NOSCRIPT. So do calls of other clients, and commands
// inside scripts. miniredis keeps no such count, and the test fails.
func (s *Server) Calls(t testing.TB, commands ...string) int64 {
	t.Helper()
	if !s.Real {
		t.Fatalf("%s does not count its calls", s.Name)
	}
	info, err := s.info("commandstats")
	if err != nil {
		t.Fatalf("INFO commandstats of %s: %v", s.Name, err)
	}
	var sum int64
	for _, command := range commands {
		stats, ok := info["cmdstat_"+strings.ToLower(command)]
		if !ok {
			continue
		}
		first, _, _ := strings.Cut(stats, ",")
		n, err := strconv.ParseInt(strings.TrimPrefix(first, "calls="), 10, 64)
		if err != nil {
			t.Fatalf("INFO commandstats of %s: %s: %v", s.Name, stats, err)
		}
		sum += n
	}
	return sum
}

func (s *Server) options() *redis.Options {
	// The client gives up after 3 s by default, which miniredis exceeds on a busy machine.
	opt := redis.Options{Addr: s.Addr, ContextTimeoutEnabled: true, ReadTimeout: answerTimeout}
	if s.outside != nil {
		opt = *s.outside
	}
	opt.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	return &opt
}

func (s *Server) info(section string) (map[string]string, error) {
	client := redis.NewClient(s.options())
	defer func() { _ = client.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), answerTimeout)
	defer cancel()
	text, err := client.Info(ctx, section).Result()
	return parseInfo(text), err
}

// sweep deletes the test's keys from a server that this package did not start.
func (s *Server) sweep() {
	client := redis.NewClient(s.options())
	defer func() { _ = client.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), answerTimeout)
	defer cancel()
	keys := client.Scan(ctx, 0, "*"+s.Prefix+"*", 1000).Iterator()
	for keys.Next(ctx) {
		if err := client.Del(ctx, keys.Val()).Err(); err != nil {
			s.t.Errorf("delete %s on %s: %v", keys.Val(), s.Name, err)
			return
		}
	}
	if err := keys.Err(); err != nil {
		s.t.Errorf("scan %s for the keys of this test: %v", s.Name, err)
	}
}

func parseInfo(text string) map[string]string {
	fields := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[name] = value
		}
	}
	return fields
}

// programName reads the name from INFO, because a redis-server on PATH may be
// Valkey.
func programName(info map[string]string) string {
	if v := info["valkey_version"]; v != "" {
		return "valkey-server-" + v
	}
	return "redis-server-" + info["redis_version"]
}
