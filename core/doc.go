// Package core decides whether a request may go on: rate limits that all replicas of a service share through Redis,
// or that one process keeps in memory. It knows nothing of HTTP.
//
// A [Policy] is a named [Algorithm], such as 100 tokens a minute. A [Key] says whose limit it is. A [Charge] is one
// policy, one key and a cost, and a [Gate] decides any number of charges together: either all of them are spent, or
// none is. The outcome is a [Decision] with one [Result] for each charge. A denial is a Decision and not an error;
// errors are for what went wrong.
//
// [Gate.Reserve] spends an estimate that can be settled or cancelled later, or a turn that has to be waited for; a
// [Limiter] is the handy form of all this for policies on one key. A table of the algorithms, with what each promises, keeps
// and costs, is in docs/limits.md.
//
// A [Semaphore] caps what runs at a time: each holder has a [Lease], which renews itself and ends with its process. A
// [Mutex] is one of a single slot.
//
// # Time and numbers
//
// On Redis the server's clock decides, never this process's. All arithmetic is in integers and exact: a wait in a
// Result is true to the microsecond, rounded up.
//
// # Denials
//
// A denial that nothing but time lifts is answered without asking Redis until it is lifted, for a second at most: see
// [Config].
//
// # At most once
//
// A decision is sent to Redis once and never again by itself. When its answer is lost, the cost may have been spent
// without an answer; it is never spent twice. Nothing is promised across a failover that lost writes.
//
// # When Redis is down
//
// Each Policy says what happens then, by its [FailureMode]: this process decides alone with its share of the limit,
// or everything passes, or nothing does. Such a Decision has a Source and a Cause that say so, and no error is
// returned. Only two things are errors: the caller's own context has ended, or Redis refuses what a Gate needs (no
// permission, a wrong password, a foreign value under one of its keys). The latter denies, and is returned each time.
package core
