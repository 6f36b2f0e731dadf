// Package redistest gives the tests of this module their Redis servers.
//
// [Each] runs a test on miniredis and on every real server it finds:
// redis-server and valkey-server on PATH, started by the test itself, and the
// server the environment names. [Real] and [Start] are for tests that only
// make sense on a real server, [StartCluster] for those that need a cluster,
// [StartFailover] for those whose primary is replaced.
//
// The environment variable HEADGATE_TEST_REDIS may be unset, or one of:
//
//   - require: a redis-server missing from PATH fails the test instead of
//     skipping it. Continuous integration sets it.
//   - host:port, or a redis:// or rediss:// URL: that server is used in
//     addition. It belongs to somebody else, so tests touch only keys that
//     contain [Server.Prefix], and those are deleted when the test ends.
//
// Every server started here belongs to one test and is killed by its
// [testing.TB.Cleanup], so no state is shared between tests. A test binary
// that is itself killed, or ends by its -timeout, runs no cleanup and leaves
// its servers behind.
//
// miniredis answers TIME by the real clock, but lets keys expire only when
// told so with [miniredis.Miniredis.FastForward].
package redistest
