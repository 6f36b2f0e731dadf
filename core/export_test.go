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

// Values are the states of a Gate in memory as Redis would hold them, by the names of their keys after the prefix.
func (g *Gate) Values() map[string]string {
	values := make(map[string]string)
	for i := range g.store.(*memoryStore).shards {
		s := &g.store.(*memoryStore).shards[i]
		s.Lock()
		for name, state := range s.keys {
			values[name[len(g.prefix):]] = state.Value()
		}
		s.Unlock()
	}
	return values
}
