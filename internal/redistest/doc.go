// Package redistest starts Redis servers for the tests of this module.
//
// [Each] runs a test on miniredis and on every real server it finds:
// redis-server and valkey-server on PATH, which it starts, and the server that
// the environment names. [Real] and [Start] serve tests that need a real
// server, [StartCluster] tests that need a cluster, and [StartFailover] tests
// in which a replica replaces the primary.
//
// The environment variable HEADGATE_TEST_REDIS may be unset, or one of:
//
//   - require: a redis-server missing from PATH fails the test instead of
//     skipping it. Continuous integration sets it.
//   - host:port, or a redis:// or rediss:// URL: tests use that server in
//     addition. It may hold other data, so tests touch only keys that contain
//     [Server.Prefix], and the package deletes them when the test ends.
//
// The environment variable HEADGATE_TEST_SERVER may be the absolute path of a server program, which
// then takes the place of those on PATH.
//
// Every server that this package starts belongs to one test, whose
// [testing.TB.Cleanup] kills it, so tests share no state. A test binary that is
// killed, or that exceeds its -timeout, runs no cleanup and leaves its servers
// running.
//
// miniredis answers TIME from the real clock, but expires keys only in
// [miniredis.Miniredis.FastForward].
package redistest
