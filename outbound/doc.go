// Package outbound keeps the requests of all replicas to one upstream under shared limits. Its
// [Transport] is an http.RoundTripper around another one:
//
//	gate, err := core.NewRedis(client, core.Config{})
//	...
//	requests, err := core.NewPolicy(core.PolicyConfig{
//		Name: "requests", Algorithm: core.TokenBucket{Rate: 500, Per: time.Minute, Burst: 10},
//	})
//	...
//	transport, err := outbound.New(outbound.Config{
//		Gate:    gate,
//		Rules:   []outbound.Rule{{Policy: requests, Key: outbound.ByCredential}},
//		MaxWait: 30 * time.Second,
//	})
//	...
//	client := &http.Client{Transport: transport}
//
// Every [Rule] and the [Slot] of a request are one decision: it spends all of them or nothing. A
// request without room waits in order for at most Config.MaxWait, or fails with a [BusyError] that
// tells the earliest time, so that the caller can take another upstream.
//
// # Refusals
//
// The Transport reads what responses tell about the upstream's own limits. A refusal with a wait
// begins a cooldown in Redis, of the account or of the account's model, that every replica obeys.
// The requests that wait for its end go on one after the other within the first second. A refusal
// that tells no wait cools for a time that doubles; see [Backoff]. If the account has spent its
// money or a quota of a day, nothing waits: requests fail with BusyError.Spent. If a response tells
// that less is left of the limit that a Rule names than the Rule counts, because others use the
// account too, the Rule counts that. Config.Read reads what the Transport cannot.
//
// # Order
//
// Requests wait for a core.TokenBucket, a core.LeakyBucket and a Slot in one order over all
// replicas. For other algorithms the requests of one process wait in order, and those of several
// processes share what there is.
package outbound
