package core

import "github.com/headgate/headgate"

// InjectClock makes a Gate on Redis decide on a clock of the test, in microseconds.
func (g *Gate) InjectClock(now func() int64) {
	s := g.store.(*redisStore)
	s.now = now
	s.script = newScript(headgate.DecideScriptInjected())
}

// SplitByOutermost makes a Gate decide as on a cluster.
func (g *Gate) SplitByOutermost() { g.perSlot = true }
