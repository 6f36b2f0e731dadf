// Package sloggate writes a log of Headgate's events by log/slog.
//
//	logs, err := sloggate.New(sloggate.Config{})
//	gate, err := core.NewRedis(client, core.Config{Observe: logs.Observe})
//	defer logs.Flush(context.Background())
//
// It writes once what happens once, such as an outage or a lost lease. What may happen with every
// request, such as a denial, it writes once a minute for each key, and then how often it happened
// again. Keys are hashed.
//
//	level   events
//	error   a circuit opened, misconfiguration, a lost lease, a refund or a settlement that failed,
//	        a plans file or a price file that is bad
//	warn    overload, decisions of failure modes, errors of decisions, acquires, ledgers and filters,
//	        a release that failed, a hold that expired, an evicted or adopted lease, a response of a
//	        language model without its usage or its price
//	info    a circuit closed, denials, slots that were refused, thresholds, blocks, and what operators
//	        changed: adjust, raise used, reset, forget
//	debug   a script that Redis did not know, a changed override of a plan
package sloggate
