// Package core decides whether a request may go on: by rate limits and caps on concurrency that all
// replicas of a service share through Redis, or that one process keeps in memory. It knows nothing
// of HTTP.
//
//	gate := core.Must(core.NewRedis(client, core.Config{}))
//	limit := core.PolicyConfig{Name: "api", Algorithm: core.PerMinute(100)}
//	api := core.Must(core.NewPolicy(limit))
//	bob := core.Must(core.NewKey("acme", "bob"))
//	d, err := gate.Decide(ctx, core.Charge{Policy: api, Key: bob})
//	if err != nil {
//		return err
//	}
//	if !d.Allowed {
//		return fmt.Errorf("try again in %v", d.RetryAfter())
//	}
//
// A [Policy] is a named [Algorithm], such as 100 tokens a minute. A [Key] says whose limit it is. A
// [Charge] is a cost on one key under one policy, and a [Gate] decides up to 16 charges together:
// it spends all of them or none. The outcome is a [Decision] with one [Result] for each charge. A
// denial is a Decision, not an error.
//
// [Gate.Reserve] spends an estimate that can be settled or cancelled later, or a turn that the
// caller waits for. A [Limiter] has the methods of golang.org/x/time/rate for policies on one key.
// The pages docs/limits.md and docs/reference/limits.md say what each algorithm promises and keeps.
//
// Beside this package, core/semaphore caps how many holders run at a time, core/once lets work be
// done once for each key, and core/bloom keeps sets that take few bits for each item.
//
// # Time and numbers
//
// On Redis the server's clock decides. All arithmetic is in integers and exact: a wait in a Result
// is a whole number of microseconds, rounded up.
//
// # Denials
//
// A process remembers denials that only time can lift, and answers equal requests from memory for
// at most one second. See Config.DisableDenialCache.
//
// # At most once
//
// A decision is sent to Redis once and never repeated. If its answer is lost, the cost may be spent
// without an answer, and it is never spent twice. Nothing is promised across a failover that loses
// writes.
//
// # When Redis fails
//
// The [FailureMode] of each policy decides while Redis does not answer: this process alone with its
// share of the limit, or everything passes, or nothing does. Such a Decision has a Source and a
// Cause, and no error is returned. There are two exceptions, which are errors and deny: the
// caller's own context has ended, or Redis is misconfigured ([ErrMisconfigured]).
package core
