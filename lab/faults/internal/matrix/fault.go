package matrix

import (
	"time"

	"github.com/headgate/headgate/lab/faults/faultproxy"
	"github.com/headgate/headgate/lab/faults/internal/lab"
)

// fault is one row of the matrix: what breaks, where, and what is promised then.
type fault struct {
	name   string
	on     []lab.Topology
	config lab.Config       // beside the topology
	sound  faultproxy.Fault // the links before and after
	fresh  bool             // the limit is unspent before the fault
	// do breaks and heals. Recovery counts from its return, or from its start if nothing heals.
	do       func(*scene) error
	unhealed bool
	promise  promise
}

// promise is what docs/failure.md states.
type promise struct {
	outage   bool          // the modes may decide, so that Local spends a share
	forgets  int64         // how often Redis forgets what was spent, so that the limit is admitted again
	twice    bool          // two primaries admit the limit each, or the fault has proven nothing
	recovery time.Duration // until Redis decides everything
	loses    bool          // leases and holds may end
	ends     bool          // holds may end
	snapshot bool          // Redis forgets what came after a snapshot
	refuses  bool          // decisions may return ErrMisconfigured
}

// over returns the most units beyond the limit that a mode may admit.
func (p promise) over(mode int) int64 {
	most := p.forgets * limit
	if p.outage && mode == local {
		most += limit // the shares of all processes
	}
	return most
}

const local = 0 // the index of FailLocal in modes

const (
	soon     = time.Second     // a probe has found the server, and connections are made
	election = 6 * time.Second // peers notice, elect a primary, and clients learn of it
)

var (
	everywhere = []lab.Topology{lab.OneServer, lab.Cluster, lab.Sentinel}
	alone      = []lab.Topology{lab.OneServer}
	replicated = []lab.Topology{lab.Cluster, lab.Sentinel}
)

// faults are all rows, in the order of the page.
var faults = []fault{
	{name: "kill -9, back after a moment", on: alone, do: killAndStart,
		promise: promise{outage: true, forgets: 1, recovery: soon, loses: true}},
	{name: "kill -9, a replica takes over", on: replicated, do: kill, unhealed: true,
		promise: promise{outage: true, forgets: 1, recovery: election}},
	{name: "restart", on: everywhere, do: restart,
		promise: promise{outage: true, forgets: 1, recovery: soon, loses: true}},
	{name: "SIGSTOP", on: everywhere, do: stop, promise: promise{outage: true, recovery: soon}},
	{name: "planned failover", on: replicated, do: failover, unhealed: true,
		promise: promise{outage: true, forgets: 1, recovery: election}},
	{name: "split brain", on: []lab.Topology{lab.Sentinel}, do: split, fresh: true,
		promise: promise{outage: true, forgets: 1, twice: true, recovery: election, loses: true}},
	{name: "resharding", on: []lab.Topology{lab.Cluster}, do: reshard,
		promise: promise{recovery: soon, outage: true}},
	{name: "LOADING", on: everywhere, do: load,
		promise: promise{outage: true, recovery: soon, snapshot: true}},
	{name: "BUSY", on: everywhere, do: busy, promise: promise{outage: true, recovery: soon}},
	{name: "OOM", on: everywhere, do: fill, promise: promise{outage: true, recovery: soon}},
	{name: "SCRIPT FLUSH", on: everywhere, do: command("SCRIPT FLUSH"), unhealed: true,
		promise: promise{outage: true, recovery: soon}},
	{name: "FLUSHALL", on: everywhere, do: command("FLUSHALL"), unhealed: true,
		promise: promise{forgets: 1, recovery: soon, loses: true}},
	{name: "a right revoked", on: everywhere, do: revoke, promise: promise{recovery: soon, refuses: true}},
	{name: "a password rotated", on: alone, do: rotate, promise: promise{recovery: soon, refuses: true}},
	{name: "Envoy answers for a dead server", on: alone,
		do:      link(faultproxy.Fault{Answer: "-upstream failure\r\n"}),
		promise: promise{outage: true, recovery: soon}},
	{name: "twemproxy answers for a dead server", on: alone,
		do:      link(faultproxy.Fault{Answer: "-ERR Connection refused\r\n"}),
		promise: promise{outage: true, recovery: soon}},
	{name: "clock an hour ahead", on: alone, config: lab.Config{Clock: true}, do: step(time.Hour),
		unhealed: true, promise: promise{forgets: 1, recovery: soon, loses: true}},
	{name: "clock two seconds back", on: alone, config: lab.Config{Clock: true}, do: step(-2 * time.Second),
		unhealed: true, promise: promise{recovery: soon}},
	{name: "clock an hour back", on: alone, config: lab.Config{Clock: true}, do: step(-time.Hour),
		unhealed: true, promise: promise{recovery: soon}},
	{name: "clock thirty days back", on: alone, config: lab.Config{Clock: true}, do: step(-30 * 24 * time.Hour),
		unhealed: true, promise: promise{recovery: soon}},
	{name: "reset after the request was sent", on: everywhere,
		do: link(faultproxy.Fault{ResetReplies: 3}), promise: promise{outage: true, recovery: soon}},
	{name: "a reply that stops halfway", on: everywhere,
		do: link(faultproxy.Fault{CutReplies: 50}), promise: promise{outage: true, recovery: soon}},
	{name: "half-open connections", on: everywhere, do: freeze,
		promise: promise{outage: true, recovery: soon}},
	{name: "connections that nobody answers", on: everywhere, do: mute,
		promise: promise{outage: true, recovery: soon}},
	{name: "connections refused", on: everywhere, do: refuse,
		promise: promise{outage: true, recovery: soon}},
	{name: "a link without traffic", on: everywhere, do: link(faultproxy.Fault{Hold: true}),
		promise: promise{outage: true, recovery: soon}},
	{name: "a pool without connections", on: everywhere, do: drain,
		promise: promise{outage: true, recovery: soon}},
	{name: "ten times the latency", on: everywhere, sound: faultproxy.Fault{Delay: time.Millisecond},
		do: link(faultproxy.Fault{Delay: 10 * time.Millisecond}), promise: promise{recovery: soon}},
	{name: "round trips of a fifth of a lease", on: everywhere, do: slow,
		promise: promise{outage: true, recovery: 2 * soon, ends: true}},
	{name: "a wrong certificate", on: alone, config: lab.Config{TLS: true}, do: mistrust,
		promise: promise{outage: true, recovery: soon, refuses: true}},
}
